"""Which labels and annotations of a pod are handed on."""

import sys
from collections.abc import Iterable, Mapping

from pipeline.claiming import matcher
from pipeline.kube.shape import text
from pipeline.model import Pairs

_LONGEST = 1024
"""Characters of a value. Labels have 63 at most; an annotation may hold a whole file, which as a
label of every series of a pod would be in memory many times over."""


class Passing:
    """Lets some names through, and counts what it has to leave out.

    Args:
        patterns: of the names that are let through; none lets none through.
        most: how many of one pod.
    """

    def __init__(self, patterns: Iterable[str], most: int) -> None:
        patterns = tuple(patterns)
        self._fits = matcher(patterns) if patterns else None
        self._most = most

    def pairs(self, values: Mapping[str, object]) -> tuple[Pairs, int]:
        """Return what passes, sorted by name, and how many more would have.

        Too many are cut by name, so that it is the same ones each time.
        """
        if self._fits is None:
            return (), 0
        names = sorted(name for name in values if self._fits(name))
        told = [(name, text(values[name])) for name in names]
        short = [(name, value) for name, value in told if len(value) <= _LONGEST]
        kept = short[: self._most]
        pairs = tuple([(sys.intern(name), sys.intern(value)) for name, value in kept])
        return pairs, len(told) - len(pairs)
