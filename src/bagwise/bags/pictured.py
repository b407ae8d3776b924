"""Bags as a table of a notebook (internal)."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from bagwise.bags.messages import in_words

if TYPE_CHECKING:
    from bagwise.bags.container import Bags

_SHOWN = 5  # bags of a table


def as_html(bags: Bags) -> str:
    """The first bags as a table, with how many there are; text of the user is escaped.

    >>> from bagwise import Bags
    >>> "<td>&lt;b&gt;</td>" in as_html(Bags.from_list([[[1.0]]], ids=["<b>"]))
    True
    """
    known = {"bag": bags.ids, "label": bags.y, "group": bags.groups, "instances": bags.sizes}
    columns = {name: values for name, values in known.items() if values is not None}
    head = "".join(f"<th>{name}</th>" for name in columns)
    rows = [
        "".join(f"<td>{escape(str(values[b]))}</td>" for values in columns.values())
        for b in range(min(len(bags), _SHOWN))
    ]
    if len(bags) > _SHOWN:
        rows.append(f'<td colspan="{len(columns)}">and {len(bags) - _SHOWN} more</td>')
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    lines = [*in_words(bags), *_parts(bags)]
    return (
        f"<div><strong>Bags</strong><br>{'<br>'.join(map(escape, lines))}"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _parts(bags: Bags) -> list[str]:
    """What is known of instances, and how features are called."""
    known = ("instance_labels", "coords", "instance_ids")
    there = ", ".join(name for name in known if getattr(bags, name) is not None)
    names = bags.feature_names or ()
    shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    said = {"with ": there, "features: ": shown}
    return [word + text for word, text in said.items() if text]
