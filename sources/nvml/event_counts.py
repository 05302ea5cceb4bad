"""Counts of clock events in podgpu's samples, and of XID errors; they outlive driver reloads."""

from collections import Counter, deque
from collections.abc import Container, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Final, Generic, TypeVar

from pipeline.model import NS, Attrs, Instant, Reading

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

LOG_INTERVAL_NS: Final = 60 * NS

FIELDS: Final = (
    "xid_last",
    "xid_errors",
    "xid_last_seen_timestamp_seconds",
    "xid_errors_in_window",
)

TIMELESS: Final = FIELDS[:3]
"""Fields whose values do not change as time passes."""


class SlidingCounts(Generic[K]):
    """Counts how often each key occurred within a window.

    Args:
        length_ns: length of the window in nanoseconds.
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


@dataclass(slots=True)
class _GpuStarts:
    """How often each clock event started on one GPU.

    Attributes:
        since: time of the first sample.
        mask: the events that were active in the last sample.
        counts: the number of starts, by bit.
    """

    since: Instant
    mask: int
    counts: dict[int, int]


class ClockEventStarts:
    """Counts, for each GPU, how often each clock event started: it is active, and was not before.

    An event that is active in the first sample of a GPU is not counted, because its start is not
    known. The counts outlive reloads of the driver and of the configuration.
    """

    attrs: Final[Mapping[int, Attrs]] = {
        bit: (("clock_event", event),) for bit, event in REASONS.items()
    }

    def __init__(self) -> None:
        self._gpus: dict[str, _GpuStarts] = {}

    def add(self, uuid: str, mask: int, at: Instant) -> tuple[Instant, Mapping[int, int]]:
        """Compare the mask of a GPU's sample with the last one.

        Returns:
            Since when starts are counted, and the number of starts by bit.
        """
        gpu = self._gpus.get(uuid)
        if gpu is None:
            gpu = self._gpus[uuid] = _GpuStarts(at, mask, dict.fromkeys(REASONS, 0))
        for bit in REASONS:
            if mask & ~gpu.mask & bit:
                gpu.counts[bit] += 1
        gpu.mask = mask
        return gpu.since, gpu.counts

    def forget(self, uuid: str) -> None:
        """Drop the counts of a GPU that was removed."""
        self._gpus.pop(uuid, None)


class ClockEvents:
    """Counts, for each GPU, in how many of podgpu's samples each clock event was active.

    The counts are those of a window. They outlive reloads of the driver and of the configuration,
    unless the length of the window changes.

    Args:
        length_ns: length of the window in nanoseconds.
        starts: counts how often each event started, independent of the window.
    """

    def __init__(self, length_ns: int, starts: ClockEventStarts | None = None) -> None:
        self.length_ns = length_ns
        self.starts = ClockEventStarts() if starts is None else starts
        size = ("window_size_in_ms", in_ms(length_ns))
        self.attrs: dict[int, Attrs] = {
            bit: (("clock_event", event), size) for bit, event in REASONS.items()
        }
        self._windows: dict[str, SlidingCounts[int]] = {}

    def add(self, uuid: str, mask: int, at: Instant) -> Mapping[int, int]:
        """Count the events in the mask of a GPU's sample; return the window's counts by bit."""
        window = self._windows.setdefault(uuid, SlidingCounts(self.length_ns))
        for bit in REASONS:
            if mask & bit:
                window.add(bit, at)
        return window.counts(at)

    def forget(self, uuid: str) -> None:
        """Drop the counts of a GPU that was removed."""
        self._windows.pop(uuid, None)
        self.starts.forget(uuid)


def in_ms(length_ns: int) -> str:
    """Return a duration in milliseconds, as the text of a label."""
    return str(length_ns // 1_000_000)


@dataclass(slots=True)
class _GpuXids:
    """The XID errors of one GPU.

    Attributes:
        recent: how often each code occurred within the window.
        since: since when errors are received; None if they are not watched.
        last: the code of the last error; 0 without an error.
        counts: how often each code occurred.
        seen: when each code last occurred.
        logged: when each code was last logged, and how many of its errors were not logged since.
    """

    recent: SlidingCounts[int]
    since: Instant | None = None
    last: int = 0
    counts: dict[int, int] = field(default_factory=dict)
    seen: dict[int, Instant] = field(default_factory=dict)
    logged: dict[int, tuple[int, int]] = field(default_factory=dict)


class XidCounts:
    """Counts XID errors by GPU and code, since podgpu started and within a window.

    It also decides which errors are logged: one per GPU and code in `LOG_INTERVAL_NS`, since a GPU
    may report thousands a minute. It counts the other errors, so that the log can show how many.
    """

    def __init__(self) -> None:
        self._codes: tuple[int, ...] = ()
        self._window_ns = 0
        self._gpus: dict[str, _GpuXids] = {}

    def configure(self, codes: Iterable[int], window_ns: int) -> None:
        """Set which counters start at 0, and the window.

        Args:
            codes: codes whose counters start at 0. Counters of other codes are removed if they
                are 0.
            window_ns: length of the window; a change clears the counts of the window.
        """
        self._codes = tuple(sorted(set(codes)))
        is_new, self._window_ns = window_ns != self._window_ns, window_ns
        for gpu in self._gpus.values():
            kept = (item for item in gpu.counts.items() if item[1] or item[0] in self._codes)
            gpu.counts = dict(kept)
            if is_new:
                gpu.recent = SlidingCounts(window_ns)

    def _gpu(self, uuid: str) -> _GpuXids:
        return self._gpus.setdefault(uuid, _GpuXids(SlidingCounts(self._window_ns)))

    def start_watching(self, uuid: str, at: Instant) -> None:
        """Note that XID errors of the GPU are received from now on, so that 0 means none."""
        gpu = self._gpu(uuid)
        gpu.since = gpu.since or at
        for code in self._codes:
            gpu.counts.setdefault(code, 0)

    def add(self, uuid: str, code: int, at: Instant) -> int | None:
        """Count one error.

        Returns:
            How many errors of this GPU and code were not logged since the last one that was; None
            if this error must not be logged either.
        """
        gpu = self._gpu(uuid)
        gpu.counts[code] = gpu.counts.get(code, 0) + 1
        gpu.seen[code] = at
        gpu.last = code
        gpu.recent.add(code, at)
        logged_ns, unlogged = gpu.logged.get(code, (at.mono_ns - LOG_INTERVAL_NS, 0))
        if at.mono_ns - logged_ns < LOG_INTERVAL_NS:
            gpu.logged[code] = (logged_ns, unlogged + 1)
            return None
        gpu.logged[code] = (at.mono_ns, 0)
        return unlogged

    def overdue(self, at: Instant) -> list[tuple[str, int, int]]:
        """Return uuid, code and number of unlogged errors to log now; they count as logged."""
        due = [
            (uuid, code, unlogged)
            for uuid, gpu in self._gpus.items()
            for code, (logged_ns, unlogged) in gpu.logged.items()
            if unlogged and at.mono_ns - logged_ns >= LOG_INTERVAL_NS
        ]
        for uuid, code, _ in due:
            self._gpus[uuid].logged[code] = (at.mono_ns, 0)
        return due

    def forget(self, uuid: str) -> None:
        """Drop the counts of a GPU that was removed."""
        self._gpus.pop(uuid, None)

    def with_errors(self, uuids: Iterable[str]) -> list[str]:
        """Return those of the GPUs that have had an XID error."""
        return [uuid for uuid in uuids if uuid in self._gpus and self._gpus[uuid].seen]

    def readings(
        self, uuids: Iterable[str], fields: Container[str], at: Instant, valid_ns: int
    ) -> list[Reading]:
        """Return the readings of these GPUs at this time."""
        return [
            Reading(uuid, name, attrs, value, since, at, valid_ns)
            for uuid in uuids
            if uuid in self._gpus
            for name, attrs, value, since in self._values(self._gpus[uuid], at)
            if name in fields
        ]

    def _values(
        self, gpu: _GpuXids, at: Instant
    ) -> Iterator[tuple[str, Attrs, int | float, Instant | None]]:
        """Yield the values of a GPU: field, attributes, value, and when a counter started."""
        last, errors, seen_at, recent = FIELDS
        yield last, (), gpu.last, None
        # All codes are counted from this time, so the first error of a code without a series is an
        # increase from 0 to 1.
        for code, count in gpu.counts.items():
            yield errors, _attrs(code), count, gpu.since
        for code, seen in gpu.seen.items():
            yield seen_at, _attrs(code), seen.wall_ns / NS, None
        size = ("window_size_in_ms", in_ms(self._window_ns))
        counts = gpu.recent.counts(at)
        # A code that left the window is reported as 0. Otherwise its last value would stay until
        # it expires.
        for code in sorted(gpu.seen):
            yield recent, (size, *_attrs(code)), counts.get(code, 0), None
        if not gpu.seen:
            yield recent, (size,), 0, None


@cache
def _attrs(code: int) -> Attrs:
    return (("xid", str(code)),)
