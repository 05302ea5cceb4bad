"""Texts of foreign origin, made fit for messages and logs."""

import re
from collections.abc import Iterable
from typing import Final

_SHORTEST: Final = 4
"""Characters; what is shorter stands in any text by chance."""

_CUT: Final = "..."
_CONCEALED: Final = "(concealed)"


_ACTING: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters but tab and line feed
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # the direction of writing
    "\u00ad\u180e\u200b\u2060-\u2065\u206a-\u206f\ufeff\ufff9-\ufffb"  # invisible
    "\u2028\u2029"  # ends of lines and paragraphs
    "\U000e0000-\U000e007f"  # tags
    "\ud800-\udfff]"  # halves of surrogate pairs, which UTF-8 can't hold
)
_REPLACED: Final = "\N{REPLACEMENT CHARACTER}"


def without_control_characters(value: str) -> str:
    """Return a foreign text in which U+FFFD stands for each character that acts on who reads it.

    These are control characters but tab and line feed, characters that change the direction of
    writing, invisible ones, separators of lines and paragraphs, and halves of surrogate pairs.
    """
    return value if value.isprintable() else _ACTING.sub(_REPLACED, value)


def line(value: str, longest: int = 300) -> str:
    """Return a foreign text for a message: on one line, cut to a readable length."""
    cut = value if len(value) <= longest else value[:longest] + _CUT
    return "".join(c if c.isprintable() else " " for c in cut)


def shortened(value: str, longest: int = 64, at: int | None = None) -> str:
    """Return a wrong value for a message: on one line, with the part that is wrong.

    Args:
        value: as it came.
        longest: characters; of a longer value the beginning and the end are kept, since an id is
            most often wrong at one of them.
        at: where in the value the fault is, if that is known; then the part around it is kept.
    """
    if len(value) > longest and at is None:
        tail = longest // 2
        value = value[: longest - tail] + _CUT + value[len(value) - tail :]
    elif len(value) > longest and at is not None:
        start = max(0, min(at - longest // 2, len(value) - longest))
        end = start + longest
        value = (_CUT if start else "") + value[start:end] + (_CUT if end < len(value) else "")
    return "".join(c if c.isprintable() else " " for c in value)


def without_query(url: str) -> str:
    """Return an address for people: without query and fragment, which may have a secret in them."""
    return url.partition("#")[0].partition("?")[0]


def redact(value: str, secrets: Iterable[str]) -> str:
    """Return a foreign text without what it repeats of ours, such as a token that it refuses.

    Args:
        value: the text, as it came or as `line` has cut it, which may have cut a secret in two.
        secrets: what may not be repeated; what is too short to tell is passed over.
    """
    # The longest first: one may stand within another.
    for secret in sorted(set(secrets), key=len, reverse=True):
        if len(secret) >= _SHORTEST:
            value = value.replace(secret, _CONCEALED)
            value = _without_beginning(value, secret)
    return value


def _without_beginning(value: str, secret: str) -> str:
    """Conceal the beginning of a secret in front of where `line` cut the text."""
    whole, cut, rest = value.rpartition(_CUT)
    for length in range(len(secret) - 1 if cut else 0, _SHORTEST - 1, -1):
        if whole.endswith(secret[:length]):
            return f"{whole[:-length]}{_CONCEALED}{cut}{rest}"
    return value
