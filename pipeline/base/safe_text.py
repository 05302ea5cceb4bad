"""Makes text of other programs safe for messages and logs."""

import re
from collections.abc import Iterable
from typing import Final

_MIN_SECRET_LENGTH: Final = 4
"""Minimum length of a secret: shorter text may occur anywhere by chance."""

_CUT: Final = "..."
_KEPT: Final = 0.8
"""Part of the maximum length that a text that is cut between words has at least."""

_REDACTED: Final = "(concealed)"


_UNSAFE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters but tab and line feed
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # the direction of writing
    "\u00ad\u180e\u200b\u2060-\u2065\u206a-\u206f\ufeff\ufff9-\ufffb"  # invisible
    "\u2028\u2029"  # ends of lines and paragraphs
    "\U000e0000-\U000e007f"  # tags
    "\ud800-\udfff]"  # halves of surrogate pairs, which UTF-8 can't hold
)
_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"


def without_control_characters(value: str) -> str:
    """Return a text with U+FFFD in place of characters that affect a terminal or the reader.

    These are control characters except tab and line feed, characters that change the direction of
    writing, invisible ones, separators of lines and paragraphs, and halves of surrogate pairs.
    """
    return value if value.isprintable() else _UNSAFE.sub(_REPLACEMENT, value)


def line(value: str, longest: int = 300) -> str:
    """Return a text for a message: on one line, and cut to a readable length, between words."""
    if len(value) > longest:
        # A long word at the end is cut itself, so that most of the text is kept.
        start, _, _ = value[: longest + 1].rpartition(" ")
        value = (start if len(start) > longest * _KEPT else value[:longest]) + _CUT
    return "".join(c if c.isprintable() else " " for c in value)


def shortened(value: str, longest: int = 64, at: int | None = None) -> str:
    """Return a wrong value for a message: on one line, with the part that is wrong.

    Args:
        value: the value.
        longest: maximum of characters. Of a longer value the start and the end are kept, because
            an id is usually wrong at one of them.
        at: index of the error in the value, if known; then the part around it is kept.
    """
    if len(value) > longest and at is None:
        tail = longest // 2
        value = value[: longest - tail] + _CUT + value[len(value) - tail :]
    elif len(value) > longest and at is not None:
        start = max(0, min(at - longest // 2, len(value) - longest))
        end = start + longest
        value = (_CUT if start else "") + value[start:end] + (_CUT if end < len(value) else "")
    return line(value, len(value))


def without_query(url: str) -> str:
    """Return a URL for a message, without query and fragment, which may contain a secret."""
    return url.partition("#")[0].partition("?")[0]


def redact(value: str, secrets: Iterable[str]) -> str:
    """Remove secrets, such as a token that a server repeats in its response, from a text.

    Args:
        value: the text, complete or cut by `line`; a secret may be cut there too.
        secrets: the secrets. Those of less than 4 characters are ignored.
    """
    # The longest first, because one may contain another.
    for secret in sorted(set(secrets), key=len, reverse=True):
        if len(secret) >= _MIN_SECRET_LENGTH:
            value = value.replace(secret, _REDACTED)
            value = _redact_cut_secret(value, secret)
    return value


def _redact_cut_secret(value: str, secret: str) -> str:
    """Remove the start of a secret directly before the place where `line` has cut the text."""
    whole, cut, rest = value.rpartition(_CUT)
    for length in range(len(secret) - 1 if cut else 0, _MIN_SECRET_LENGTH - 1, -1):
        if whole.endswith(secret[:length]):
            return f"{whole[:-length]}{_REDACTED}{cut}{rest}"
    return value
