"""XID errors counted: podgpu's own record, which outlives the driver's reloads."""

from collections.abc import Container, Iterable
from typing import Final

from pipeline.model import NS, Attrs, Instant, Reading
from sources.nvml.sliding_counts import SlidingCounts, in_ms

LOG_INTERVAL_NS: Final = 60 * NS

FIELDS: Final = (
    "xid_last",
    "xid_errors",
    "xid_last_seen_timestamp_seconds",
    "xid_errors_in_window",
)

LASTING: Final = FIELDS[:3]
"""Those that time alone doesn't change."""


class XidCounts:
    """Counts by GPU and code, since podgpu started and within a window."""

    def __init__(self) -> None:
        self._codes: tuple[int, ...] = ()
        self._counts: dict[str, dict[int, int]] = {}
        self._since: dict[str, Instant] = {}
        self._seen: dict[str, dict[int, Instant]] = {}
        self._last: dict[str, int] = {}
        self._window_ns = 0
        self._recent: dict[str, SlidingCounts[int]] = {}

    def set_window(self, window_ns: int) -> None:
        """Count what comes from now on over a window of that length."""
        if window_ns != self._window_ns:
            self._window_ns = window_ns
            self._recent.clear()

    def start_at_zero(self, codes: Iterable[int]) -> None:
        """Have these codes, and no others, start at 0; a 0 of any other code is taken back."""
        self._codes = tuple(sorted(set(codes)))
        for uuid, counts in self._counts.items():
            self._counts[uuid] = {
                code: count for code, count in counts.items() if count or code in self._codes
            }

    def start_watching(self, uuid: str, at: Instant) -> None:
        """Note that the GPU is watched from now on: only now does a 0 mean no error."""
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
        """Drop the record of a GPU that was taken out."""
        for table in (self._counts, self._since, self._seen, self._last, self._recent):
            table.pop(uuid, None)

    def with_errors(self, uuids: Iterable[str]) -> list[str]:
        """Return those of the GPUs that had an error."""
        return [uuid for uuid in uuids if uuid in self._seen]

    def readings(
        self, uuids: Iterable[str], fields: Container[str], at: Instant, good: int
    ) -> list[Reading]:
        """Return everything that is known of these GPUs, as read at this moment."""
        last, errors, seen_at, recent = (field in fields for field in FIELDS)
        made: list[Reading] = []
        for uuid in uuids:
            counts = self._counts.get(uuid)
            if counts is None:
                continue
            if last:
                made.append(Reading(uuid, "xid_last", (), self._last[uuid], None, at, good))
            if errors:
                # All codes are counted since then: the first error of a rare one is no mere
                # beginning of its series, but the step from 0 to 1.
                since = self._since.get(uuid)
                made += [
                    Reading(uuid, "xid_errors", _attrs(code), count, since, at, good)
                    for code, count in counts.items()
                ]
            if seen_at:
                made += [
                    Reading(uuid, FIELDS[2], _attrs(code), seen.wall_ns / NS, None, at, good)
                    for code, seen in self._seen.get(uuid, {}).items()
                ]
            if recent:
                made += self._within_window(uuid, at, good)
        return made

    def _within_window(self, uuid: str, at: Instant, good: int) -> list[Reading]:
        size = ("window_size_in_ms", in_ms(self._window_ns))
        window = self._recent.get(uuid)
        counts = {} if window is None else window.counts(at)
        # One that left the window stands at 0: if it just weren't told any more, what was told
        # last would stand until it is too old.
        found: list[tuple[Attrs, int]] = [
            ((size, *_attrs(code)), counts.get(code, 0))
            for code in sorted(self._seen.get(uuid, ()))
        ]
        return [
            Reading(uuid, FIELDS[3], attrs, count, None, at, good)
            for attrs, count in found or [((size,), 0)]
        ]


class XidLogThrottle:
    """Which XID errors are logged: of each GPU and code one in `LOG_INTERVAL_NS`.

    A GPU may report thousands a minute. All are counted; the log says how many it left out.
    """

    def __init__(self) -> None:
        self._logged: dict[tuple[str, int], tuple[int, int]] = {}

    def admit(self, uuid: str, code: int, at: Instant) -> int | None:
        """Note an error; return how many were left out before it, None if it is left out too."""
        said_ns, left = self._logged.get((uuid, code), (at.mono_ns - LOG_INTERVAL_NS, 0))
        if at.mono_ns - said_ns < LOG_INTERVAL_NS:
            self._logged[uuid, code] = (said_ns, left + 1)
            return None
        self._logged[uuid, code] = (at.mono_ns, 0)
        return left

    def overdue(self, at: Instant) -> list[tuple[str, int, int]]:
        """Return uuid, code and number of those left out that may be logged by now."""
        due = [
            (uuid, code, left)
            for (uuid, code), (said_ns, left) in self._logged.items()
            if left and at.mono_ns - said_ns >= LOG_INTERVAL_NS
        ]
        for uuid, code, _ in due:
            self._logged[uuid, code] = (at.mono_ns, 0)
        return due

    def forget(self, uuid: str) -> None:
        """Drop the record of a GPU that was taken out."""
        self._logged = {key: said for key, said in self._logged.items() if key[0] != uuid}


_KEPT: dict[int, Attrs] = {}


def _attrs(code: int) -> Attrs:
    attrs = _KEPT.get(code)
    if attrs is None:
        attrs = _KEPT[code] = (("xid", str(code)),)
    return attrs
