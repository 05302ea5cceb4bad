"""The buffers of GPM samples, which NVML allocates and frees."""

import contextlib
import ctypes
import itertools
from collections import deque
from collections.abc import Callable
from typing import Any


class Buffer:
    """A buffer for one sample; it is freed some time after its last reference is gone.

    Attributes:
        box: NVML's buffer.
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

    A thread that hangs in the driver keeps a reference to its buffers, so they are not freed during
    its call. The last reference may be released on any thread, even that of the event loop, which
    must not call NVML. So the release is only recorded, and the next NVML thread that requests a
    buffer frees it.

    Args:
        make: creates an empty box.
        call: calls a function of NVML.
    """

    def __init__(self, make: Callable[[], Any], call: Callable[..., int]) -> None:
        self._make = make
        self._call = call
        self._numbers = itertools.count()
        self._live: dict[int, Any] = {}
        self._dropped: deque[int] = deque()

    def new(self) -> tuple[int, Buffer | None]:
        """Allocate a buffer; None with a code other than 0."""
        self.tidy()
        box = self._make()
        code = self._call("nvmlGpmSampleAlloc", ctypes.byref(box))
        if code:
            return code, None
        # Not the address, since NVML may reuse it.
        number = next(self._numbers)
        self._live[number] = box
        return code, Buffer(box, number, self._dropped.append)

    def tidy(self) -> None:
        """Free the buffers that have no reference any more."""
        with contextlib.suppress(IndexError):  # another thread may take the last one
            while self._dropped:
                box = self._live.pop(self._dropped.popleft(), None)
                if box is not None:
                    self._call("nvmlGpmSampleFree", box)

    def clear(self) -> None:
        """Free all buffers. No buffer may be in use now or later."""
        while self._live:
            _, box = self._live.popitem()
            self._call("nvmlGpmSampleFree", box)
