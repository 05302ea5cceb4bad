"""What the ledger has still to write, worked out of snapshots. Pure.

It has each account as it was last seen, so that a snapshot that is passed over loses nothing: the
next one's totals have it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from secrets import token_hex
from typing import Final

from pipeline.ledger.hour_split import MOST_HOURS, split_by_hour
from pipeline.ledger.schema import HOUR_NS
from pipeline.ledger.usage_delta import Amounts, UsageDelta, same_account, usage_delta
from pipeline.ledger.write_batch import Batch, HoldingRow
from pipeline.model import (
    NS,
    ContainerUsage,
    DeviceUsage,
    Holding,
    Instant,
    Layout,
    PartialRef,
    PodInfo,
    Snapshot,
)
from pipeline.model.usage_window import Gap

_SLEWED_NS: Final = 20_000_000
"""How far the two clocks may part within the moments of which the wall clock alone is known."""

_ORPHANED_NS: Final = 600 * NS
"""After how long a holding that nobody tells of any more is taken for ended."""

_ADJOIN_NS: Final = 1_000_000

_MOST_GAP_NS: Final = MOST_HOURS * HOUR_NS
"""How long a gap is at most."""

NO_AMOUNTS: Final[Mapping[PartialRef | None, Amounts]] = {None: (0, None, None)}


class LedgerAccumulator:
    """Keeps the accounts as they were last seen, and what they have gained since.

    Which part of an account counts:

    - one that goes on from the file's, or from what was seen before: what it gained;
    - one that began later: all of it, and the time before it is a gap;
    - one that began before what the file has ended, as that of a second podgpu that waited for the
      file: what it gains from now on, since the other has told of that time already;
    - one of a device that the file doesn't know, and older than this book: likewise from now on.
      Nor does it get the holdings that ended before this book.

    Args:
        started: when this began: before any account of this process.
        accounts: the accounts as the file has them, with moments of the present monotonic clock.
        open_holdings: ids of the holdings in the file that have no end.
        unsampled: devices of the file that nobody has looked at since podgpu began: what is missing
            before their first look is time for which podgpu was down. All of them, if none is
            given; changed in place, so that the next book of this process can have it.
        shifted: devices whose account has other moments than in the file. They are written at once,
            so that a later start goes on from the same moments for all devices.

    Attributes:
        inconsistent: how often an account made no sense, so that a gap stands in its place.
        missed_holdings: holdings that had ended and were let go of before this book saw them.
    """

    def __init__(
        self,
        started: Instant,
        accounts: Mapping[str, DeviceUsage],
        open_holdings: Iterable[str] = (),
        unsampled: set[str] | None = None,
        shifted: Iterable[str] = (),
    ) -> None:
        self.inconsistent = 0
        self.missed_holdings = 0
        self._started = started
        self._accounts = dict(accounts)
        self._written_holdings = frozenset(accounts)
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
        """Return all that there is to write, and begin anew."""
        batch, self._batch = self._batch, Batch()
        return batch

    def rewrite_all(self) -> None:
        """Let everything that is known be written again: another file has begun."""
        self._batch.states.update(self._accounts)
        self._batch.pods.update(self._pods)
        if self._layout is not None:
            for uuid, known in self._layout.attributions.items():
                self._batch.devices[uuid] = known.device
        for device in self._accounts.values():
            for one in device.containers:
                self._put_all(one, device.at)

    def add_snapshot(self, snapshot: Snapshot) -> None:
        """Take in what a snapshot tells of usage; cheap where that hasn't changed."""
        usage = snapshot.usage
        if usage is None or usage is self._usage:
            return
        self._usage = usage
        self._now = snapshot.at
        self._update_layout(snapshot.layout)
        subjects: set[PartialRef] = set()
        running: set[str] = set()
        # The ends first: what stands as ended isn't to be ended again after a restart.
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
        devices = [known.device for known in layout.attributions.values()]
        self._mig_gpus = frozenset([one.gpu_uuid for one in devices if one.mig is not None])
        for one in devices:
            if one.uuid not in before or before[one.uuid].device != one:
                self._batch.devices[one.uuid] = one

    def _add_account(self, before: DeviceUsage | None, now: DeviceUsage) -> None:
        uuid, batch = now.device, self._batch
        gained = self._delta(before, now)
        self._add_to_hours(uuid, now.at, gained)
        if gained.time_ns or gained.gap_ns:
            self._unsampled.discard(uuid)
        for one in now.containers:
            self._add_pod(one.subject, one.pod)
            for key in one.absorbed:
                if key in self._open_holdings or key in self._batch.holdings:
                    self._drop(key)
            self._put_all(one, now.at)
        self._accounts[uuid] = batch.states[uuid] = now

    def _delta(self, before: DeviceUsage | None, now: DeviceUsage) -> UsageDelta:
        carrier = now.device in self._mig_gpus
        since = now.start if before is None else before.at
        base, counts = before, True
        if before is None:
            counts = now.start.mono_ns >= self._started.mono_ns
        elif not same_account(before, now):
            base, counts = None, now.start.mono_ns >= before.at.mono_ns
        found = usage_delta(base, now, since, has_instances=carrier) if counts else None
        if found is None:
            self.inconsistent += counts
            gap_ns = 0 if before is None or carrier else max(now.at.mono_ns - since.mono_ns, 0)
            return UsageDelta(NO_AMOUNTS, 0, gap_ns)
        if now.device in self._unsampled and found.gap_ns < _SLEWED_NS:
            return replace(found, gap_ns=0)
        return found

    def _add_to_hours(self, uuid: str, end: Instant, gained: UsageDelta) -> None:
        """Lay a gain and the gap before it onto the hours."""
        end_ns = self._now.wall_of(end)
        parts = {**gained.parts, None: _less(gained.parts[None], gained.unknown_ns)}
        amounts = [amount or 0 for part in parts.values() for amount in part]
        amounts.append(gained.unknown_ns)
        for hour, split in split_by_hour(end_ns, gained.time_ns, amounts) if any(amounts) else ():
            for at, (whose, part) in enumerate(parts.items()):
                held, busy, energy = split[3 * at : 3 * at + 3]
                if whose is None and split[-1]:
                    held += split[-1]
                    self._batch.add_unknown(hour, uuid, split[-1])
                more = held, None if part[1] is None else busy, None if part[2] is None else energy
                if whose is None or any(more):
                    self._batch.add(hour, uuid, whose, more)
        if gained.gap_ns:
            self._add_gap(
                uuid, end_ns - gained.time_ns, end.mono_ns - gained.time_ns, gained.gap_ns
            )

    def _add_gap(self, uuid: str, end_ns: int, end_mono_ns: int, gap_ns: int) -> None:
        gap_ns = min(gap_ns, _MOST_GAP_NS)
        for hour, (part,) in split_by_hour(end_ns, gap_ns, (gap_ns,)):
            key = hour, uuid
            self._batch.gap_hours[key] = self._batch.gap_hours.get(key, 0) + part
        reason = "down" if uuid in self._unsampled else "blind"
        start_ns, own_id = end_ns - gap_ns, token_hex(8)
        if uuid in self._gaps:
            last_id, known, until_ns = self._gaps[uuid]
            # If its wall time doesn't adjoin, the wall clock was set between the two.
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
            uuid not in self._written_holdings
            and key not in self._open_holdings
            and end.mono_ns < self._started.mono_ns
        ):
            return
        self._add_pod(holding.subject, holding.pod)
        self._put(holding, end)
        self._open_holdings.pop(key, None)
        seen = self._accounts.get(uuid)
        if seen is not None and devices.get(uuid, seen) is seen:
            self._remove_ended(seen, key, end)

    def _remove_ended(self, seen: DeviceUsage, key: str, end: Instant) -> None:
        """Take a holding that was told out of an account that nobody else is going to write again.

        As that of a device which has left the layout: whoever goes on from it after a restart would
        end that holding once more.
        """
        containers = [_without(one, key, end) for one in seen.containers]
        settled = replace(seen, containers=tuple(containers))
        self._accounts[seen.device] = self._batch.states[seen.device] = settled

    def _put_all(self, one: ContainerUsage, at: Instant) -> None:
        """Write a container's holdings that aren't told of yet, as far as they are counted."""
        for each in one.closing:
            counted_ns = each.counted_ns + each.gap_ns
            start = each.start
            until = Instant(start.mono_ns + counted_ns, start.wall_ns + counted_ns)
            self._put(replace(each, end=None), until)
        if one.holding is not None:
            self._put(one.holding, at)

    def _drop(self, key: str) -> None:
        """Take out a holding that was kept apart while a part of the container's name was missing.

        The container's holding has all that it had.
        """
        self._open_holdings.pop(key, None)
        self._batch.holdings.pop(key, None)
        self._batch.dropped.add(key)

    def _put(self, holding: Holding, until: Instant) -> None:
        key, wall_of = holding.id, self._now.wall_of
        until = max(until, holding.start)
        self._batch.closed.discard(key)
        self._batch.holdings[key] = HoldingRow(holding, wall_of(holding.start), wall_of(until))

    def _add_pod(self, subject: PartialRef, pod: PodInfo | None) -> None:
        if pod is not None and self._pods.get(subject) != pod:
            self._pods[subject] = self._batch.pods[subject] = pod

    def _find_orphans(self, running: set[str], now_ns: int) -> None:
        """Note which holdings of the file go on, and close those of which nobody tells."""
        for key in running:
            self._open_holdings[key] = None
        for key in [key for key in self._open_holdings if key not in running]:
            since = self._open_holdings[key]
            if since is None:
                self._open_holdings[key] = now_ns
            elif now_ns - since > _ORPHANED_NS:
                del self._open_holdings[key]
                self._batch.closed.add(key)


def _open_holdings_of(one: ContainerUsage) -> tuple[Holding, ...]:
    """Return a container's holdings that aren't told of yet."""
    return one.closing if one.holding is None else (*one.closing, one.holding)


def _without(one: ContainerUsage, key: str, end: Instant) -> ContainerUsage:
    """Return a container without a holding, which has ended."""
    if one.holding is not None and one.holding.id == key:
        return replace(one, holding=None, ended=end)
    if any(each.id == key for each in one.closing):
        return replace(one, closing=tuple([each for each in one.closing if each.id != key]))
    return one


def _less(amounts: Amounts, unknown_ns: int) -> Amounts:
    held, busy, energy = amounts
    return held - unknown_ns, busy, energy
