"""The buffers that NVML takes GPM samples into: it allocates them, and frees them when told to."""

import contextlib
import itertools
from collections import deque
from collections.abc import Callable
from typing import Any


class Buffer:
    """A buffer for one sample; set aside to be freed once nothing refers to it any more.

    Attributes:
        box: NVML's own.
    """

    __slots__ = ("_drop", "_number", "box")

    def __init__(self, box: Any, number: int, drop: Callable[[int], None]) -> None:
        self.box = box
        self._number = number
        self._drop = drop

    def __del__(self) -> None:
        self._drop(self._number)


class Buffers:
    """The buffers of one initialisation of NVML.

    A thread that is stuck in the driver refers to what it gave to it, so no buffer is freed under
    it. And a buffer may lose its last reference on any thread, the event loop's too, which must not
    call NVML: so it is only noted there, and freed by the next who calls NVML for a buffer.

    Args:
        make: makes an empty box.
        allocate: has NVML fill a box with a new buffer; returns its code.
        free: frees it.
    """

    def __init__(
        self, make: Callable[[], Any], allocate: Callable[[Any], int], free: Callable[[Any], int]
    ) -> None:
        self._make = make
        self._allocate = allocate
        self._free = free
        self._numbers = itertools.count()
        self._live: dict[int, Any] = {}
        self._dropped: deque[int] = deque()

    def new(self) -> tuple[int, Buffer | None]:
        """Have a buffer allocated; None with a code other than 0."""
        self.tidy()
        box = self._make()
        code = self._allocate(box)
        if code:
            return code, None
        # A number of its own, since NVML may give out an address again.
        number = next(self._numbers)
        self._live[number] = box
        return code, Buffer(box, number, self._dropped.append)

    def tidy(self) -> None:
        """Free what nothing refers to any more."""
        with contextlib.suppress(IndexError):  # another thread may take the last one
            while self._dropped:
                box = self._live.pop(self._dropped.popleft(), None)
                if box is not None:
                    self._free(box)

    def clear(self) -> None:
        """Free all. Nobody may use one after that, or be using one now."""
        while self._live:
            _, box = self._live.popitem()
            self._free(box)
