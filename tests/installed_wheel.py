"""Install the wheel of a folder in a fresh environment and run the README's first example there."""

import os
import re
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def first_example() -> str:
    """The first block of Python code in README.md."""
    found = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    assert found is not None, "README.md has no Python example"
    return found[1]


def check_complete(wheel: Path) -> None:
    """Every file of the package is in the wheel: modules, templates of pages, embedded data."""
    files = (p for p in (ROOT / "src").rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    wanted = {p.relative_to(ROOT / "src").as_posix() for p in files}
    missing = sorted(wanted - set(zipfile.ZipFile(wheel).namelist()))
    assert not missing, f"the wheel lacks {missing}"


def main(folder: str) -> None:
    (wheel,) = Path(folder).resolve().glob("*.whl")
    check_complete(wheel)
    # No checkout on the path: neither the folder nor an environment variable leads there.
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    with tempfile.TemporaryDirectory() as home:
        venv.create(home, with_pip=True)
        python = str(Path(home) / "bin" / "python")
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, str(wheel)], check=True, cwd=home, env=env)
        subprocess.run([python, "-c", first_example()], check=True, cwd=home, env=env)
        where = "import bagwise; print(bagwise.__version__, bagwise.__file__)"
        subprocess.run([python, "-c", where], check=True, cwd=home, env=env)


if __name__ == "__main__":
    main(sys.argv[1])
