"""Formats names and values of the configuration file for messages, on one line."""

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
"""Descriptions that precede the value of a scalar in a message, by its YAML type."""


def shown(text: str) -> str:
    """Return ``text`` in double quotes on one line, with unprintable characters escaped.

    A text of more than 60 characters is shortened in the middle: errors are most often at the
    start or at the end.
    """
    tail = _SHOWN // 2
    cut = text if len(text) <= _SHOWN else f"{text[: _SHOWN - tail]}...{text[-tail:]}"
    escaped = "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in cut
    )
    return f'"{escaped}"'


def join_path(path: tuple[str | int, ...]) -> str:
    """Return a path as text: ``("sources", "gpus", 0)`` is ``sources.gpus[0]``."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f".{step if _PLAIN_KEY.match(step) else shown(step)}"
    return text.removeprefix(".")


def did_you_mean(word: str, names: "Iterable[str]", otherwise: str = "") -> str:
    """Return a hint with the name that is most similar to ``word``; ``otherwise`` if none is."""
    guess = nearest(word, names)
    return f'did you mean "{guess}"?' if guess else otherwise


def nearest(word: str, names: "Iterable[str]") -> str:
    """Return the name that is most similar to ``word``; empty if none is similar."""
    if len(word) > _COMPARED:
        return ""
    matches = difflib.get_close_matches(word, list(names), n=1)
    return matches[0] if matches else ""
