"""The holdings of a device: when they start and end, also across restarts."""

from collections import defaultdict
from fractions import Fraction
from typing import Any, Final

from tests.accounting.actions import (
    ContainerName,
    S,
    Sample,
)
from tests.accounting.counter import EnergyCounter
from tests.accounting.reference_types import (
    NO_CONTAINER,
    SLICES,
    HolderChange,
    Holders,
    Holding,
    SinceReading,
    Sum,
    UsageTotals,
)

SEEN_WITHIN: Final = 60 * S
"""How long after the first sample a container may be seen to continue after a restart."""
PAGE: Final = (
    "elapsed",
    "unheld",
    "unknown",
    "busy",
    "energy",
    "busy_unattributed",
    "energy_unattributed",
)


class DeviceHoldings:
    """The holders and users of a device, and when their holdings start and end."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.start: int | None = None
        self.at = 0
        self.elapsed = 0
        self.gap = 0
        self.interval_holders: set[ContainerName] = set()
        """Containers that held it in the interval that is counted now."""
        self.users: set[ContainerName] = set()
        """Containers with processes in the last sample."""
        self.sole_holder: ContainerName = NO_CONTAINER
        """The only holder in the interval, if there was exactly one."""
        self.ledger_gaps = 0
        self.gaps: list[tuple[int, int, str]] = []
        self.unheld, self.unknown = Sum(), Sum()
        self.busy, self.energy = Sum(), Sum()
        self.busy_unattributed, self.energy_unattributed = Sum(), Sum()
        self.busy_known = self.energy_known = False
        self.containers: dict[ContainerName, UsageTotals] = defaultdict(UsageTotals)
        self.counter = EnergyCounter()
        self.since = SinceReading()
        self.idle: Fraction | None = None
        self.hours: dict[int, dict[str, Sum]] = defaultdict(lambda: defaultdict(Sum))
        # Since the start of this run:
        self.changes: list[HolderChange] = []
        self.first: int | None = None
        self.expiry = 15 * S
        self.memory_good = 0
        self.away = self.restarted = self.written = False
        self.offset = 0
        self.boot = 0
        self.shift = 0
        self.before: dict[str, Any] = {}
        self.log: dict[int, int] = {}
        """The time since the start of the account, by the time of each sample."""

    # -- holders, as reported -------------------------------------------------------------------

    def rebase(self, started_at: int, offset: int) -> None:
        """Convert times after a reboot: only the wall clock shows how much time has passed.

        At least the time from the last sample to the last known change has passed.
        """
        self._shift(-self.shift)
        known = [one for usage in self.containers.values() for one in usage.holdings]
        known_until = [self.at, *(one.start if one.end is None else one.end for one in known)]
        passed = max(started_at + offset - self.at - self.offset, max(known_until) - self.at)
        self.shift = started_at - passed - self.at
        self._shift(self.shift)

    def _shift(self, by: int) -> None:
        self.at += by
        for usage in self.containers.values():
            usage.last_seen = (usage.last_seen[0] + by, *usage.last_seen[1:])
            for one in usage.holdings:
                one.start += by
                one.end = None if one.end is None else one.end + by

    def limit_times(self, now: int) -> None:
        """Limit all times of the account to the time at which it continues."""
        for usage in self.containers.values():
            for one in usage.holdings:
                one.start = min(one.start, now)
                if one.end is not None and one.end > now:
                    one.end = now

    def abandon(self) -> bool:
        """Restart the page and end all holdings, as the device wasn't found for too long.

        Returns:
            Whether there were holdings: then the account is written, with times of this boot.
        """
        had_holdings = False
        for usage in self.containers.values():
            last = usage.holdings[-1] if usage.holdings else None
            if last is not None and not last.final:
                last.end, last.final = max(usage.last_seen[0], last.start), True
                had_holdings = True
            usage.pending = False
        self.restarted = True
        return had_holdings

    def undecided(self, now: int, tick: int) -> bool:
        """Whether it isn't known yet, or only just, which holdings continue after a start."""
        return self.first is None or 0 <= now - self.first - SEEN_WITHIN <= tick

    def _restart(self) -> None:
        """Restart the totals of the page at the first sample; until then the file has the old."""
        self.restarted = False
        self.busy_known = self.energy_known = False
        self.before = {name: getattr(self, name) for name in PAGE}
        for name in PAGE:
            total = getattr(self, name)
            self.before[name] = total if isinstance(total, int) else Sum(total.value, total.slack)

    def on_page(self, name: str) -> Sum:
        """Return a total as shown on the page."""
        whole, before = getattr(self, name), self.before.get(name, 0)
        if isinstance(whole, int):
            return Sum(Fraction(whole - before))
        subtracted = before if isinstance(before, Sum) else Sum()
        return Sum(whole.value - subtracted.value, whole.slack)

    def restore(self) -> None:
        """Start a run of podgpu with the stored account: open holdings may continue."""
        self.away, self.restarted, self.written = True, False, False
        self.changes, self.first = [], None
        self.counter.clear()
        self.since = SinceReading()
        self.idle = None
        for usage in self.containers.values():
            usage.holds = usage.uses = False
            usage.memory = None
            last = usage.holdings[-1] if usage.holdings else None
            if last is not None and not last.final:
                if last.end is None and not usage.pending:
                    usage.last_seen = (self.at, self.elapsed, self.gap)
                usage.pending = last.end is None
            for one in usage.holdings[-4:]:
                if one.end is not None and not one.final:
                    one.gap += one.overlap(self.at, one.end)
                    one.final = True

    def set_holders(self, at: int, holders: Holders, listed: bool) -> None:
        """Set the holders from a time on."""
        self.changes.append(HolderChange(at, holders, listed))
        if self.first is not None:
            self._apply(at, holders)

    def _apply(self, at: int, holders: Holders) -> None:
        self.expire(at)
        for container, usage in self.containers.items():
            if usage.holds and container not in holders:
                usage.holds, usage.released_at = False, at
                if not usage.uses and usage.current is not None:
                    usage.current.end = at
        for container in holders:
            usage = self.containers[container]
            if not usage.holds:
                usage.holds = True
                self._ensure_holding(container, at)

    def _ensure_holding(self, container: ContainerName, at: int) -> Holding:
        """Return the current holding of a container that is present from a time on."""
        usage = self.containers[container]
        if usage.current is None:
            usage.appeared_at = at
        if usage.pending:
            usage.pending = False
            before, elapsed, gap = usage.last_seen
            holding = usage.holdings[-1]
            holding.counted += self.elapsed - elapsed
            holding.gap += self.gap - gap - max(holding.start - before, 0)
            return holding
        if usage.current is None:
            last = usage.holdings[-1] if usage.holdings else None
            if last is not None and not last.final and last.end is not None and last.end >= at:
                last.end = None  # it was never absent
                return last
            begin = at if last is None or last.end is None else max(at, last.end)
            usage.holdings.append(Holding(container, self.device, begin))
        assert usage.current is not None
        return usage.current

    def expire(self, at: int) -> None:
        """Let time pass: holdings not seen again after a start ended before it."""
        self.finalize_ended(at)
        if self.first is None or at <= self.first + SEEN_WITHIN:
            return
        for usage in self.containers.values():
            if usage.pending:
                usage.pending = False
                last = usage.holdings[-1]
                last.end, last.final = max(usage.last_seen[0], last.start), True

    def finalize_ended(self, at: int) -> None:
        """Finalize ended holdings if no sample was reported for three usage intervals."""
        for usage in self.containers.values():
            for holding in usage.holdings[-4:]:
                if holding.end is None or holding.final:
                    continue
                if at > holding.end + self.expiry and self.first is not None:
                    # That it has ended may be known only since the last sample.
                    holding.final, holding.late = True, max(holding.end + self.expiry, self.at)
                    holding.gap += holding.overlap(self.at, at)
                    if all(one.final for one in usage.holdings):
                        self._unattribute(holding.container)

    def _unattribute(self, container: ContainerName) -> None:
        """Make pending energy of its time unattributed."""
        self.since.held.pop(container, None)
        self.since.busy[NO_CONTAINER] += self.since.busy.pop(container, Fraction(0))

    def _update_holdings(self, sample: Sample, begin: int, over: int | None = None) -> None:
        """Update holdings from the processes of a sample; after a break, from the sample on."""
        sole_holder = self._sole_holder(sample.at, sample.at)
        running = {
            sole_holder if one.container is None else one.container
            for one in sample.processes
            if one.running
        }
        running.discard(NO_CONTAINER)
        ended = {
            one.container for one in sample.processes if one.container and not one.running
        } - running
        since = begin if over is None else over
        for container in sorted(running):
            self._ensure_holding(container, since)
            self.containers[container].uses = True
        for container in sorted(ended):
            if (
                over is None
                and not self.containers[container].holds
                and not self.containers[container].uses
            ):
                usage = self.containers[container]
                if usage.pending or (
                    usage.current is None
                    and not any(e.overlap(begin, sample.at) and not e.final for e in usage.holdings)
                ):
                    self._ensure_holding(container, since).end = sample.at
        for container, usage in self.containers.items():
            if usage.uses and container not in running:
                usage.uses = False
                if usage.holds:
                    continue
                current = usage.current
                if current is not None:
                    current.end = usage.released_at if usage.released_at > begin else sample.at

    def _sole_holder(self, begin: int, end: int) -> ContainerName:
        """Return the only container that held the device in a time; empty if there isn't one."""
        found = {
            container for change in self._changes_in(begin, end) for container in change.holders
        }
        return found.pop() if len(found) == 1 else NO_CONTAINER

    def _changes_in(self, begin: int, end: int) -> list[HolderChange]:
        """Return the changes of holders that are in effect in a time, or at a moment."""
        ends = [*(change.at for change in self.changes[1:]), max(end, begin) + 1]
        return [
            change
            for change, upto in zip(self.changes, ends, strict=True)
            if change.at <= end and upto > begin and (change.at < end or begin == end)
        ]

    def finalize_until(self, at: int) -> None:
        """Finalize holdings that ended by a sample, if their energy is known."""
        pending = self.since.spans if self.energy_pending else {}
        for usage in self.containers.values():
            for holding in usage.holdings[-4:]:
                if holding.end is not None and holding.end <= at and id(holding) not in pending:
                    holding.final = True

    @property
    def energy_pending(self) -> bool:
        """Whether energy is still to be split for time that has been counted."""
        return self.device in SLICES or self.counter.base is not None

    def _set_memory(self, sample: Sample, sole_holder: ContainerName) -> None:
        """Set the memory of containers; it is valid until the next sample."""
        self.memory_good = sample.at + sample.valid_for
        running = [one for one in sample.processes if one.running]
        nameless = [one for one in running if one.container is None]
        for container, usage in self.containers.items():
            usage.memory = None
            if usage.current is None or sample.used is None:
                continue
            own = [one.memory for one in running if one.container == container]
            if container == sole_holder and not sample.listed:
                own = [sample.used]
            elif container == sole_holder:
                own += [one.memory for one in nameless]
            elif not own and (nameless or not sample.listed):
                continue
            known = [one for one in own if one is not None]
            if len(known) < len(own):
                continue
            usage.memory = sum(known)
            current = usage.current
            current.peak = usage.memory if current.peak is None else max(current.peak, usage.memory)

    def _drop_zero(self, container: ContainerName) -> None:
        """Make a 0 from before unknown: it would look like the whole amount."""
        usage = self.containers[container]
        if usage.busy.value == 0:
            usage.busy_known = False
        if usage.energy.value == 0:
            usage.energy_known = False
        for holding in usage.holdings[-1:]:
            if holding.busy.value == 0:
                holding.busy_known = 0
