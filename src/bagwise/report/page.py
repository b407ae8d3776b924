"""The page: content as JSON, style and script inside one HTML file."""

from __future__ import annotations

import json
import os
from importlib.resources import files
from typing import Any

from bagwise.bags import Bags, as_bags
from bagwise.core.files.atomic import atomic_file
from bagwise.io.class_labels import class_names
from bagwise.io.requirements import require
from bagwise.models.single_model import check_one_model
from bagwise.report.content import page_content

# JSON inside a script element must not end it, nor open a comment.
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


def write_report(path: str | os.PathLike[str], model: Any, bags: Any, **options: Any) -> int:
    """Write the page of `build_report` to a file; returns its size in bytes.

    An existing file is kept, and FileExistsError raised, unless `overwrite=True`.
    """
    overwrite = bool(options.pop("overwrite", False))
    page = build_report(model, bags, **options).encode("utf-8", "replace")
    with atomic_file(path, overwrite=overwrite) as file:
        file.write(page)
    return len(page)


def build_report(
    model: Any,
    bags: Any,
    *,
    title: str = "bagwise report",
    data_name: str = "bags",
    image_shape: tuple[int, int] | None = None,
    command: str | None = None,
    seed: int = 0,
    compare: Any = None,
    compare_name: str = "the other model",
) -> str:
    """A page with a model's predictions for bags: scores, bags, instances, model card.

    Parameters
    ----------
    model : a fitted model.
    bags : Bags; labels give scores, coordinates heat maps, instance labels colours, and
        groups (patients) count together in intervals.
    image_shape : height and width, if the features are the pixels of images.
    command : what to repeat to get this page again.
    seed : of the random weights that bags get for intervals.
    compare, compare_name : another fitted model of the same classes and features, and what to
        call it: both are scored on the same bags.

    Bags with very many instances are thinned, and the page says so.
    """
    require_jinja2()
    from jinja2 import Environment
    from markupsafe import Markup

    check_one_model(model)
    if compare is not None:
        check_one_model(compare)
        _check_same_classes(model, compare)
    checked: Bags = as_bags(bags)
    content = page_content(
        model,
        checked,
        title=title,
        data_name=data_name,
        image_shape=image_shape,
        command=command,
        seed=seed,
        compare=compare,
        compare_name=compare_name,
    )
    template = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(
        _asset("page.html")
    )
    scripts = "\n".join(_asset(name) for name in ("charts.js", "bags.js", "page.js"))
    return template.render(
        content=content,
        data=Markup(embedded_json(content)),
        style=Markup(_asset("page.css")),
        script=Markup(scripts),
    )


def _check_same_classes(model: Any, other: Any) -> None:
    """Raise where two models do not tell the same classes apart."""
    own, theirs = class_names(model), class_names(other)
    if list(map(str, own)) != list(map(str, theirs)):
        raise ValueError(
            f"both models must tell the same classes apart, but one has {own}, the other {theirs}; "
            "compare models that were fitted to the same labels"
        )


def embedded_json(value: Any) -> str:
    """JSON that may stand inside a script element whatever its texts hold.

    >>> embedded_json({"id": "</script><b>"})
    '{"id":"\\\\u003c/script\\\\u003e\\\\u003cb\\\\u003e"}'
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)  # ASCII: U+2028 is escaped
    for character, escape in _ESCAPES.items():
        text = text.replace(character, escape)
    return text


def _asset(name: str) -> str:
    return (files("bagwise.report") / "assets" / name).read_text(encoding="utf-8")


def require_jinja2() -> None:
    """Raise an ImportError that names the extra to install where jinja2 is missing."""
    require("jinja2", what="writing a report", extra="report")
