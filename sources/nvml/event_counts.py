"""Counts of clock events in podgpu's samples, and of XID errors; they outlive driver reloads."""

from collections import Counter, deque
from collections.abc import Container, Hashable, Iterable, Mapping
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


class XidCounts:
    """Counts XID errors by GPU and code, since podgpu started and within a window."""

    def __init__(self) -> None:
        self._codes: tuple[int, ...] = ()
        self._counts: dict[str, dict[int, int]] = {}
        self._since: dict[str, Instant] = {}
        self._seen: dict[str, dict[int, Instant]] = {}
        self._last: dict[str, int] = {}
        self._window_ns = 0
        self._recent: dict[str, SlidingCounts[int]] = {}

    def set_window(self, window_ns: int) -> None:
        """Set the length of the window; a change clears the counts of the window."""
        if window_ns != self._window_ns:
            self._window_ns = window_ns
            self._recent.clear()

    def start_at_zero(self, codes: Iterable[int]) -> None:
        """Let the counters of these codes start at 0; remove the zeros of other codes."""
        self._codes = tuple(sorted(set(codes)))
        for uuid, counts in self._counts.items():
            self._counts[uuid] = {
                code: count for code, count in counts.items() if count or code in self._codes
            }

    def start_watching(self, uuid: str, at: Instant) -> None:
        """Note that XID errors of the GPU are received from now on, so that 0 means none."""
        counts = self._counts.setdefault(uuid, {})
        self._since.setdefault(uuid, at)
        for code in self._codes:
            counts.setdefault(code, 0)
        self._last.setdefault(uuid, 0)

    def add(self, uuid: str, code: int, at: Instant) -> None:
        """Count one error."""
        counts = self._counts.setdefault(uuid, {})
        counts[code] = counts.get(code, 0) + 1
        self._seen.setdefault(uuid, {})[code] = at
        self._last[uuid] = code
        if uuid not in self._recent:
            self._recent[uuid] = SlidingCounts(self._window_ns)
        self._recent[uuid].add(code, at)

    def forget(self, uuid: str) -> None:
        """Drop the counts of a GPU that was removed."""
        for table in (self._counts, self._since, self._seen, self._last, self._recent):
            table.pop(uuid, None)

    def with_errors(self, uuids: Iterable[str]) -> list[str]:
        """Return those of the GPUs that had an XID error."""
        return [uuid for uuid in uuids if uuid in self._seen]

    def readings(
        self, uuids: Iterable[str], fields: Container[str], at: Instant, valid_ns: int
    ) -> list[Reading]:
        """Return the readings of these GPUs at this time."""
        last, errors, seen_at, recent = (field in fields for field in FIELDS)
        result: list[Reading] = []
        for uuid in uuids:
            counts = self._counts.get(uuid)
            if counts is None:
                continue
            if last:
                result.append(Reading(uuid, "xid_last", (), self._last[uuid], None, at, valid_ns))
            if errors:
                # All codes are counted from this time, so the first error of a code without a
                # series is an increase from 0 to 1.
                since = self._since.get(uuid)
                result += [
                    Reading(uuid, "xid_errors", _attrs(code), count, since, at, valid_ns)
                    for code, count in counts.items()
                ]
            if seen_at:
                result += [
                    Reading(uuid, FIELDS[2], _attrs(code), seen.wall_ns / NS, None, at, valid_ns)
                    for code, seen in self._seen.get(uuid, {}).items()
                ]
            if recent:
                result += self._within_window(uuid, at, valid_ns)
        return result

    def _within_window(self, uuid: str, at: Instant, valid_ns: int) -> list[Reading]:
        size = ("window_size_in_ms", in_ms(self._window_ns))
        window = self._recent.get(uuid)
        counts = {} if window is None else window.counts(at)
        # A code that left the window is reported as 0. Otherwise its last value would stay until
        # it expires.
        found: list[tuple[Attrs, int]] = [
            ((size, *_attrs(code)), counts.get(code, 0))
            for code in sorted(self._seen.get(uuid, ()))
        ]
        return [
            Reading(uuid, FIELDS[3], attrs, count, None, at, valid_ns)
            for attrs, count in found or [((size,), 0)]
        ]


class XidLogThrottle:
    """Limits the log to one XID error per GPU and code in `LOG_INTERVAL_NS`.

    A GPU may report thousands a minute. The log contains how many were left out.
    """

    def __init__(self) -> None:
        self._logged: dict[tuple[str, int], tuple[int, int]] = {}

    def admit(self, uuid: str, code: int, at: Instant) -> int | None:
        """Return how many errors were left out before this one; None if it is left out too."""
        logged_ns, unlogged = self._logged.get((uuid, code), (at.mono_ns - LOG_INTERVAL_NS, 0))
        if at.mono_ns - logged_ns < LOG_INTERVAL_NS:
            self._logged[uuid, code] = (logged_ns, unlogged + 1)
            return None
        self._logged[uuid, code] = (at.mono_ns, 0)
        return unlogged

    def overdue(self, at: Instant) -> list[tuple[str, int, int]]:
        """Return uuid, code and number of left-out errors that may be logged now."""
        due = [
            (uuid, code, unlogged)
            for (uuid, code), (logged_ns, unlogged) in self._logged.items()
            if unlogged and at.mono_ns - logged_ns >= LOG_INTERVAL_NS
        ]
        for uuid, code, _ in due:
            self._logged[uuid, code] = (at.mono_ns, 0)
        return due

    def forget(self, uuid: str) -> None:
        """Drop the state of a GPU that was removed."""
        self._logged = {key: entry for key, entry in self._logged.items() if key[0] != uuid}


_ATTRS_CACHE: dict[int, Attrs] = {}


def _attrs(code: int) -> Attrs:
    attrs = _ATTRS_CACHE.get(code)
    if attrs is None:
        attrs = _ATTRS_CACHE[code] = (("xid", str(code)),)
    return attrs
