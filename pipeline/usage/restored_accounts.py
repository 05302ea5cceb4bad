"""Conversion of stored usage accounts into accounts that continue after a restart.

Only the parts are taken from the stored account. Each total is calculated as the sum of its parts,
so that no total can contradict them.
"""

from pipeline.model import ContainerUsage, DeviceUsage, Holding, Instant, PartialRef
from pipeline.usage.container_account import ContainerAccount, Ids
from pipeline.usage.contest import UNCONTESTED, Contest
from pipeline.usage.device_totals import UsageTotals
from pipeline.usage.ended_holdings import EndedHoldings
from pipeline.usage.holding import MAX_XID_CODES, HoldingAccount


def restore_totals(
    totals: UsageTotals, stored: DeviceUsage, now: Instant, ids: Ids
) -> list[ContainerAccount]:
    """Add the amounts and containers of a stored account to empty totals.

    Args:
        totals: the totals of the account that continues.
        stored: the account; its moments are of this machine's monotonic clock.
        now: later moments in `stored` are moved to this one.
        ids: generates ids where none is stored.

    Returns:
        The containers without a uid. They have ended, because the name may belong to another pod
        now, and their amounts are in the sums of forgotten containers.
    """
    at, accounts = not_after(stored.at, now), totals.containers
    accounts.forgotten_busy_ns = max(stored.forgotten_busy_ns, 0)
    accounts.forgotten_held_ns = max(stored.forgotten_held_ns, 0)
    accounts.forgotten_energy_mj = max(stored.forgotten_energy_mj, 0)
    without_uid: list[ContainerAccount] = []
    for one in stored.containers:
        entry = _restored_account(one, at, now, ids)
        if entry.subject.uid:
            accounts.put(entry)
            continue
        _end(entry, at)
        accounts.add_to_forgotten(entry)
        without_uid.append(entry)
    totals.unheld_ns = max(stored.unheld_ns, 0)
    totals.unknown_ns = min(max(stored.unknown_ns, 0), totals.unheld_ns)
    totals.busy_unattributed_ns = max(stored.busy_unattributed_ns or 0, 0)
    totals.energy_unattributed_mj = max(stored.energy_unattributed_mj or 0, 0)
    held = accounts.forgotten_held_ns + sum(entry.held_ns for entry in accounts)
    busy = accounts.forgotten_busy_ns + sum(entry.busy_ns or 0 for entry in accounts)
    energy = accounts.forgotten_energy_mj + sum(entry.energy_mj or 0 for entry in accounts)
    totals.elapsed_ns = held + totals.unheld_ns
    for holding in [one for entry in accounts for one in entry.open_holdings()]:
        holding.elapsed_ns = totals.elapsed_ns
    if stored.busy_ns is not None or busy or totals.busy_unattributed_ns:
        totals.busy_ns = busy + totals.busy_unattributed_ns
    if stored.energy_mj is not None or energy or totals.energy_unattributed_mj:
        totals.energy_mj = energy + totals.energy_unattributed_mj
    return without_uid


def end_stored_holdings(stored: DeviceUsage, ended: EndedHoldings, now: Instant, ids: Ids) -> None:
    """End and finalize the holdings of a stored account that does not continue.

    A holding that has no end yet ends when its container was last seen.
    """
    at = not_after(stored.at, now)
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
    """End a container when it was last seen, or at `at`."""
    if account.unseen:
        account.end_at_last_seen(at)
    else:
        account.end(account.ended or at)


def _restored_account(one: ContainerUsage, at: Instant, now: Instant, ids: Ids) -> ContainerAccount:
    subject = one.subject
    name = (subject.namespace, subject.pod, subject.container, subject.uid)
    start = not_after(one.start, now)
    entry = ContainerAccount(name, PartialRef(*name), one.pod, start, ids, one.id or ids())
    entry.busy_ns, entry.held_ns, entry.energy_mj = one.busy_ns, one.held_ns, one.energy_mj
    entry.contest = _contest(one)
    entry.xids = dict(one.xids[:MAX_XID_CODES])
    ended = None if one.ended is None else not_after(one.ended, now)
    for each in one.closing:
        if each.end is not None:
            end = not_after(each.end, now)
            closing = _holding(each, at, end, now, ids)
            closing.end = max(end, closing.start)
            entry.ending.append(closing)
    if one.holding is not None:
        entry.running = _holding(one.holding, at, ended, now, ids)
    elif ended is None:
        entry.running = HoldingAccount(at, ids(), until_ns=at.mono_ns)
    if ended is None:
        entry.unseen = True
    else:
        entry.end(ended)
    return entry


def _holding(
    stored: Holding, at: Instant, ended: Instant | None, now: Instant, ids: Ids
) -> HoldingAccount:
    """Return the account of a stored holding.

    Its length is its counted time and gap, independent of changes of the wall clock.
    """
    start, known_ns = not_after(stored.start, now), stored.counted_ns + stored.gap_ns
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
        contest=_contest(stored),
        restored=True,
    )


def _contest(stored: ContainerUsage | Holding) -> Contest | None:
    if stored.busy_ns is None:
        return UNCONTESTED
    if stored.contested_ns is None or stored.switching_ns is None:
        return None
    return Contest(stored.contested_ns, stored.switching_ns)


def not_after(moment: Instant, now: Instant) -> Instant:
    """Return a moment, or `now` if it is later."""
    return moment if moment.mono_ns <= now.mono_ns else now
