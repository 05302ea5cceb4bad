"""Selects labels and annotations of a pod by name."""

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

from config.patterns import parse_pattern
from pipeline.kube.json_access import as_text
from pipeline.model import StringPairs
from pipeline.model.plugin_ids import glob_matcher

_MAX_VALUE = 1024
"""Maximum characters of a value. Labels have at most 63. An annotation may contain a whole file,
which would be in memory many times as a label of every series of the pod."""

_CACHE_SIZE = 4096
"""Names whose result is cached: the pods of a node have some hundred different names."""


class LabelFilter:
    """Selects names, and counts those that exceed the limits.

    Args:
        globs: glob patterns of the names to keep.
        limit: maximum number per pod.
        patterns: regular expressions; a name that contains a match is kept too. Without globs and
            patterns no name is kept.
    """

    def __init__(self, globs: Iterable[str], limit: int, patterns: Iterable[str] = ()) -> None:
        globs, patterns = tuple(globs), tuple(patterns)
        self._matches = _matcher(globs, patterns) if globs or patterns else None
        self._most = limit

    def filter(self, values: Mapping[str, object]) -> tuple[StringPairs, int]:
        """Return the selected pairs, sorted by name, and the number of those that were dropped.

        Excess pairs are dropped in the order of names, so that the result is stable.
        """
        if self._matches is None:
            return (), 0
        names = sorted(name for name in values if self._matches(name))
        selected = [(name, as_text(values[name])) for name in names]
        short = [(name, value) for name, value in selected if len(value) <= _MAX_VALUE]
        kept = short[: self._most]
        pairs = tuple([(sys.intern(name), sys.intern(value)) for name, value in kept])
        return pairs, len(selected) - len(pairs)


def _matcher(globs: tuple[str, ...], patterns: tuple[str, ...]) -> Callable[[str], bool]:
    glob = glob_matcher(globs) if globs else None
    found = [parse_pattern(text) for text in patterns]

    @lru_cache(_CACHE_SIZE)
    def fits(name: str) -> bool:
        return (glob is not None and glob(name)) or any(each(name) for each in found)

    return fits
