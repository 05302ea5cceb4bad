"""What a container has of a device from when it holds or uses it until it does neither."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pipeline.model import Evidence, Holding, Instant, PartialRef, PodInfo
from pipeline.usage.apportionment import apportion
from pipeline.usage.energy_meter import MIN_INTERVAL_NS

MAX_XID_CODES: Final = 64
"""How many codes of XID errors are counted of one container; those that come later are left out."""

_WHOLE_PPM: Final = 1_000_000


@dataclass(slots=True, eq=False)
class HoldingAccount:
    """Adds up what one holding has, as `Holding` tells it.

    Attributes:
        start: when it began.
        id: identifies it.
        source: by whose word it holds the device; empty where none says so.
        evidence: what that word rests on.
        end: when it ended; None while it goes on.
        until_ns: up to when its time has been told apart in what was counted and what wasn't, by
            the monotonic clock.
        elapsed_ns: how much time of the device had been counted by then, once a look has passed
            any of it: the same for all holdings at a moment.
        memory_bytes: what the last look showed, while that stands; None where it isn't known.
        peak_ppm: the largest part of an interval that is long enough to tell.
        concealed: as of `Entry`.
        unseen_counted_ns: as of `Holding`; `unseen_gap_ns` too.
        restored: it was told of before podgpu began.
    """

    start: Instant
    id: str
    source: str = ""
    evidence: Evidence | None = None
    end: Instant | None = None
    until_ns: int = 0
    elapsed_ns: int = 0
    counted_ns: int = 0
    gap_ns: int = 0
    held_ns: int = 0
    busy_ns: int | None = None
    energy_mj: int | None = None
    memory_bytes: int | None = None
    memory_peak_bytes: int | None = None
    memory_byte_ns: int = 0
    memory_ns: int = 0
    busy_time_ns: int = 0
    peak_ppm: int | None = None
    xids: dict[int, int] = field(default_factory=dict)
    concealed: bool = False
    unseen_counted_ns: int = 0
    unseen_gap_ns: int = 0
    restored: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether it ended when it began, and nothing is in it: there is nothing to be told of."""
        if self.restored:
            return False  # whoever keeps it has to hear of its end
        no_time = self.end is not None and self.end.mono_ns == self.start.mono_ns
        return no_time and not (self.busy_ns or self.energy_mj or self.xids)

    @property
    def seen_ns(self) -> int:
        """Up to when its container is known to have been there, as far as its time has passed."""
        return self.until_ns - self.unseen_counted_ns - self.unseen_gap_ns

    def covers(self, moment_ns: int) -> bool:
        """Whether it goes on at a moment: from its start to before its end."""
        begun = self.start.mono_ns <= moment_ns
        return begun and (self.end is None or moment_ns < self.end.mono_ns)

    def advance(self, since_ns: int | None, at_ns: int, elapsed_ns: int, *, adjoins: bool) -> int:
        """Let time go on to a look.

        Args:
            since_ns: from when on time counts; None where none does.
            at_ns: when the look was taken.
            elapsed_ns: how much time of the device had been counted before it.
            adjoins: what counts begins at the look before, so that what that showed still stands.

        Returns:
            How much of its time was counted.
        """
        end_ns = at_ns if self.end is None else min(at_ns, self.end.mono_ns)
        if end_ns <= self.until_ns:
            return 0
        since_ns = end_ns if since_ns is None else min(since_ns, end_ns)
        begin_ns = max(since_ns, self.until_ns)
        counted_ns = end_ns - begin_ns
        self.gap_ns += begin_ns - self.until_ns
        self.counted_ns += counted_ns
        self.until_ns, self.elapsed_ns = end_ns, elapsed_ns + end_ns - since_ns
        if adjoins and self.memory_bytes is not None:
            self.memory_byte_ns += self.memory_bytes * counted_ns
            self.memory_ns += counted_ns
        return counted_ns

    def advance_unseen(self, since_ns: int | None, at_ns: int, elapsed_ns: int) -> None:
        """Let time go on to a look for a container that nobody has seen since a start.

        Args:
            since_ns: as of `advance`.
            at_ns: likewise.
            elapsed_ns: likewise.
        """
        gap_ns = self.gap_ns
        self.unseen_counted_ns += self.advance(since_ns, at_ns, elapsed_ns, adjoins=False)
        self.unseen_gap_ns += self.gap_ns - gap_ns

    def mark_seen(self) -> None:
        """Note that its container is there: the time until now is its own."""
        self.unseen_counted_ns = self.unseen_gap_ns = 0

    def rewind_to_last_seen(self, seen_ns: int | None = None) -> Instant:
        """Take back what has passed since its container was last there; return when that was.

        Args:
            seen_ns: when that was, if it has been there since podgpu began.
        """
        back_ns = max(self.until_ns - (self.seen_ns if seen_ns is None else seen_ns), 0)
        # No look at all lies before the first one: what is a gap comes before what was counted.
        counted_ns = min(self.unseen_counted_ns, back_ns)
        self.counted_ns -= counted_ns
        self.gap_ns -= back_ns - counted_ns
        self.until_ns -= back_ns
        self.elapsed_ns -= counted_ns
        self.mark_seen()
        start = self.start
        return Instant(self.until_ns, start.wall_ns + self.until_ns - start.mono_ns)

    def set_memory(self, found: int | None) -> None:
        """Note how much memory it has at a look; None where that isn't known."""
        self.memory_bytes = found
        if found is not None:
            self.memory_peak_bytes = max(found, self.memory_peak_bytes or 0)

    def add_busy(self, part_ns: int, time_ns: int) -> None:
        """Take in its busy time in so much of its time, which was all counted."""
        self.busy_ns = (self.busy_ns or 0) + part_ns
        self.busy_time_ns += time_ns
        if time_ns >= MIN_INTERVAL_NS:
            self.peak_ppm = max(self.peak_ppm or 0, _part(part_ns, time_ns))

    def mark_concealed(self) -> None:
        """Let what it does now be unknown, and what it did so far too where that was nothing."""
        self.concealed = True
        self.energy_mj = self.energy_mj or None
        if not self.busy_ns:
            self.busy_ns, self.busy_time_ns, self.peak_ppm = None, 0, None

    def add_energy(self, part_mj: int) -> None:
        """Take in its energy, in millijoules."""
        self.energy_mj = (self.energy_mj or 0) + part_mj

    def close_gap(self) -> None:
        """Let what nobody has counted of its time, up to its end, be a gap: no look is to come."""
        if self.end is not None:
            self.gap_ns += max(self.end.mono_ns - self.until_ns, 0)
            self.until_ns = max(self.end.mono_ns, self.until_ns)

    def to_holding(
        self,
        device: str,
        subject: PartialRef,
        pod: PodInfo | None,
        at_ns: int,
        *,
        unseen: bool = False,
    ) -> Holding:
        """Return it as it is.

        Args:
            device: uuid.
            subject: the container.
            pod: what is known of its pod.
            at_ns: when the device was last looked at: up to then its time is counted or a gap.
            unseen: its container hasn't been seen since podgpu began.
        """
        return Holding(
            device,
            subject,
            pod,
            self.source,
            self.evidence,
            self.start,
            self.end,
            self.counted_ns,
            self.gap_ns if self.end else self.gap_ns + max(at_ns - self.until_ns, 0),
            self.held_ns,
            self.busy_ns,
            self.energy_mj,
            self.memory_peak_bytes,
            self.memory_byte_ns,
            self.memory_ns,
            self.busy_time_ns,
            self._busy_peak(),
            sorted_xids(self.xids),
            id=self.id,
            unseen_counted_ns=self.unseen_counted_ns,
            unseen_gap_ns=self.unseen_gap_ns + (max(at_ns - self.until_ns, 0) if unseen else 0),
        )

    def _busy_peak(self) -> int | None:
        # A short interval may hold the whole of one of the driver's looks, or none of it. Where
        # there was no other, all of them together tell the best that is known.
        if self.busy_ns is None or not self.busy_time_ns:
            return self.peak_ppm
        return max(self.peak_ppm or 0, _part(self.busy_ns, self.busy_time_ns))


