"""Fit texts into columns and lines of a terminal, and remove control characters from them."""

import unicodedata
from typing import Final

_CUT: Final = "~"
_INDENT: Final = "  "


def width(text: str) -> int:
    """Return how many columns a text occupies on a terminal."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def terminal_safe(text: str) -> str:
    """Return a text with `?` in place of characters that control a terminal."""
    if text.isprintable():
        return text
    text = text.replace("\N{NO-BREAK SPACE}", " ")
    return "".join(c if c.isprintable() else "?" for c in text)


def written(text: str, encoding: str) -> str:
    """Return a text with `?` in place of characters that an encoding lacks."""
    if text.isascii():
        return text
    try:
        return text.encode(encoding, "replace").decode(encoding)
    except LookupError:  # an encoding that Python doesn't know
        return text.encode("ascii", "replace").decode()


def fit(text: str, columns: int, *, right: bool = False) -> str:
    """Return a text of exactly the given width: padded, or cut with a `~` at the end.

    Args:
        text: the text.
        columns: the width.
        right: align the text to the right.
    """
    text = terminal_safe(text)
    if width(text) > columns:
        text = _start(text, columns - 1) + _CUT if columns > 0 else ""
    padding = " " * (columns - width(text))
    return padding + text if right else text + padding


def middle(text: str, columns: int) -> str:
    """Return a text of at most the given width. A longer text is cut in the middle.

    Names of pods often start alike and differ in a generated part at the end.
    """
    text = terminal_safe(text)
    if width(text) <= columns:
        return text
    if columns < 1:
        return ""
    head = (columns - 1) // 2
    return _start(text, head) + _CUT + _start(text[::-1], columns - 1 - head)[::-1]


def broken(text: str, columns: int) -> list[str]:
    """Split a text into lines of at most the given width.

    Args:
        text: text of one line.
        columns: the width, at least 4; lines after the first are indented.
    """
    left = terminal_safe(text)
    first = _start(left, columns)
    found, left = [first], left[len(first) :]
    while left:
        part = _start(left, columns - len(_INDENT))
        found.append(_INDENT + part)
        left = left[len(part) :]
    return found


def _start(text: str, columns: int) -> str:
    used = 0
    for at, character in enumerate(text):
        used += _columns(character)
        if used > columns:
            return text[:at]
    return text


def _columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
