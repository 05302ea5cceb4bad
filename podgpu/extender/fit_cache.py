"""A cache of fits of pods on nodes; nodes with equal topology share entries."""

import itertools
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final, TypeAlias

from pipeline.model.topology_tree import Topology
from podgpu.extender.node_selection.node_fit import Fit, fit
from podgpu.extender.node_selection.pod_demand import Requirement

MOST: Final = 4096
"""The largest number of entries, of about 300 bytes each: a node with 8 GPUs has at most 255
different sets of free GPUs."""

_Key: TypeAlias = tuple[int, int, int, Requirement | None, int]


class StoppedError(Exception):
    """The fit is no longer needed."""


class FitCache:
    """The fits that were used last. Safe to use from any thread.

    The cache does not keep a topology alive: its fits are dropped together with it.

    Args:
        most: the largest number of entries.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._known: OrderedDict[_Key, Fit | None] = OrderedDict()
        self._numbers: weakref.WeakKeyDictionary[Topology, int] = weakref.WeakKeyDictionary()
        self._next = itertools.count()
        # A topology is collected in any thread, perhaps during a change of the dicts here.
        self._gone: deque[int] = deque()

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
        with self._lock:
            key = (self._number(topology), free, count, required, unsure)
            if key in self._known:
                self._known.move_to_end(key)
                return self._known[key]
        result = fit(topology, free, count, required, unsure=unsure, stop=stop)
        if stop():
            # The result may not be the best one.
            raise StoppedError
        with self._lock:
            self._known[key] = result
            while len(self._known) > self._most:
                self._known.popitem(last=False)
        return result

    def __len__(self) -> int:
        with self._lock:
            self._forget()
            return len(self._known)

    def _number(self, topology: Topology) -> int:
        self._forget()
        number = self._numbers.get(topology)
        if number is None:
            number = self._numbers[topology] = next(self._next)
            weakref.finalize(topology, self._gone.append, number).atexit = False
        return number

    def _forget(self) -> None:
        gone = set()
        while self._gone:
            gone.add(self._gone.popleft())
        if gone:
            for key in [key for key in self._known if key[0] in gone]:
                del self._known[key]