def start_holding(start: Instant, own_id: str) -> HoldingAccount:
    """Return a holding that begins."""
    return HoldingAccount(start, own_id, until_ns=start.mono_ns)


def split_among_holdings(
    part: int, holdings: list[HoldingAccount], times: Mapping[HoldingAccount, int]
) -> list[tuple[HoldingAccount, int]]:
    """Split what a container had in an interval among its holdings in it, by their times.

    Args:
        part: of whatever.
        holdings: one or more. If none had any of the interval, the last of them has it all.
        times: how much of the interval each had, where it had any.
    """
    mine = [one for one in holdings if times.get(one)] or holdings[-1:]
    if len(mine) == 1:
        return [(mine[0], part)]
    return list(zip(mine, apportion(part, [times[one] for one in mine]), strict=True))


def count_xid(xids: dict[int, int], code: int) -> None:
    """Count an XID error, if there is room for its code."""
    if code in xids or len(xids) < MAX_XID_CODES:
        xids[code] = xids.get(code, 0) + 1


def sorted_xids(xids: Mapping[int, int]) -> tuple[tuple[int, int], ...]:
    """Return codes and counts of XID errors, sorted by code."""
    return tuple(sorted(xids.items())) if xids else ()


def _part(busy_ns: int, time_ns: int) -> int:
    return min(busy_ns * _WHOLE_PPM // time_ns, _WHOLE_PPM)
