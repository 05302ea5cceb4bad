"""The account of a device: what each usage sample adds, and to which container."""

from collections import defaultdict
from fractions import Fraction
from itertools import pairwise
from typing import Final

from tests.accounting.actions import (
    HOUR,
    MS,
    ContainerName,
    Sample,
)
from tests.accounting.holdings import DeviceHoldings
from tests.accounting.reference_types import (
    NO_CONTAINER,
    SLICES,
    Holders,
    Holding,
    SinceReading,
    Sum,
    UsageTotals,
    WallClock,
    add_to_hours,
    shares,
)

LONGEST_GAP: Final = 400 * 24 * HOUR
"""A gap in the ledger's file is at most this long; a longer one is an error of the clock."""
SHORTEST: Final = 900 * MS
"""The shortest interval from which the idle draw is measured."""
MIG_GPUS: Final = ("g2",)
"""GPUs with MIG instances."""
ALL_SLICES: Final = 7


class Account(DeviceHoldings):
    """The account of one device.

    Attributes:
        instances: the accounts of its MIG instances.
    """

    def __init__(self, device: str) -> None:
        super().__init__(device)
        self.instances: list[Account] = []

    def add_sample(self, sample: Sample, wall_clock: WallClock) -> None:
        is_mig_gpu = sample.device in MIG_GPUS
        if self.start is None:
            self.start = self.at = sample.at
            self._add_first(sample)
        elif sample.since is None or self.first is None:
            self._add_break(sample, wall_clock, is_mig_gpu)
        else:
            self._add_interval(sample, wall_clock, is_mig_gpu)
        sole_holder = self._sole_holder(sample.at, sample.at)
        running = [one for one in sample.processes if one.running]
        self.users = {sole_holder if one.container is None else one.container for one in running}
        self.at, self.offset = sample.at, wall_clock.offset
        self.log[sample.at] = self.elapsed + self.ledger_gaps
        self._set_memory(sample, sole_holder)
        self.finalize_until(sample.at)

    def _add_first(self, sample: Sample) -> None:
        self.first = sample.at
        holders: Holders = {}
        later = [change for change in self.changes if change.at > sample.at]
        for change in self.changes:
            if change.at <= sample.at:
                holders = change.holders
        self._apply(sample.at, holders)
        for one in self.instances:
            one.since = SinceReading()
        self._update_holdings(sample, sample.at, over=sample.at)
        assert not later, "changes of holders come in order of time"
        if sample.energy is not None:
            self.counter.read(sample.at, sample.energy)

    def _add_break(self, sample: Sample, wall_clock: WallClock, is_mig_gpu: bool) -> None:
        before, down = self.at, self.first is None
        if not is_mig_gpu:
            self.gap += sample.at - before
            self.gaps.append(
                (max(before, sample.at - LONGEST_GAP), sample.at, "down" if down else "blind")
            )
            in_ledger = min(sample.at - before, LONGEST_GAP)
            self.ledger_gaps += in_ledger
            for hour, part in wall_clock.split_by_hour(sample.at - in_ledger, sample.at):
                self.hours[hour]["gap"].add(part)
        self.counter.clear()
        self.since = SinceReading()
        for one in self.instances:
            one.since = SinceReading()
        if down:
            if self.restarted:
                self._restart()
            self._add_first(sample)
            return
        pending = {container for container, usage in self.containers.items() if usage.pending}
        self._update_holdings(sample, before, over=sample.at)
        for container, usage in self.containers.items():
            for holding in usage.holdings[-3:]:
                if not holding.final and container not in pending:
                    holding.gap += holding.overlap(before, sample.at)
        if sample.energy is not None:
            self.counter.read(sample.at, sample.energy)

    def _add_interval(self, sample: Sample, wall_clock: WallClock, is_mig_gpu: bool) -> None:
        begin, end = self.at, sample.at
        took = end - begin
        previous_users = self.users
        self.interval_holders = {
            container for change in self._changes_in(begin, end) for container in change.holders
        }
        self.sole_holder = (
            next(iter(self.interval_holders)) if len(self.interval_holders) == 1 else NO_CONTAINER
        )
        self._update_holdings(sample, begin)
        increases: dict[str, Sum] = defaultdict(Sum)
        if not is_mig_gpu:
            self.elapsed += took
            self._add_held_time(begin, end)
            overlapping = [
                (usage, holding, holding.overlap(begin, end))
                for usage in self.containers.values()
                if not usage.pending
                for holding in usage.holdings[-4:]
                if not holding.final and holding.overlap(begin, end)
            ]
            for usage, holding, part in overlapping:
                holding.counted += part
                if usage.memory is not None and end <= self.memory_good:
                    holding.byte_ns += usage.memory * part
                    holding.memory_ns += part
            self._add_busy_time(sample, begin, overlapping, previous_users, increases)
            spans = wall_clock.split_by_hour(begin, end)
            for hour, part in spans:
                slack = len(self.containers) + 1 if len(spans) > 1 else 0
                self.hours[hour]["accounted"].add(part, slack)
        self.since.time += took
        if sample.energy is not None:
            begins = self.counter.base is None
            used = self.counter.read(sample.at, sample.energy)
            if begins:
                self.since = SinceReading()
                for one in self.instances:
                    one.since = SinceReading()
            elif used is not None and is_mig_gpu:
                self._split_among_instances(
                    end, used, increases, wall_clock.split_by_hour(begin, end)
                )
            elif used is not None:
                self._add_energy(used, increases)
        add_to_hours(
            self.hours, wall_clock.split_by_hour(begin, end), took, increases, len(self.containers)
        )

    def _add_held_time(self, begin: int, end: int) -> None:
        """Split the time where holders change, and add each part to its holders."""
        moments = [change.at for change in self.changes]
        for change, (start, stop) in zip(self.changes, pairwise([*moments, end]), strict=True):
            length = min(stop, end) - max(start, begin)
            if length <= 0:
                continue
            parts = shares(change.holders)
            rest = Fraction(length)
            uneven = False
            for container, part in parts.items():
                amount = part * length
                rest -= amount
                uneven |= amount.denominator != 1
                usage = self.containers[container]
                own = [
                    one
                    for one in usage.holdings
                    if one.overlap(max(start, begin), min(stop, end)) and not one.final
                ]
                slack = int(amount.denominator != 1)
                if not own:
                    self.unheld.add(amount, slack)
                    self.unknown.add(amount, slack)
                    continue
                usage.held.add(amount, slack)
                own[-1].held.add(amount, slack)
                self.since.held[container] += amount
            self.unheld.add(rest, int(uneven))
            if not change.listed:
                self.unknown.add(rest, int(uneven))
        self.changes = [
            change
            for at, change in enumerate(self.changes)
            if at + 1 == len(self.changes) or self.changes[at + 1].at > end
        ]

    def _add_busy_time(
        self,
        sample: Sample,
        begin: int,
        overlapping: list[tuple[UsageTotals, Holding, int]],
        previous_users: set[ContainerName],
        increases: dict[str, Sum],
    ) -> None:
        took, sole_holder = sample.at - begin, self.sole_holder
        present = {holding.container for _, holding, _ in overlapping}
        self.since.present |= present
        held = self.interval_holders
        for _, holding, part in overlapping:
            _, before = self.since.spans.get(id(holding), (holding, 0))
            self.since.spans[id(holding)] = (holding, before + part)
        if sample.busy is None:
            self.since.known = False
            if sample.mps:
                concealed = self._add_mps_busy_time(sample, held | previous_users, {})
                self.since.unknown |= concealed
                for container in concealed:
                    self._drop_zero(container)
            return
        parts: dict[ContainerName, Fraction] = defaultdict(Fraction)
        unknown: set[ContainerName] = set()
        if sample.device in SLICES:
            owners = {
                one.container for one in sample.processes if one.running or one.container is None
            } | previous_users
            if not owners:
                owners = {sole_holder}
            parts[owners.pop() or NO_CONTAINER if len(owners) == 1 else NO_CONTAINER] += sample.busy
        elif not sample.listed:
            parts[sole_holder] += sample.busy
            unknown = present - {sole_holder} if sole_holder else set(present)
        elif sample.mps:
            unknown = self._add_mps_busy_time(sample, held | previous_users, parts)
        else:
            for one in sample.processes:
                parts[sole_holder if one.container is None else one.container] += one.busy or 0
        total = sum(parts.values(), Fraction(0))
        scale = Fraction(took) / total if total > took else Fraction(1)
        self.busy_known = True
        if sample.mps:
            self.since.unknown |= unknown
        total_ = total * scale
        assert total_.denominator == 1
        self.busy.add(total_)
        increases["busy"].add(total_)
        able = present - unknown
        unattributed = (
            sum((part for container, part in parts.items() if container not in able), Fraction(0))
            * scale
        )
        self.busy_unattributed.add(unattributed)
        self.since.busy[NO_CONTAINER] += unattributed
        for container in unknown:
            self._drop_zero(container)
        for container in sorted(able):
            amount = parts[container] * scale
            usage = self.containers[container]
            usage.busy_known = True
            usage.busy.add(amount)
            self.since.busy[container] += amount
            own = [
                (holding, part)
                for _, holding, part in overlapping
                if holding.container == container
            ]
            total_time = sum(part for _, part in own)
            for holding, part in own:
                its_part = amount * part / total_time
                holding.busy.add(
                    its_part, int(its_part.denominator != 1 or amount.denominator != 1)
                )
                holding.busy_known += part

    def _add_mps_busy_time(
        self, sample: Sample, others: set[ContainerName], parts: dict[ContainerName, Fraction]
    ) -> set[ContainerName]:
        """Add busy times of an interval with an MPS server; return containers with unknown ones.

        `others` held the device in the interval, or had processes at its start.
        """
        total = Fraction(sample.busy or 0)
        owners = {one.container or NO_CONTAINER for one in sample.processes} | others
        if (
            len(owners) == 1
            and any(one.client for one in sample.processes)
            and owners != {NO_CONTAINER}
        ):
            parts[owners.pop()] = total
            return set()
        unknown = set()
        for container in (others | owners) - {NO_CONTAINER}:
            own = [one for one in sample.processes if one.container == container]
            if not own or any(one.busy is None for one in own):
                unknown.add(container)
            else:
                parts[container] = Fraction(sum(one.busy or 0 for one in own))
        parts[NO_CONTAINER] = total - sum(parts.values(), Fraction(0))
        return unknown

    def _add_energy(self, used: int, increases: dict[str, Sum]) -> None:
        """Split the increase of the energy counter."""
        since, self.since = self.since, SinceReading()
        if not since.time:
            return
        busy = sum(since.busy.values(), Fraction(0))
        time = self.counter.time
        if since.known and not busy and time >= SHORTEST:
            power = Fraction(used, time)
            self.idle = power if self.idle is None else min(self.idle, power)
        if not since.known or not busy:
            base, above = Fraction(used), Fraction(0)
        else:
            base = min(Fraction(used), (self.idle or Fraction(0)) * time)
            above = used - base
        self.split_energy(since, base, above, increases)

    def _split_among_instances(
        self, now: int, used: int, increases: dict[str, Sum], spans: list[tuple[int, int]]
    ) -> None:
        """Split a GPU's energy among its MIG instances; the rest stays with the GPU."""
        time, self.since = self.counter.time, SinceReading()
        since = {one.device: one.since for one in self.instances}
        weights = {
            name: sum(each.busy.values(), Fraction(0)) * SLICES[name]
            for name, each in since.items()
        }
        total_ = sum(weights.values(), Fraction(0))
        known = all(each.known for each in since.values())
        if known and not total_ and time >= SHORTEST:
            power = Fraction(used, time)
            self.idle = power if self.idle is None else min(self.idle, power)
        if not known or not total_:
            base, above = Fraction(used), Fraction(0)
        else:
            base = min(Fraction(used), (self.idle or Fraction(0)) * time)
            above = used - base
        rest = Fraction(used)
        for one in self.instances:
            idle = base * SLICES[one.device] / ALL_SLICES
            more = above * weights[one.device] / total_ if total_ else Fraction(0)
            rest -= idle + more
            gained: dict[str, Sum] = defaultdict(Sum)
            one.split_energy(since[one.device], idle, more, gained)
            one.since = SinceReading()
            add_to_hours(
                one.hours, spans, sum(part for _, part in spans), gained, len(one.containers)
            )
            one.finalize_until(now)
        self.energy_known = True
        self.energy.add(rest, 3)
        self.energy_unattributed.add(rest, 3)
        increases["energy"].add(rest, 3)

    def split_energy(
        self, since: SinceReading, base: Fraction, above: Fraction, increases: dict[str, Sum]
    ) -> None:
        """Split energy: `base` by held time, `above` by busy time."""
        busy = sum(since.busy.values(), Fraction(0))
        used = base + above
        parts: dict[ContainerName, Fraction] = defaultdict(Fraction)
        for container, held in since.held.items():
            parts[container] += base * held / since.time
        if above:
            for container, part in since.busy.items():
                parts[container] += above * part / busy
        even = used.denominator == 1
        whole = {container for container, part in parts.items() if part} - {NO_CONTAINER}
        one = not whole or (
            len(whole) == 1 and sum(parts[container] for container in whole) == used
        )
        slack = 0 if one and even else 3
        self.energy_known = True
        self.energy.add(used, 2 * int(not even))
        increases["energy"].add(used, 2 * int(not even))
        rest = used
        for container in sorted(since.present - since.unknown):
            amount = parts[container]
            usage = self.containers[container]
            own = [
                each
                for each in since.spans.values()
                if each[0].container == container and not each[0].final
            ]
            if not own:
                continue  # a final holding does not change
            rest -= amount
            usage.energy_known = True
            usage.energy.add(amount, slack)
            spent = sum(time for _, time in own)
            for holding, time in own:
                holding.energy_known = True
                holding.energy.add(amount * time / spent, slack + int(len(own) > 1))
        self.energy_unattributed.add(rest, slack * max(len(since.present), 1))
