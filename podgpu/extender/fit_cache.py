"""A cache of fits of pods on nodes; nodes with equal topology share entries."""

import threading
from collections.abc import Callable
from typing import Final, TypeAlias
from weakref import WeakKeyDictionary

from pipeline.model.topology_tree import Topology
from podgpu.extender.node_selection.node_fit import Fit, fit
from podgpu.extender.node_selection.pod_demand import Requirement

MOST: Final = 4096
"""The largest number of entries, of about 300 bytes each: a node with 8 GPUs has at most 255
different sets of free GPUs."""

_Key: TypeAlias = tuple[int, int, Requirement | None, int]


class StoppedError(Exception):
    """The fit is no longer needed."""


class FitCache:
    """The fits that were used last. Safe to use from any thread.

    The cache does not keep a topology alive: its fits are dropped together with it.

    Args:
        most: the largest number of entries. If there are more, the cache starts empty again.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._known: WeakKeyDictionary[Topology, dict[_Key, Fit | None]] = WeakKeyDictionary()

    def fit(
        self,
        topology: Topology,
        free: int,
        count: int,
        required: Requirement | None,
        *,
        unsure: int = 0,
        stop: Callable[[], bool] = lambda: False,
    ) -> Fit | None:
        """Return how well a pod fits; see `podgpu.extender.node_selection.node_fit.fit`.

        Raises:
            StoppedError: `stop` returned True.
        """
        key = (free, count, required, unsure)
        with self._lock:
            known = self._known.get(topology, {})
            if key in known:
                return known[key]
        result = fit(topology, free, count, required, unsure=unsure, stop=stop)
        if stop():
            # The result may not be the best one.
            raise StoppedError
        with self._lock:
            if len(self) >= self._most:
                self._known.clear()
            self._known.setdefault(topology, {})[key] = result
        return result

    def __len__(self) -> int:
        return sum(map(len, self._known.values()))
