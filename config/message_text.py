"""Formats names and values of the file for messages, always on one line."""

import difflib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_SHOWN = 60
_COMPARED = 64
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+\Z")

type_names = {
    "null": "nothing",
    "bool": "the boolean",
    "int": "the number",
    "float": "the number",
    "timestamp": "the date",
    "str": "the text",
}
"""The words before the value of a scalar, by its YAML type."""


def shown(text: str) -> str:
    """Return ``text`` in double quotes, with unprintable characters escaped.

    A long text is shortened in the middle, because errors are most often at its start or end.
    """
    tail = _SHOWN // 2
    cut = text if len(text) <= _SHOWN else f"{text[: _SHOWN - tail]}...{text[-tail:]}"
    escaped = "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in cut
    )
    return f'"{escaped}"'


def join_path(path: tuple[str | int, ...]) -> str:
    """Return ``sources.gpus.devices[0]`` for ``("sources", "gpus", "devices", 0)``."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f".{step if _PLAIN_KEY.match(step) else shown(step)}"
    return text.removeprefix(".")


def did_you_mean(word: str, names: "Iterable[str]", otherwise: str = "") -> str:
    """Return a hint with the name that was probably meant, or ``otherwise``."""
    guess = nearest(word, names)
    return f'did you mean "{guess}"?' if guess else otherwise


def nearest(word: str, names: "Iterable[str]") -> str:
    """Return the name that was probably meant by ``word``, or an empty string."""
    if len(word) > _COMPARED:
        return ""
    matches = difflib.get_close_matches(word, list(names), n=1)
    return matches[0] if matches else ""
