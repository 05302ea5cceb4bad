"""The usage account of one container on one device."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from pipeline.model import ContainerUsage, Instant, PartialRef, PodInfo
from pipeline.usage.contest import UNCONTESTED, Contest, known_contest
from pipeline.usage.holding import HoldingAccount, count_xid
from pipeline.usage.interval_samples import ContainerName

Ids: TypeAlias = Callable[[], str]
"""Returns a new id for an account, a container or a holding."""


@dataclass(slots=True, eq=False)
class ContainerAccount:
    """The usage of one container on one device; see `ContainerUsage`.

    Attributes:
        name: the container.
        ids: generates the ids of its holdings.
        id: identifies this account.
        has_processes: whether the container has processes on the device, by the last sample. If
            that sample could not list processes: by an earlier one that is still valid.
        used_from_ns: since when it has or had these processes, by the monotonic clock: the start of
            the interval that first showed them. None if no interval did.
        used_to_ns: the last sample whose interval showed them, or the first one that no longer
            showed them; None if there is none.
        unseen: whether the container was present when podgpu last ran and was not seen since.
        running: the holding that has not ended; None if there is none.
        ending: holdings that have ended and are not final yet.
        last_finalized: the latest end of a final holding; None if there is none.
        concealed: whether MPS concealed usage of the container. Then an unknown amount is not 0.
        recent_busy_ppm: see `ContainerUsage`.
        window_busy_ns: busy time since `recent_busy_ppm` was set; None if it is unknown.
        absorbed: ids of accounts and holdings that were merged into this account.
        contest: how uncertain `busy_ns` is; None if it is unknown for a part.
    """

    name: ContainerName
    subject: PartialRef
    pod: PodInfo | None
    start: Instant
    ids: Ids
    id: str
    ended: Instant | None = None
    has_processes: bool = False
    memory_bytes: int | None = None
    busy_ns: int | None = None
    held_ns: int = 0
    energy_mj: int | None = None
    xids: dict[int, int] = field(default_factory=dict)
    used_from_ns: int | None = None
    used_to_ns: int | None = None
    unseen: bool = False
    running: HoldingAccount | None = None
    ending: list[HoldingAccount] = field(default_factory=list)
    last_finalized: Instant | None = None
    concealed: bool = False
    recent_busy_ppm: int | None = None
    window_busy_ns: int | None = 0
    absorbed: tuple[str, ...] = ()
    contest: Contest | None = UNCONTESTED

    @property
    def has_full_identity(self) -> bool:
        """Whether the pod's name and uid are both known."""
        return bool(self.name[1] and self.name[3])

    def start_holding(self, start: Instant) -> HoldingAccount:
        """Return the running holding; if there is none, start one.

        A holding that ended at `start` or later and is not final continues instead. A new holding
        starts at `start`, or at the end of the last final holding if that is later.
        """
        running = self.running
        if running is not None and self.unseen:
            running.mark_seen()
        self.ended, self.unseen = None, False
        if running is None:
            last = self.ending[-1].end if self.ending else None
            if last is not None and last.mono_ns >= start.mono_ns:
                running = self.ending.pop()
                running.end = None
            else:
                start = max(start, self.last_finalized or start)
                running = HoldingAccount(start, self.ids(), until_ns=start.mono_ns)
            self.running = running
        return running

    def move_start_back(self, start: Instant) -> None:
        """Move the start of the running holding back, but not before the last final holding.

        No time of the running holding may be counted yet.
        """
        if self.running is not None:
            start = max(start, self.last_finalized or start)
            self.running.start, self.running.until_ns = start, start.mono_ns
            self.start = min(self.start, start)

    def add_earlier_holding(self, start: Instant, end: Instant) -> None:
        """Add a holding that ended before the running one began."""
        running, self.running = self.running, None
        self.start_holding(start)
        self.end(end)
        self.start = min(self.start, start)
        self.running, self.ended = running, None

    def end(self, moment: Instant) -> None:
        """End the container and its running holding at a moment, or at the start if it is later."""
        self.ended = max(moment, self.start)
        self.memory_bytes, self.recent_busy_ppm, self.unseen = None, None, False
        running = self.running
        if running is not None:
            running.end = max(moment, running.start)
            self.ending.append(running)
            self.running = None

    def end_at_last_seen(self, moment: Instant) -> None:
        """End the container at the moment when it was last seen, before podgpu started.

        Args:
            moment: the end if the container has no running holding.
        """
        self.end(moment if self.running is None else self.running.rewind_to_last_seen())

    def mark_concealed(self) -> None:
        """Mark usage as concealed: unknown from now on, and unknown so far where it is 0."""
        self.concealed = True
        self.busy_ns, self.energy_mj = self.busy_ns or None, self.energy_mj or None
        for one in self.open_holdings():
            one.mark_concealed()

    def open_holdings(self) -> list[HoldingAccount]:
        """Return the holdings that are not final, the latest last."""
        running = self.running
        if running is None:
            return self.ending
        return [*self.ending, running] if self.ending else [running]

    def count_xid(self, code: int, moment_ns: int) -> None:
        """Count an XID error of the container, and of its holding at that moment if not final."""
        count_xid(self.xids, code)
        for one in reversed(self.open_holdings()):
            end = one.end
            if one.start.mono_ns <= moment_ns and (end is None or moment_ns <= end.mono_ns):
                count_xid(one.xids, code)
                break

    def holding_at(self, moment_ns: int) -> HoldingAccount | None:
        """Return the holding at a moment; None if there is none, or if it is final."""
        return next((one for one in self.open_holdings() if one.covers(moment_ns)), None)

    def used_at(self, moment_ns: int) -> bool:
        """Whether the container had processes on the device at a moment, according to samples."""
        begin, end = self.used_from_ns, self.used_to_ns
        if begin is None or moment_ns < begin:
            return False
        return self.has_processes or (end is not None and moment_ns <= end)

    def usage(self, device: str, at_ns: int) -> ContainerUsage:
        """Return the current usage.

        Args:
            device: uuid.
            at_ns: when the last sample was taken.
        """
        running = self.running
        return ContainerUsage(
            self.subject,
            self.pod,
            self.start,
            self.ended,
            self.memory_bytes,
            self.busy_ns,
            self.held_ns,
            self.energy_mj,
            tuple(sorted(self.xids.items())),
            running.to_holding(device, self.subject, self.pod, at_ns, unseen=self.unseen)
            if running
            else None,
            self.id,
            self.absorbed,
            tuple([one.to_holding(device, self.subject, self.pod, at_ns) for one in self.ending]),
            self.recent_busy_ppm,
            *known_contest(self.busy_ns, self.contest),
        )
