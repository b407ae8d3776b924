"""A headless Chromium for the tests of pages; without one they are skipped, and say so."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


def find_chromium() -> str | None:
    """The browser that BAGWISE_CHROMIUM names, or one that is installed."""
    named = os.environ.get("BAGWISE_CHROMIUM")
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    return named or next((path for n in names if (path := shutil.which(n))), None)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """One browser for all tests."""
    path = find_chromium()
    if path is None:
        pytest.skip("no Chromium found; run make test-browser, or set BAGWISE_CHROMIUM")
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with api.sync_playwright() as playwright:
        # In containers the sandbox is not available; the only page opened is our own file.
        started = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="session")
def screenshots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pictures of pages go: the folder BAGWISE_SCREENSHOTS, or a temporary one."""
    named = os.environ.get("BAGWISE_SCREENSHOTS")
    path = Path(named) if named else tmp_path_factory.mktemp("screenshots")
    path.mkdir(parents=True, exist_ok=True)
    return path
