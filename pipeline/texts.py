"""Texts of foreign origin, made fit for messages and logs."""

from collections.abc import Iterable
from typing import Final

_SHORTEST: Final = 4
"""Characters; what is shorter stands in any text by chance."""

_CUT: Final = "..."
_CONCEALED: Final = "(concealed)"


def line(value: str, longest: int = 300) -> str:
    """Return a foreign text for a message: on one line, cut to a readable length."""
    cut = value if len(value) <= longest else value[:longest] + _CUT
    return "".join(c if c.isprintable() else " " for c in cut)


def unquestioned(url: str) -> str:
    """Return an address for people: without query and fragment, which may have a secret in them."""
    return url.partition("#")[0].partition("?")[0]


def concealed(value: str, secrets: Iterable[str]) -> str:
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
