"""Fits of pods on nodes, worked out once for all nodes that are alike."""

import threading
from collections import OrderedDict
from typing import Final, TypeAlias

from pipeline.extender.judging.fitting import Fit, fit
from pipeline.extender.judging.requirement import Requirement
from pipeline.topology import Topology

MOST: Final = 4096
"""Fits that are kept: a node of 8 GPUs has no more than 255 sets of free ones."""

_Key: TypeAlias = tuple[Topology, int, int, Requirement | None]


class Fits:
    """The fits that were asked for last. Safe to use from any thread.

    Args:
        most: how many are kept.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._known: OrderedDict[_Key, Fit | None] = OrderedDict()

    def of(
        self, topology: Topology, free: int, count: int, required: Requirement | None
    ) -> Fit | None:
        """Return how well a pod fits; see `pipeline.extender.judging.fitting.fit`."""
        key = (topology, free, count, required)
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
                return self._known[key]
        made = fit(topology, free, count, required)
        with self._lock:
            self._known[key] = made
            while len(self._known) > self._most:
                self._known.popitem(last=False)
        return made

    def __len__(self) -> int:
        return len(self._known)
