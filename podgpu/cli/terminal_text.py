"""Texts of foreign origin, made fit for places of a terminal."""

import unicodedata
from typing import Final

_CUT: Final = "~"
_FURTHER_IN: Final = "  "


def width(text: str) -> int:
    """Return how many columns a text takes."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def terminal_safe(text: str) -> str:
    """Return a text without anything that a terminal would act on."""
    if text.isprintable():
        return text
    text = text.replace("\N{NO-BREAK SPACE}", " ")
    return "".join(c if c.isprintable() else "?" for c in text)


def written(text: str, encoding: str) -> str:
    """Return a text in what an encoding has; `?` stands for the rest."""
    if text.isascii():
        return text
    try:
        return text.encode(encoding, "replace").decode(encoding)
    except LookupError:  # an encoding that Python doesn't know
        return text.encode("ascii", "replace").decode()


def fit(text: str, columns: int, *, right: bool = False) -> str:
    """Return a text that takes exactly so many columns: cut, which shows, or padded.

    Args:
        text: what is printed.
        columns: how many there are.
        right: it stands at the right.
    """
    text = terminal_safe(text)
    if width(text) > columns:
        text = _start(text, columns - 1) + _CUT if columns > 0 else ""
    padding = " " * (columns - width(text))
    return padding + text if right else text + padding


def middle(text: str, columns: int) -> str:
    """Return a text that takes no more than so many columns: what is left out is left out within.

    Names of pods are alike at their beginning, and differ by what is generated, at their end.
    """
    text = terminal_safe(text)
    if width(text) <= columns:
        return text
    if columns < 1:
        return ""
    head = (columns - 1) // 2
    return _start(text, head) + _CUT + _end(text, columns - 1 - head)


def broken(text: str, columns: int) -> list[str]:
    """Return a text in as many lines as it takes, each of no more than so many columns.

    Args:
        text: on one line.
        columns: 4 at least; lines behind the first stand further in.
    """
    left = terminal_safe(text)
    first = _start(left, columns)
    found, left = [first], left[len(first) :]
    while left:
        part = _start(left, columns - len(_FURTHER_IN))
        found.append(_FURTHER_IN + part)
        left = left[len(part) :]
    return found


def _end(text: str, columns: int) -> str:
    taken, at = 0, len(text)
    while at and taken + _columns(text[at - 1]) <= columns:
        at -= 1
        taken += _columns(text[at])
    return text[at:]


def _start(text: str, columns: int) -> str:
    taken = 0
    for at, character in enumerate(text):
        taken += _columns(character)
        if taken > columns:
            return text[:at]
    return text


def _columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
