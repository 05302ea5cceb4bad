"""Fits of pods on nodes, worked out once for all nodes that are alike."""

import itertools
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final, TypeAlias

from pipeline.model.topology_tree import Topology
from podgpu.extender.node_selection.gpu_requirement import Requirement
from podgpu.extender.node_selection.node_fit import Fit, fit

MOST: Final = 4096
"""Fits that are kept, of some 300 bytes: a node of 8 GPUs has no more than 255 sets of free
ones."""

_Key: TypeAlias = tuple[int, int, int, Requirement | None, int]


class StoppedError(Exception):
    """Nobody waits for a fit any more."""


class FitCache:
    """The fits that were asked for last. Safe to use from any thread.

    They don't keep a topology: with the last who has it its fits go too.

    Args:
        most: how many are kept.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._known: OrderedDict[_Key, Fit | None] = OrderedDict()
        self._numbers: weakref.WeakKeyDictionary[Topology, int] = weakref.WeakKeyDictionary()
        self._next = itertools.count()
        # A topology goes in whatever thread drops it, perhaps in the middle of a change here.
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
            StoppedError: `stop` said so.
        """
        with self._lock:
            key = (self._number(topology), free, count, required, unsure)
            if key in self._known:
                self._known.move_to_end(key)
                return self._known[key]
        made = fit(topology, free, count, required, unsure=unsure, stop=stop)
        if stop():
            # It may not be the best then.
            raise StoppedError
        with self._lock:
            self._known[key] = made
            while len(self._known) > self._most:
                self._known.popitem(last=False)
        return made

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
