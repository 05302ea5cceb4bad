"""An account as it stood when podgpu last ran, made into one that goes on.

What a file told is believed for its parts; each total is their sum, so that every identity holds.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from pipeline.model import NS, ContainerUsage, DeviceUsage, Holding, Instant, PartialRef
from pipeline.usage.account_ids import Ids
from pipeline.usage.container_accounts import ContainerAccount
from pipeline.usage.device_totals import UsageTotals
from pipeline.usage.ended_holdings import EndedHoldings
from pipeline.usage.holding import MAX_XID_CODES, HoldingAccount, start_holding

MAX_PENDING: Final = 512
"""How many devices may wait to be known. Sixteen GPUs with their MIG instances are 128."""

PENDING_NS: Final = 300 * NS
"""For how long they wait."""


class RestoredAccount(NamedTuple):
    """What an account goes on from.

    Attributes:
        id: identifies the account.
        start: since when there is an account.
        at: until when.
        accounts: containers that go on, or have ended.
        without_uid: those whose uid nobody knew: whoever has the name now may be another. They have
            ended.
        stored: the account as it was told.
    """

    id: str
    start: Instant
    at: Instant
    accounts: Sequence[ContainerAccount]
    without_uid: Sequence[ContainerAccount]
    stored: DeviceUsage

    def add_to(self, sums: UsageTotals) -> None:
        """Let sums that hold nothing yet go on from there."""
        told, roster = self.stored, sums.containers
        roster.forgotten_busy_ns = max(told.forgotten_busy_ns, 0)
        roster.forgotten_held_ns = max(told.forgotten_held_ns, 0)
        roster.forgotten_energy_mj = max(told.forgotten_energy_mj, 0)
        for entry in self.accounts:
            roster.put(entry)
        for entry in self.without_uid:
            roster.add_to_forgotten(entry)
        sums.unheld_ns = max(told.unheld_ns, 0)
        sums.unknown_ns = min(max(told.unknown_ns, 0), sums.unheld_ns)
        sums.busy_unattributed_ns = max(told.busy_unattributed_ns or 0, 0)
        sums.energy_unattributed_mj = max(told.energy_unattributed_mj or 0, 0)
        held = roster.forgotten_held_ns + sum(entry.held_ns for entry in roster)
        busy = roster.forgotten_busy_ns + sum(entry.busy_ns or 0 for entry in roster)
        energy = roster.forgotten_energy_mj + sum(entry.energy_mj or 0 for entry in roster)
        sums.elapsed_ns = held + sums.unheld_ns
        for one in [one for entry in roster for one in entry.open_holdings()]:
            one.elapsed_ns = sums.elapsed_ns
        if told.busy_ns is not None or busy or sums.busy_unattributed_ns:
            sums.busy_ns = busy + sums.busy_unattributed_ns
        if told.energy_mj is not None or energy or sums.energy_unattributed_mj:
            sums.energy_mj = energy + sums.energy_unattributed_mj


def restore_account(stored: DeviceUsage, now: Instant, ids: Ids) -> RestoredAccount:
    """Return what an account goes on from.

    Args:
        stored: as it stood, with moments of this machine's monotonic clock.
        now: the present; what lies after it is moved there.
        ids: makes ids where none is told.
    """
    at = _not_after(stored.at, now)
    start = min(_not_after(stored.start, now), at)
    entries = [_restored_account(one, at, now, ids) for one in stored.containers]
    nameless = [entry for entry in entries if not entry.subject.uid]
    for entry in nameless:
        _end(entry, at)
    own_id = stored.id or ids()
    return RestoredAccount(
        own_id, start, at, [e for e in entries if e.subject.uid], nameless, stored
    )


def end_stored_holdings(stored: DeviceUsage, ended: EndedHoldings, now: Instant, ids: Ids) -> None:
    """Let the holdings of an account that goes on nowhere have ended when it was last looked at."""
    at = _not_after(stored.at, now)
    for one in stored.containers:
        if one.holding is not None or one.closing:
            entry = _restored_account(one, at, now, ids)
            _end(entry, at)
            for holding in entry.ending:
                holding.close_gap()
                ended.add(
                    holding.to_holding(stored.device, entry.subject, entry.pod, 0), now.mono_ns
                )


def _end(account: ContainerAccount, at: Instant) -> None:
    """Let a container have ended with the last look, or before where it has."""
    if account.unseen:
        account.end_at_last_seen(at)
    else:
        account.end(account.ended or at)


def _restored_account(one: ContainerUsage, at: Instant, now: Instant, ids: Ids) -> ContainerAccount:
    subject = one.subject
    name = (subject.namespace, subject.pod, subject.container, subject.uid)
    start = _not_after(one.start, now)
    entry = ContainerAccount(name, PartialRef(*name), one.pod, start, ids, one.id or ids())
    entry.busy_ns, entry.held_ns, entry.energy_mj = one.busy_ns, one.held_ns, one.energy_mj
    entry.xids = dict(one.xids[:MAX_XID_CODES])
    ended = None if one.ended is None else _not_after(one.ended, now)
    for each in one.closing:
        if each.end is not None:
            end = _not_after(each.end, now)
            closing = _holding(each, at, end, now, ids)
            closing.end = max(end, closing.start)
            entry.ending.append(closing)
    if one.holding is not None:
        entry.running = _holding(one.holding, at, ended, now, ids)
    elif ended is None:
        entry.running = start_holding(at, ids())
    if ended is None:
        entry.unseen = True
    else:
        entry.end(ended)
    return entry


def _holding(
    stored: Holding, at: Instant, ended: Instant | None, now: Instant, ids: Ids
) -> HoldingAccount:
    """Return a holding that goes on, or that ended before anybody told of it.

    Its length is what was counted and what was a gap, whatever the wall clock said meanwhile.
    """
    start, known_ns = _not_after(stored.start, now), stored.counted_ns + stored.gap_ns
    if ended is not None:
        begin_ns = min(start.mono_ns, ended.mono_ns - known_ns)
    elif known_ns:
        begin_ns = at.mono_ns - known_ns
    else:
        begin_ns = max(start.mono_ns, at.mono_ns)
    return HoldingAccount(
        Instant(begin_ns, start.wall_ns),
        stored.id or ids(),
        stored.source,
        stored.evidence,
        until_ns=begin_ns + known_ns,
        counted_ns=stored.counted_ns,
        gap_ns=stored.gap_ns,
        held_ns=stored.held_ns,
        busy_ns=stored.busy_ns,
        energy_mj=stored.energy_mj,
        memory_peak_bytes=stored.memory_peak_bytes,
        memory_byte_ns=stored.memory_byte_ns,
        memory_ns=stored.memory_ns,
        busy_time_ns=stored.busy_time_ns,
        peak_ppm=stored.busy_peak_ppm,
        xids=dict(stored.xids[:MAX_XID_CODES]),
        unseen_counted_ns=min(stored.unseen_counted_ns, stored.counted_ns),
        unseen_gap_ns=min(stored.unseen_gap_ns, stored.gap_ns),
        restored=True,
    )


def _not_after(moment: Instant, now: Instant) -> Instant:
    return moment if moment.mono_ns <= now.mono_ns else now


class PendingRestores:
    """Accounts of devices that aren't known yet, for as long as they may still turn up.

    Args:
        ended: where the holdings go of those that don't.
        ids: makes ids where none is told.
    """

    def __init__(self, ended: EndedHoldings, ids: Ids) -> None:
        self._ended = ended
        self._ids = ids
        self._accounts: dict[str, DeviceUsage] = {}
        self._until_ns = 0

    def __contains__(self, device: str) -> bool:
        """Whether an account waits for a device."""
        return device in self._accounts

    def put(self, stored: Iterable[DeviceUsage], now: Instant) -> None:
        """Take in accounts, each in place of what waits for its device."""
        for one in stored:
            before = self._accounts.pop(one.device, None)
            if before is not None:
                end_stored_holdings(before, self._ended, now, self._ids)
            if len(self._accounts) < MAX_PENDING:
                self._accounts[one.device] = one
            else:
                end_stored_holdings(one, self._ended, now, self._ids)
        self._until_ns = now.mono_ns + PENDING_NS

    def take(self, device: str) -> DeviceUsage | None:
        """Return what waits for a device, once."""
        return self._accounts.pop(device, None)

    def expire(self, now: Instant) -> bool:
        """Let go of those that have waited for too long; return whether there were any."""
        if not self._accounts or now.mono_ns <= self._until_ns:
            return False
        for one in self._accounts.values():
            end_stored_holdings(one, self._ended, now, self._ids)
        self._accounts.clear()
        return True

    @property
    def due_ns(self) -> int | None:
        """The last moment at which none has to go; None where none waits."""
        return self._until_ns if self._accounts else None
