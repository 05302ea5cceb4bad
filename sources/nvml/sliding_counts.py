"""Counts over a sliding window: clock events in podgpu's samples, and XID errors."""

from collections import Counter, deque
from collections.abc import Hashable, Mapping
from typing import Final, Generic, TypeVar

from pipeline.model import Attrs, Instant

K = TypeVar("K", bound=Hashable)

REASONS: Final[Mapping[int, str]] = {
    0x1: "gpu_idle",
    0x2: "clocks_setting",
    0x4: "power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "hw_power_brake",
    0x100: "display_clocks",
}
"""Reasons for lower clocks, by bit."""

_PARTS: Final = 1000
"""Parts of a window. Events within one part are counted together, which bounds the memory of a
window however many events occur."""


class SlidingCounts(Generic[K]):
    """Counts how often each key occurred within a window.

    Args:
        length_ns: length of the window.
    """

    def __init__(self, length_ns: int) -> None:
        self._length_ns = length_ns
        self._part_ns = max(1, length_ns // _PARTS)
        self._parts: deque[tuple[int, Counter[K]]] = deque()
        self._counts: Counter[K] = Counter()

    def add(self, key: K, at: Instant) -> None:
        """Count one occurrence."""
        self._trim(at)
        if not self._parts or at.mono_ns - self._parts[-1][0] >= self._part_ns:
            self._parts.append((at.mono_ns, Counter()))
        self._parts[-1][1][key] += 1
        self._counts[key] += 1

    def counts(self, at: Instant) -> Mapping[K, int]:
        """Return the counts of the window that ends at this time, without keys that are absent."""
        self._trim(at)
        return self._counts

    def _trim(self, at: Instant) -> None:
        while self._parts and self._parts[0][0] <= at.mono_ns - self._length_ns:
            self._counts -= self._parts.popleft()[1]


class ClockEvents:
    """Counts by GPU in how many of podgpu's samples each clock event was active.

    The counts outlive reloads of the driver and of the configuration, unless the window changes.

    Args:
        length_ns: length of the window.
    """

    def __init__(self, length_ns: int) -> None:
        self.length_ns = length_ns
        size = ("window_size_in_ms", in_ms(length_ns))
        self.attrs: dict[int, Attrs] = {
            bit: (("clock_event", event), size) for bit, event in REASONS.items()
        }
        self._windows: dict[str, SlidingCounts[int]] = {}

    def add(self, uuid: str, mask: int, at: Instant) -> Mapping[int, int]:
        """Count a sample of a GPU; return the counts by bit."""
        window = self._windows.get(uuid)
        if window is None:
            window = self._windows[uuid] = SlidingCounts(self.length_ns)
        for bit in REASONS:
            if mask & bit:
                window.add(bit, at)
        return window.counts(at)

    def forget(self, uuid: str) -> None:
        """Drop the counts of a GPU that was removed."""
        self._windows.pop(uuid, None)


def in_ms(length_ns: int) -> str:
    """Return a duration in milliseconds, as the text of a label."""
    return str(length_ns // 1_000_000)
