"""HTML elements of the page. All external text is escaped by `text`."""

import html
from collections.abc import Callable, Iterable
from itertools import zip_longest
from typing import Final, TypeVar
from urllib.parse import quote

from pipeline.status_page.display_text import UNKNOWN

T = TypeVar("T")

_UNKNOWN: Final = f'<span aria-hidden="true">&ndash;</span><span class="v">{UNKNOWN}</span>'

text = html.escape
"""Escapes a text for use in an element or an attribute."""


def bar(part: float | None, kind: str) -> str:
    """Return a bar; empty if the part is unknown. Screen readers ignore it, and read the text.

    Args:
        part: filled part of the bar, from 0 to 1.
        kind: CSS class of the filled part.
    """
    if part is None:
        return ""
    width = f"{part * 100:.0f}"
    return (
        '<svg class="bar" viewBox="0 0 100 1" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="t" width="100" height="1"/>'
        f'<rect class="{kind}" width="{width}" height="1"/></svg>'
    )


def figure(value: float | None, unit: str) -> str:
    """Return a number with its unit; a dash if it is unknown, which screen readers read so."""
    return _UNKNOWN if value is None else f"{value:.0f}&nbsp;{unit}"


def unknown(reason: str) -> str:
    """Return a dash with the reason why a value is unknown."""
    return f"{_UNKNOWN}<small>{text(reason)}</small>"


def shown(value: T | None, form: Callable[[T], str]) -> str:
    """Return a value as text, formatted by `form`; a dash if the value is None."""
    return _UNKNOWN if value is None else text(form(value))


def cell(content: str, kind: str = "", label: str = "") -> str:
    """Return a table cell.

    It sets `role`, so that the element stays a cell for screen readers where CSS gives it another
    layout.

    Args:
        content: HTML of the cell.
        kind: CSS classes of the cell.
        label: title of the column; in a narrow window it is shown in the cell.
    """
    named = f' data-l="{text(label)}"' if label else ""
    return f'<td role="cell"{_classes(kind)}{named}>{content}</td>'


def row(head: str, cells: str, kind: str = "") -> str:
    """Return a table row.

    Args:
        head: HTML of the first cell, which is the heading of the row.
        cells: HTML of the other cells.
        kind: CSS class of the row.
    """
    first = f'<th scope="row" role="rowheader">{head}</th>'
    return f'<tr role="row"{_classes(kind)}>{first}{cells}</tr>\n'


def table(
    kind: str, titled: str, titles: Iterable[str], *bodies: str, classes: Iterable[str] = ("dev",)
) -> str:
    """Return a table.

    Args:
        kind: CSS class of the table.
        titled: id of the element that contains the title of the table.
        titles: titles of the columns.
        bodies: HTML of the rows, in groups.
        classes: CSS classes of the first columns.
    """
    heads = "".join(
        f'<th scope="col" role="columnheader"{_classes(names)}>{text(title)}</th>'
        for title, names in zip_longest(titles, classes, fillvalue="")
    )
    groups = "".join(f'<tbody role="rowgroup">{body}</tbody>\n' for body in bodies)
    return (
        f'<table class="{kind}" role="table" aria-labelledby="{titled}"><thead role="rowgroup">'
        f'<tr role="row">{heads}</tr></thead>{groups}</table>\n'
    )


def link(path: str, title: str) -> str:
    """Return a list item with a link. The link is relative, so that it works behind a proxy."""
    return f'<li><a href=".{text(quote(path))}">{text(path)}</a> {text(title)}</li>'


def _classes(names: str) -> str:
    return f' class="{names}"' if names else ""
