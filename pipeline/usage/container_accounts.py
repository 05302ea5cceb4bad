"""The usage accounts of the containers on one device, and the end of their holdings."""

from collections.abc import Container, Iterator, Mapping
from typing import Final

from pipeline.model import NS, Instant, PartialRef, PodInfo
from pipeline.usage.container_account import ContainerAccount, Ids
from pipeline.usage.ended_holdings import NEVER, EndedHoldings
from pipeline.usage.holding import HoldingAccount
from pipeline.usage.interval_samples import ContainerName, IntervalUsage

MAX_CONTAINERS: Final = 256
"""Largest number of containers in the account of a device, including those that have ended."""

RETENTION_NS: Final = 300 * NS
"""How long the account of an ended container is kept, so that a scrape gets its last value."""


class ContainerAccounts:
    """The container accounts of one device by name, at most `MAX_CONTAINERS`.

    An ended holding is final when nothing can be added to it any more. Then it is passed to
    `ended`, unless it has no time and no usage.

    Attributes:
        pending: the usage of the time whose energy is not known yet.
        rejected: containers that got no account, for lack of room, since `rejected` was cleared.
        removed_ends: the end of the last final holding of each removed container, until a sample
            passes that end. If the container returns, its new account starts no earlier.
        forgotten_busy_ns: sum of the busy time of removed containers.
        forgotten_held_ns: sum of the held time of removed containers.
        forgotten_energy_mj: sum of the energy of removed containers.

    Args:
        device: uuid of the device.
        ended: receives final holdings.
        ids: generates the ids of containers and holdings.
    """

    def __init__(self, device: str, ended: EndedHoldings, ids: Ids) -> None:
        self._device = device
        self._ended = ended
        self._ids = ids
        self._accounts: dict[ContainerName, ContainerAccount] = {}
        self.pending = IntervalUsage()
        self.rejected: set[ContainerName] = set()
        self.removed_ends: dict[ContainerName, Instant] = {}
        self.forgotten_busy_ns = 0
        self.forgotten_held_ns = 0
        self.forgotten_energy_mj = 0

    def __iter__(self) -> Iterator[ContainerAccount]:
        """Yield all accounts, sorted by name."""
        return iter(self._accounts.values())

    def get(self, name: ContainerName) -> ContainerAccount | None:
        """Return the account of a container."""
        return self._accounts.get(name)

    def admit(
        self, name: ContainerName, pod: PodInfo | None, start: Instant, now: Instant
    ) -> ContainerAccount | None:
        """Return the account of a container; create it, without a holding, if there is room.

        If the table is full, the container that ended first is removed early. A container without a
        uid that ended before `start` gets a new account.

        Args:
            name: the container.
            pod: the pod as known now; None if it is unknown.
            start: the start of a new account.
            now: the present time.

        Returns:
            None if there is no room. Then `rejected` contains the container.
        """
        known = self.get(name)
        if known is not None:
            if name[3] or known.ended is None or known.ended.mono_ns >= start.mono_ns:
                known.pod = pod or known.pod
                return known
            # Without a uid it is unknown whether this is the same pod.
            self.remove(known, now.mono_ns)
        oldest = None
        if len(self._accounts) >= MAX_CONTAINERS:
            ended = [(one.ended.mono_ns, one.name) for one in self if one.ended is not None]
            if not ended:
                self.rejected.add(name)
                return None
            oldest = self._accounts[min(ended)[1]]
        closed = self.removed_ends.pop(name, None)
        if oldest is not None:
            self.remove(oldest, now.mono_ns)
        # The usage before that end is in the forgotten sums already.
        start = max(start, closed or start)
        new = ContainerAccount(
            name, PartialRef(*name), pod, start, self._ids, self._ids(), last_finalized=closed
        )
        self.put(new)
        return new

    def put(self, account: ContainerAccount) -> None:
        """Add an account. If its name is taken or there is no room, keep only its totals.

        The totals are added to the sums of forgotten containers.
        """
        if account.name in self._accounts or len(self._accounts) >= MAX_CONTAINERS:
            self.add_to_forgotten(account)
            return
        self._accounts[account.name] = account
        self._accounts = dict(sorted(self._accounts.items()))

    def rename(self, before: ContainerName, name: ContainerName) -> ContainerAccount:
        """Remove an account from the table and change its name. `put` adds it again."""
        entry = self._accounts.pop(before)
        entry.name, entry.subject = name, PartialRef(*name)
        return entry

    def add_to_forgotten(self, account: ContainerAccount) -> None:
        """Add the totals of a container to the sums of forgotten containers."""
        self.forgotten_busy_ns += account.busy_ns or 0
        self.forgotten_held_ns += account.held_ns
        self.forgotten_energy_mj += account.energy_mj or 0

    def remove(self, account: ContainerAccount, now_ns: int) -> None:
        """Remove a container: its ended holdings become final, its pending usage unattributed."""
        del self._accounts[account.name]
        self.add_to_forgotten(account)
        self.finalize_container(account, now_ns)
        self.pending.move_to_unattributed(account.name)
        if account.last_finalized is not None:
            if len(self.removed_ends) >= MAX_CONTAINERS:
                del self.removed_ends[next(iter(self.removed_ends))]
            self.removed_ends[account.name] = account.last_finalized

    def evict_expired(self, now_ns: int) -> bool:
        """Remove containers that ended more than `RETENTION_NS` ago; return whether any did."""
        gone = [e for e in self if e.ended and now_ns - e.ended.mono_ns > RETENTION_NS]
        for entry in gone:
            self.remove(entry, now_ns)
        return bool(gone)

    def advance_sample(self, at_ns: int) -> None:
        """Discard the entries of `removed_ends` up to the time of a sample."""
        if self.removed_ends:
            self.removed_ends = {
                n: end for n, end in self.removed_ends.items() if end.mono_ns > at_ns
            }

    def forget_memory(self) -> None:
        """Set the memory of all containers to unknown."""
        for entry in self:
            entry.memory_bytes = None
            for one in entry.open_holdings():
                one.memory_bytes = None

    def due_ns(self, good_for_ns: int) -> int:
        """Return the last time at which nothing is due.

        A container is due when it ended more than `RETENTION_NS` ago; a holding that is not final
        is due when it ended more than `good_for_ns` ago.
        """
        ends = [entry.ending[0].end for entry in self if entry.ending]
        due = [end.mono_ns + good_for_ns for end in ends if end]
        due += [entry.ended.mono_ns + RETENTION_NS for entry in self if entry.ended]
        return min(due, default=NEVER)

    def take_pending(self) -> IntervalUsage:
        """Return the usage of the time whose energy is not known yet, and clear it."""
        interval, self.pending = self.pending, IntervalUsage()
        return interval

    def finalize(
        self, now_ns: int, until_ns: int = NEVER, keep: Container[HoldingAccount] = ()
    ) -> bool:
        """Finalize holdings that have ended; return whether there were any.

        Args:
            now_ns: now, by the monotonic clock.
            until_ns: finalize only the holdings that ended at this moment or before.
            keep: holdings that do not become final yet.
        """
        found = [
            (entry, one)
            for entry in self
            for one in entry.ending
            if one.end and one.end.mono_ns <= until_ns and one not in keep
        ]
        for entry, one in found:
            self._finalize(entry, one, now_ns)
        return bool(found)

    def finalize_container(self, account: ContainerAccount, now_ns: int) -> None:
        """Finalize all ended holdings of a container."""
        for one in [*account.ending]:
            self._finalize(account, one, now_ns)

    def rename_pending(
        self,
        before: ContainerName,
        name: ContainerName,
        merged: Mapping[HoldingAccount, HoldingAccount],
    ) -> None:
        """Move the pending usage of a container to another name.

        Args:
            before: the old name.
            name: the new name.
            merged: merged holdings, each with the holding that replaces it.
        """
        pending = self.pending
        for parts in (pending.held, pending.busy or {}):
            if before in parts:
                parts[name] = parts.get(name, 0) + parts.pop(before)
        if before in pending.concealed:
            pending.concealed = pending.concealed - {before} | {name}
        for one, other in merged.items():
            if one in pending.holding_times:
                time_ns = pending.holding_times.pop(one)
                pending.holding_times[other] = max(time_ns, pending.holding_times.get(other, 0))

    def _finalize(self, account: ContainerAccount, one: HoldingAccount, now_ns: int) -> None:
        one.close_gap()
        account.ending.remove(one)
        if one.end is not None:
            account.last_finalized = max(one.end, account.last_finalized or one.end)
        if self.pending.holding_times.pop(one, None) is not None and not account.open_holdings():
            self.pending.move_to_unattributed(account.name)
        if not one.is_empty:
            self._ended.add(one.to_holding(self._device, account.subject, account.pod, 0), now_ns)
