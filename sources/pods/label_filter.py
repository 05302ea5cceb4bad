"""Which labels and annotations of a pod are handed on."""

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

from config.patterns import Pattern
from pipeline.kube.json_access import as_text
from pipeline.model import StringPairs
from pipeline.model.plugin_ids import glob_matcher

_LONGEST = 1024
"""Characters of a value. Labels have 63 at most; an annotation may hold a whole file, which as a
label of every series of a pod would be in memory many times over."""

_REMEMBERED = 4096
"""Names of which it is known whether they pass: a node's pods have some hundred between them."""


class LabelFilter:
    """Lets some names through, and counts what it has to leave out.

    Args:
        globs: of the names that are let through.
        limit: how many of one pod.
        patterns: regular expressions; a name passes where one of them is found too. Without globs
            and patterns none does.
    """

    def __init__(self, globs: Iterable[str], limit: int, patterns: Iterable[str] = ()) -> None:
        globs, patterns = tuple(globs), tuple(patterns)
        self._fits = _fitting(globs, patterns) if globs or patterns else None
        self._most = limit

    def filter(self, values: Mapping[str, object]) -> tuple[StringPairs, int]:
        """Return what passes, sorted by name, and how many more would have.

        Too many are cut by name, so that it is the same ones each time.
        """
        if self._fits is None:
            return (), 0
        names = sorted(name for name in values if self._fits(name))
        told = [(name, as_text(values[name])) for name in names]
        short = [(name, value) for name, value in told if len(value) <= _LONGEST]
        kept = short[: self._most]
        pairs = tuple([(sys.intern(name), sys.intern(value)) for name, value in kept])
        return pairs, len(told) - len(pairs)


def _fitting(globs: tuple[str, ...], patterns: tuple[str, ...]) -> Callable[[str], bool]:
    glob = glob_matcher(globs) if globs else None
    found = [Pattern.parse(text).found for text in patterns]

    @lru_cache(_REMEMBERED)
    def fits(name: str) -> bool:
        return (glob is not None and glob(name)) or any(each(name) for each in found)

    return fits
