"""An account as it stood when podgpu last ran, made into one that goes on.

What a file told is believed for its parts; each total is their sum, so that every identity holds.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from pipeline.model import NS, ContainerUsage, DeviceUsage, Holding, Instant, PartialRef
from pipeline.usage.account_ids import Ids
from pipeline.usage.container_accounts import Entry
from pipeline.usage.device_totals import Sums
from pipeline.usage.ended_holdings import Ended
from pipeline.usage.holding import MOST_CODES, HoldingAccount, begun

MOST_WAITING: Final = 512
"""How many devices may wait to be known. Sixteen GPUs with their MIG instances are 128."""

WAITING_NS: Final = 300 * NS
"""For how long they wait."""


class Restored(NamedTuple):
    """What an account goes on from.

    Attributes:
        id: identifies the account.
        start: since when there is an account.
        at: until when.
        entries: containers that go on, or have ended.
        nameless: those whose uid nobody knew: whoever has the name now may be another. They have
            ended.
        told: the account as it was told.
    """

    id: str
    start: Instant
    at: Instant
    entries: Sequence[Entry]
    nameless: Sequence[Entry]
    told: DeviceUsage

    def add_up(self, sums: Sums) -> None:
        """Let sums that hold nothing yet go on from there."""
        told, roster = self.told, sums.roster
        roster.forgotten_busy_ns = max(told.forgotten_busy_ns, 0)
        roster.forgotten_held_ns = max(told.forgotten_held_ns, 0)
        roster.forgotten_energy_mj = max(told.forgotten_energy_mj, 0)
        for entry in self.entries:
            roster.put(entry)
        for entry in self.nameless:
            roster.remember(entry)
        sums.unheld_ns = max(told.unheld_ns, 0)
        sums.unknown_ns = min(max(told.unknown_ns, 0), sums.unheld_ns)
        sums.busy_other_ns = max(told.busy_unattributed_ns or 0, 0)
        sums.energy_other_mj = max(told.energy_unattributed_mj or 0, 0)
        held = roster.forgotten_held_ns + sum(entry.held_ns for entry in roster)
        busy = roster.forgotten_busy_ns + sum(entry.busy_ns or 0 for entry in roster)
        energy = roster.forgotten_energy_mj + sum(entry.energy_mj or 0 for entry in roster)
        sums.elapsed_ns = held + sums.unheld_ns
        for one in [one for entry in roster for one in entry.open()]:
            one.elapsed_ns = sums.elapsed_ns
        if told.busy_ns is not None or busy or sums.busy_other_ns:
            sums.busy_ns = busy + sums.busy_other_ns
        if told.energy_mj is not None or energy or sums.energy_other_mj:
            sums.energy_mj = energy + sums.energy_other_mj


def restored(told: DeviceUsage, now: Instant, ids: Ids) -> Restored:
    """Return what an account goes on from.

    Args:
        told: as it stood, with moments of this machine's monotonic clock.
        now: the present; what lies after it is moved there.
        ids: makes ids where none is told.
    """
    at = _passed(told.at, now)
    start = min(_passed(told.start, now), at)
    entries = [_entry(one, at, now, ids) for one in told.containers]
    nameless = [entry for entry in entries if not entry.subject.uid]
    for entry in nameless:
        _end(entry, at)
    own_id = told.id or ids()
    return Restored(own_id, start, at, [e for e in entries if e.subject.uid], nameless, told)


def end_all(told: DeviceUsage, ended: Ended, now: Instant, ids: Ids) -> None:
    """Let the holdings of an account that goes on nowhere have ended when it was last looked at."""
    at = _passed(told.at, now)
    for one in told.containers:
        if one.holding is not None or one.closing:
            entry = _entry(one, at, now, ids)
            _end(entry, at)
            for holding in entry.closing:
                holding.finish()
                ended.add(holding.shown(told.device, entry.subject, entry.pod, 0), now.mono_ns)


def _end(entry: Entry, at: Instant) -> None:
    """Let a container have ended with the last look, or before where it has."""
    if entry.awaited:
        entry.give_up(at)
    else:
        entry.end(entry.ended or at)


def _entry(one: ContainerUsage, at: Instant, now: Instant, ids: Ids) -> Entry:
    subject = one.subject
    name = (subject.namespace, subject.pod, subject.container, subject.uid)
    start = _passed(one.start, now)
    entry = Entry(name, PartialRef(*name), one.pod, start, ids, one.id or ids())
    entry.busy_ns, entry.held_ns, entry.energy_mj = one.busy_ns, one.held_ns, one.energy_mj
    entry.xids = dict(one.xids[:MOST_CODES])
    ended = None if one.ended is None else _passed(one.ended, now)
    for each in one.closing:
        if each.end is not None:
            end = _passed(each.end, now)
            closing = _holding(each, at, end, now, ids)
            closing.end = max(end, closing.start)
            entry.closing.append(closing)
    if one.holding is not None:
        entry.running = _holding(one.holding, at, ended, now, ids)
    elif ended is None:
        entry.running = begun(at, ids())
    if ended is None:
        entry.awaited = True
    else:
        entry.end(ended)
    return entry


def _holding(
    told: Holding, at: Instant, ended: Instant | None, now: Instant, ids: Ids
) -> HoldingAccount:
    """Return a holding that goes on, or that ended before anybody told of it.

    Its length is what was counted and what was a gap, whatever the wall clock said meanwhile.
    """
    start, known_ns = _passed(told.start, now), told.counted_ns + told.gap_ns
    if ended is not None:
        begin_ns = min(start.mono_ns, ended.mono_ns - known_ns)
    elif known_ns:
        begin_ns = at.mono_ns - known_ns
    else:
        begin_ns = max(start.mono_ns, at.mono_ns)
    return HoldingAccount(
        Instant(begin_ns, start.wall_ns),
        told.id or ids(),
        told.source,
        told.evidence,
        until_ns=begin_ns + known_ns,
        counted_ns=told.counted_ns,
        gap_ns=told.gap_ns,
        held_ns=told.held_ns,
        busy_ns=told.busy_ns,
        energy_mj=told.energy_mj,
        memory_peak_bytes=told.memory_peak_bytes,
        memory_byte_ns=told.memory_byte_ns,
        memory_ns=told.memory_ns,
        busy_time_ns=told.busy_time_ns,
        peak_ppm=told.busy_peak_ppm,
        xids=dict(told.xids[:MOST_CODES]),
        unseen_counted_ns=min(told.unseen_counted_ns, told.counted_ns),
        unseen_gap_ns=min(told.unseen_gap_ns, told.gap_ns),
        restored=True,
    )


def _passed(moment: Instant, now: Instant) -> Instant:
    return moment if moment.mono_ns <= now.mono_ns else now


class Waiting:
    """Accounts of devices that aren't known yet, for as long as they may still turn up.

    Args:
        ended: where the holdings go of those that don't.
        ids: makes ids where none is told.
    """

    def __init__(self, ended: Ended, ids: Ids) -> None:
        self._ended = ended
        self._ids = ids
        self._told: dict[str, DeviceUsage] = {}
        self._until_ns = 0

    def __contains__(self, device: str) -> bool:
        """Whether an account waits for a device."""
        return device in self._told

    def put(self, told: Iterable[DeviceUsage], now: Instant) -> None:
        """Take in accounts, each in place of what waits for its device."""
        for one in told:
            before = self._told.pop(one.device, None)
            if before is not None:
                end_all(before, self._ended, now, self._ids)
            if len(self._told) < MOST_WAITING:
                self._told[one.device] = one
            else:
                end_all(one, self._ended, now, self._ids)
        self._until_ns = now.mono_ns + WAITING_NS

    def take(self, device: str) -> DeviceUsage | None:
        """Return what waits for a device, once."""
        return self._told.pop(device, None)

    def expire(self, now: Instant) -> bool:
        """Let go of those that have waited for too long; return whether there were any."""
        if not self._told or now.mono_ns <= self._until_ns:
            return False
        for one in self._told.values():
            end_all(one, self._ended, now, self._ids)
        self._told.clear()
        return True

    @property
    def due_ns(self) -> int | None:
        """The last moment at which none has to go; None where none waits."""
        return self._until_ns if self._told else None
