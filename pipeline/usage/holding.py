"""The account of one holding: a container's time on a device, and what it used in it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pipeline.model import Evidence, Holding, Instant, PartialRef, PodInfo
from pipeline.usage.apportionment import apportion
from pipeline.usage.contest import UNCONTESTED, Contest, known_contest
from pipeline.usage.energy_meter import MIN_INTERVAL_NS

MAX_XID_CODES: Final = 64
"""How many XID codes are counted per container and per holding. Further codes are not counted."""

_WHOLE_PPM: Final = 1_000_000


@dataclass(slots=True, eq=False)
class HoldingAccount:
    """Adds up the usage of one holding; see `Holding` for the amounts.

    Attributes:
        start: when the holding began.
        id: identifies the holding.
        source: name of the source whose claim is valid; empty if the container only uses the
            device.
        evidence: what the claim is based on.
        end: when the holding ended; None if it has not ended.
        until_ns: a moment of the monotonic clock. The holding's time up to this moment is in
            `counted_ns` or `gap_ns`.
        elapsed_ns: the counted time of the device at `until_ns`, once a sample has counted time of
            the holding; the same for all holdings at one moment.
        memory_bytes: memory at the last sample while that is valid; None if unknown.
        peak_ppm: largest busy part of an interval of `MIN_INTERVAL_NS` or more, in millionths.
        concealed: whether MPS concealed usage in it; see `ContainerAccount`.
        contest: how uncertain `busy_ns` is; None if it is unknown for a part.
        unseen_counted_ns: see `Holding`.
        unseen_gap_ns: see `Holding`.
        restored: whether the holding was stored before podgpu started.
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
    contest: Contest | None = UNCONTESTED
    unseen_counted_ns: int = 0
    unseen_gap_ns: int = 0
    restored: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether it has no time and no usage, and was not restored. It need not be reported."""
        if self.restored:
            return False  # the ledger has it and needs its end
        no_time = self.end is not None and self.end.mono_ns == self.start.mono_ns
        return no_time and not (self.busy_ns or self.energy_mj or self.xids)

    @property
    def seen_ns(self) -> int:
        """Up to when the container is known to have been present, by the monotonic clock."""
        return self.until_ns - self.unseen_counted_ns - self.unseen_gap_ns

    def covers(self, moment_ns: int) -> bool:
        """Whether a moment is in the holding, from its start to before its end."""
        begun = self.start.mono_ns <= moment_ns
        return begun and (self.end is None or moment_ns < self.end.mono_ns)

    def advance(self, since_ns: int | None, at_ns: int, elapsed_ns: int, *, adjoins: bool) -> int:
        """Advance the holding to a sample.

        Args:
            since_ns: the start of the time that the sample counts; None if it counts no time.
            at_ns: when the sample was taken.
            elapsed_ns: the counted time of the device before the sample.
            adjoins: whether the counted time begins at the previous sample. Then the memory of
                that sample is valid for it.

        Returns:
            How much time of the holding was counted.
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
        """Advance the holding of a container that was not seen since podgpu started.

        Args:
            since_ns: see `advance`.
            at_ns: see `advance`.
            elapsed_ns: see `advance`.
        """
        gap_ns = self.gap_ns
        self.unseen_counted_ns += self.advance(since_ns, at_ns, elapsed_ns, adjoins=False)
        self.unseen_gap_ns += self.gap_ns - gap_ns

    def mark_seen(self) -> None:
        """Record that the container is present, so that the time until now belongs to it."""
        self.unseen_counted_ns = self.unseen_gap_ns = 0

    def rewind_to_last_seen(self, seen_ns: int | None = None) -> Instant:
        """Remove the time since the container was last seen; return when that was.

        Args:
            seen_ns: when it was last seen, if that was after podgpu started.
        """
        back_ns = max(self.until_ns - (self.seen_ns if seen_ns is None else seen_ns), 0)
        # Before the first sample there is only gap, so the counted time is the latest.
        counted_ns = min(self.unseen_counted_ns, back_ns)
        self.counted_ns -= counted_ns
        self.gap_ns -= back_ns - counted_ns
        self.until_ns -= back_ns
        self.elapsed_ns -= counted_ns
        self.mark_seen()
        start = self.start
        return Instant(self.until_ns, start.wall_ns + self.until_ns - start.mono_ns)

    def set_memory(self, found: int | None) -> None:
        """Record the memory at a sample; None if it is unknown."""
        self.memory_bytes = found
        if found is not None:
            self.memory_peak_bytes = max(found, self.memory_peak_bytes or 0)

    def add_busy(self, part_ns: int, time_ns: int) -> None:
        """Add busy time that was measured over `time_ns` nanoseconds of counted time."""
        self.busy_ns = (self.busy_ns or 0) + part_ns
        self.busy_time_ns += time_ns
        if time_ns >= MIN_INTERVAL_NS:
            self.peak_ppm = max(self.peak_ppm or 0, _part(part_ns, time_ns))

    def mark_concealed(self) -> None:
        """Mark usage as concealed: unknown from now on, and unknown so far where it is 0."""
        self.concealed = True
        self.energy_mj = self.energy_mj or None
        if not self.busy_ns:
            self.busy_ns, self.busy_time_ns, self.peak_ppm = None, 0, None

    def close_gap(self) -> None:
        """Count as a gap the time between the last counted moment and the end of the holding."""
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
        """Return the holding as it is now.

        Args:
            device: uuid.
            subject: the container.
            pod: what is known of its pod.
            at_ns: the last sample of the device; if the holding has not ended, its time up to then
                is counted or a gap.
            unseen: whether the container was not seen since podgpu started.
        """
        contested_ns, switching_ns = known_contest(self.busy_ns, self.contest)
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
            tuple(sorted(self.xids.items())),
            id=self.id,
            unseen_counted_ns=self.unseen_counted_ns,
            unseen_gap_ns=self.unseen_gap_ns + (max(at_ns - self.until_ns, 0) if unseen else 0),
            contested_ns=contested_ns,
            switching_ns=switching_ns,
        )

    def _busy_peak(self) -> int | None:
        # A short interval may contain a whole sampling period of the driver or none. If all
        # intervals are short, the mean over all of them is the best estimate.
        if self.busy_ns is None or not self.busy_time_ns:
            return self.peak_ppm
        return max(self.peak_ppm or 0, _part(self.busy_ns, self.busy_time_ns))


def split_among_holdings(
    part: int, holdings: list[HoldingAccount], times: Mapping[HoldingAccount, int]
) -> list[tuple[HoldingAccount, int]]:
    """Split an amount of a container in an interval among its holdings, by their time in it.

    Args:
        part: the amount.
        holdings: one or more. If none has time in the interval, the last one gets everything.
        times: the time in the interval of the holdings that have any.
    """
    mine = [one for one in holdings if times.get(one)] or holdings[-1:]
    if len(mine) == 1:
        return [(mine[0], part)]
    return list(zip(mine, apportion(part, [times[one] for one in mine]), strict=True))


def count_xid(xids: dict[int, int], code: int, number: int = 1) -> None:
    """Count XID errors, unless their code is new and `MAX_XID_CODES` codes are counted."""
    if code in xids or len(xids) < MAX_XID_CODES:
        xids[code] = xids.get(code, 0) + number


def _part(busy_ns: int, time_ns: int) -> int:
    return min(busy_ns * _WHOLE_PPM // time_ns, _WHOLE_PPM)
