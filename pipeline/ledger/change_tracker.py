"""Calculation of what to write to the ledger, from snapshots. Pure.

The accumulator keeps the last state of each account. A snapshot that is skipped loses nothing,
because the totals of the next one include its gains.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from secrets import token_hex
from typing import Final

from pipeline.ledger.schema import HOUR_NS
from pipeline.ledger.usage_delta import Amounts, UsageDelta, usage_delta
from pipeline.ledger.write_batch import Batch, HoldingRow
from pipeline.model import (
    NS,
    Attribution,
    ContainerUsage,
    DeviceUsage,
    Holding,
    Instant,
    Layout,
    PartialRef,
    PodInfo,
    Snapshot,
)
from pipeline.model.ledger_usage import Gap

_SLEWED_NS: Final = 20_000_000
"""Shorter gaps after a restart are ignored: wall and monotonic clock diverge slightly."""

_ORPHANED_NS: Final = 600 * NS
"""Nanoseconds after its last report at which a holding counts as ended."""

_ADJOIN_NS: Final = 1_000_000

MOST_HOURS: Final = 400 * 24
"""Maximum number of hours of an interval. A longer interval means that a clock was wrong, and
writing years of hours would block everything else."""

_MAX_GAP_NS: Final = MOST_HOURS * HOUR_NS
"""Maximum length of a recorded gap."""

NO_AMOUNTS: Final[Mapping[PartialRef | None, Amounts]] = {None: Amounts(0, None, None)}


def split_by_hour(
    end_ns: int, time_ns: int, amounts: Sequence[int]
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield the part of each amount for each hour, the earliest hour first.

    Each amount is split in proportion to time. Parts are rounded down and the last hour gets the
    rest, so no part is negative and the parts sum to the amount. An interval that ends on the hour
    belongs to the hour before. An interval of length 0 belongs to the hour of its end; exactly on
    the hour, to the hour before. Time before the last `MOST_HOURS` counts in the first of these
    hours.

    Args:
        end_ns: end of the interval, in nanoseconds of Unix time.
        time_ns: length of the interval in nanoseconds, 0 or more.
        amounts: the amounts, each 0 or more.

    Yields:
        The number of hours since the Unix epoch, and one part for each amount.
    """
    last = (end_ns - 1) // HOUR_NS
    start_ns = end_ns - time_ns
    first = max(min(start_ns // HOUR_NS, last), last - MOST_HOURS)
    before = [0] * len(amounts)
    for hour in range(first, last):
        passed = (hour + 1) * HOUR_NS - start_ns
        until = [amount * passed // time_ns for amount in amounts]
        yield hour, tuple([now - then for now, then in zip(until, before, strict=True)])
        before = until
    yield last, tuple([amount - then for amount, then in zip(amounts, before, strict=True)])


class LedgerAccumulator:
    """Keeps the last state of all accounts, and collects their gains since the last batch.

    Which part of an account is counted:

    - An account that continues the stored or last seen one: its gain.
    - An account that began after the previous account of the device ended: all of it. The time
      between the two is a gap.
    - An account that began before the stored one ended, as of a second podgpu that waited for the
      file: its gain from now on, because the other podgpu has written that time.
    - An account of a device that the file does not contain and that began before `started`: its
      gain from now on, without holdings that ended before `started`.

    Args:
        started: a moment before all accounts of this process.
        accounts: the accounts in the file, converted to the current monotonic clock.
        open_holdings: ids of the holdings in the file that have not ended.
        unsampled: devices of the file without a sample since podgpu started. A gap before their
            first sample has the reason `down`. Default: all devices of `accounts`. The set is
            changed in place, so that a later accumulator of this process continues with it.
        shifted: devices whose account has other moments than in the file. Their accounts are
            written immediately, so that a later start uses the same moments for all devices.
        is_sample: whether the accounts in the file are sample data. Then the time until the first
            sample of a device is no gap: podgpu was not down, because it did not run before.

    Attributes:
        inconsistent: number of accounts with totals that decreased. A gap was recorded instead.
        missed_holdings: number of holdings that ended and were evicted before a snapshot showed
            them.
    """

    def __init__(
        self,
        started: Instant,
        accounts: Mapping[str, DeviceUsage],
        open_holdings: Iterable[str] = (),
        unsampled: set[str] | None = None,
        shifted: Iterable[str] = (),
        *,
        is_sample: bool = False,
    ) -> None:
        self.inconsistent = 0
        self.missed_holdings = 0
        self._started = started
        self._accounts = dict(accounts)
        self._stored_devices = frozenset(accounts)
        self._least_gap_ns = _MAX_GAP_NS if is_sample else _SLEWED_NS
        self._unsampled = set(accounts) if unsampled is None else unsampled
        self._open_holdings: dict[str, int | None] = dict.fromkeys(open_holdings)
        self._pods: dict[PartialRef, PodInfo] = {}
        self._gaps: dict[str, tuple[str, Gap, int]] = {}
        self._now = started
        self._layout: Layout | None = None
        self._mig_gpus: frozenset[str] = frozenset()
        self._usage: object = None
        self._serial = 0
        self._batch = Batch(states={uuid: self._accounts[uuid] for uuid in shifted})

    @property
    def has_pending(self) -> bool:
        """Whether there is anything to write."""
        return bool(self._batch)

    def take_batch(self) -> Batch:
        """Return the collected data, and start a new batch."""
        batch, self._batch = self._batch, Batch()
        return batch

    def rewrite_all(self) -> None:
        """Add everything that is known to the batch, because the file may lack it."""
        self._batch.states.update(self._accounts)
        self._batch.pods.update(self._pods)
        if self._layout is not None:
            for known in _absent_first(self._layout):
                self._batch.devices[known.device.uuid] = known.device
        for device in self._accounts.values():
            for one in device.containers:
                self._put_all(one, device.at)

    def add_snapshot(self, snapshot: Snapshot) -> None:
        """Collect what changed in a snapshot's usage; nothing if the usage is the same object."""
        usage = snapshot.usage
        if usage is None or usage is self._usage:
            return
        self._usage = usage
        self._now = snapshot.at
        self._update_layout(snapshot.layout)
        subjects: set[PartialRef] = set()
        running: set[str] = set()
        # Ended holdings first: after a restart they must not end a second time.
        ended = usage.ended_after(self._serial)
        if ended and self._serial:
            self.missed_holdings += ended[0].serial - self._serial - 1
        for holding in ended:
            self._add_ended(holding, usage.devices)
        for uuid, now in usage.devices.items():
            subjects.update([one.subject for one in now.containers])
            running.update([each.id for one in now.containers for each in _open_holdings_of(one)])
            before = self._accounts.get(uuid)
            if before is not now:
                self._add_account(before, now)
        if usage.ended:
            self._serial = max(self._serial, usage.ended[-1].serial)
        self._find_orphans(running, snapshot.at.mono_ns)
        for gone in self._pods.keys() - subjects:
            del self._pods[gone]
        self._batch.enforce_limits()

    def _update_layout(self, layout: Layout) -> None:
        if layout is self._layout:
            return
        before = self._layout.attributions if self._layout is not None else {}
        self._layout = layout
        devices = [known.device for known in _absent_first(layout)]
        self._mig_gpus = frozenset([one.gpu_uuid for one in devices if one.mig is not None])
        for one in devices:
            if one.uuid not in before or before[one.uuid].device != one:
                self._batch.devices[one.uuid] = one

    def _add_account(self, before: DeviceUsage | None, now: DeviceUsage) -> None:
        uuid, batch = now.device, self._batch
        delta = self._delta(before, now)
        self._add_to_hours(uuid, now.at, delta)
        if delta.time_ns or delta.gap_ns:
            self._unsampled.discard(uuid)
        for one in now.containers:
            self._add_pod(one.subject, one.pod)
            for key in one.absorbed:
                if key in self._open_holdings or key in batch.holdings:
                    # It was recorded separately while a part of the container's name was missing.
                    self._open_holdings.pop(key, None)
                    batch.holdings.pop(key, None)
                    batch.dropped.add(key)
            self._put_all(one, now.at)
        self._accounts[uuid] = batch.states[uuid] = now

    def _delta(self, before: DeviceUsage | None, now: DeviceUsage) -> UsageDelta:
        has_instances = now.device in self._mig_gpus
        since = now.start if before is None else before.at
        base, is_counted = before, True
        if before is None:
            is_counted = now.start.mono_ns >= self._started.mono_ns
        elif before.id != now.id:
            base, is_counted = None, now.start.mono_ns >= before.at.mono_ns
        delta = usage_delta(base, now, since, has_instances=has_instances) if is_counted else None
        if delta is None:
            self.inconsistent += is_counted
            gap_ns = (
                0 if before is None or has_instances else max(now.at.mono_ns - since.mono_ns, 0)
            )
            return UsageDelta(NO_AMOUNTS, 0, gap_ns)
        if now.device in self._unsampled and delta.gap_ns < self._least_gap_ns:
            return replace(delta, gap_ns=0)
        return delta

    def _add_to_hours(self, uuid: str, end: Instant, delta: UsageDelta) -> None:
        """Distribute a gain, and the gap before it, over the hours."""
        end_ns = self._now.wall_of(end)
        rest = delta.parts[None]
        parts = {**delta.parts, None: rest._replace(held_ns=rest.held_ns - delta.unknown_ns)}
        amounts = [amount or 0 for part in parts.values() for amount in part]
        amounts.append(delta.unknown_ns)
        for hour, split in split_by_hour(end_ns, delta.time_ns, amounts) if any(amounts) else ():
            for at, (container, part) in enumerate(parts.items()):
                held, *others = split[len(part) * at : len(part) * (at + 1)]
                if container is None and split[-1]:
                    held += split[-1]
                    self._batch.unknown_hours[hour, uuid] += split[-1]
                pairs = zip(others, part[1:], strict=True)
                gain = Amounts(held, *[None if whole is None else own for own, whole in pairs])
                if container is None or any(gain[:3]):
                    self._batch.add(hour, uuid, container, gain)
        if delta.time_ns or delta.gap_ns:
            self._batch.begin(end_ns - delta.time_ns - delta.gap_ns)
        if delta.gap_ns:
            self._add_gap(uuid, end_ns - delta.time_ns, end.mono_ns - delta.time_ns, delta.gap_ns)

    def _add_gap(self, uuid: str, end_ns: int, end_mono_ns: int, gap_ns: int) -> None:
        gap_ns = min(gap_ns, _MAX_GAP_NS)
        for hour, (part,) in split_by_hour(end_ns, gap_ns, (gap_ns,)):
            self._batch.gap_hours[hour, uuid] += part
        reason = "down" if uuid in self._unsampled else "blind"
        start_ns, own_id = end_ns - gap_ns, token_hex(8)
        if uuid in self._gaps:
            last_id, known, until_ns = self._gaps[uuid]
            # If the wall times do not adjoin, the wall clock was set between the two gaps.
            if (
                known.reason == reason
                and abs(end_mono_ns - gap_ns - until_ns) < _ADJOIN_NS
                and abs(start_ns - known.end_ns) < _ADJOIN_NS
            ):
                start_ns, own_id = known.start_ns, last_id
        gap = Gap(uuid, start_ns, end_ns, reason)
        self._gaps[uuid] = own_id, gap, end_mono_ns
        self._batch.gaps[own_id] = gap

    def _add_ended(self, holding: Holding, devices: Mapping[str, DeviceUsage]) -> None:
        key, end, uuid = holding.id, holding.end, holding.device
        if end is None or (
            uuid not in self._stored_devices
            and key not in self._open_holdings
            and end.mono_ns < self._started.mono_ns
        ):
            return
        self._add_pod(holding.subject, holding.pod)
        self._put(holding, end)
        self._open_holdings.pop(key, None)
        seen = self._accounts.get(uuid)
        if seen is not None and devices.get(uuid, seen) is seen:
            # The account, as that of a removed device, will not be written again. After a restart,
            # a holding that is still in it would end a second time.
            containers = tuple([_without(one, key, end) for one in seen.containers])
            self._accounts[uuid] = self._batch.states[uuid] = replace(seen, containers=containers)

    def _put_all(self, one: ContainerUsage, at: Instant) -> None:
        """Add the holdings of a container that are not final, up to their last sample."""
        for each in one.closing:
            counted_ns = each.counted_ns + each.gap_ns
            start = each.start
            until = Instant(start.mono_ns + counted_ns, start.wall_ns + counted_ns)
            self._put(replace(each, end=None), until)
        if one.holding is not None:
            self._put(one.holding, at)

    def _put(self, holding: Holding, until: Instant) -> None:
        key, wall_of = holding.id, self._now.wall_of
        until = max(until, holding.start)
        self._batch.closed.discard(key)
        self._batch.holdings[key] = HoldingRow(holding, wall_of(holding.start), wall_of(until))

    def _add_pod(self, subject: PartialRef, pod: PodInfo | None) -> None:
        if pod is not None and self._pods.get(subject) != pod:
            self._pods[subject] = self._batch.pods[subject] = pod

    def _find_orphans(self, running: set[str], now_ns: int) -> None:
        """Track which holdings are running; close holdings that are no longer reported."""
        for key in running:
            self._open_holdings[key] = None
        for key in [key for key in self._open_holdings if key not in running]:
            since = self._open_holdings[key]
            if since is None:
                self._open_holdings[key] = now_ns
            elif now_ns - since > _ORPHANED_NS:
                del self._open_holdings[key]
                self._batch.closed.add(key)


def _absent_first(layout: Layout) -> list[Attribution]:
    """Return the devices; absent ones first, so that a present one keeps an index of both."""
    return sorted(layout.attributions.values(), key=lambda one: one.present)


def _open_holdings_of(one: ContainerUsage) -> tuple[Holding, ...]:
    """Return the holdings of a container that are not final."""
    return one.closing if one.holding is None else (*one.closing, one.holding)


def _without(one: ContainerUsage, key: str, end: Instant) -> ContainerUsage:
    """Return the usage of a container without a holding that has ended."""
    if one.holding is not None and one.holding.id == key:
        return replace(one, holding=None, ended=end)
    if any(each.id == key for each in one.closing):
        return replace(one, closing=tuple([each for each in one.closing if each.id != key]))
    return one
