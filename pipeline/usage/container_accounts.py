"""The containers in the account of one device."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Final

from pipeline.model import NS, ContainerUsage, Instant, PartialRef, PodInfo
from pipeline.usage.account_ids import Ids
from pipeline.usage.holding import HoldingAccount, sorted_xids, start_holding
from pipeline.usage.interval_samples import ContainerName

MAX_CONTAINERS: Final = 256
"""How many containers of a device are kept account of, those that have ended among them."""

RETENTION_NS: Final = 300 * NS
"""How long the account of what has ended is kept, so that no scrape misses its last value."""


@dataclass(slots=True, eq=False)
class ContainerAccount:
    """What is known of a container, as `ContainerUsage` has it.

    Attributes:
        name: the container.
        ids: makes the ids of its holdings.
        id: identifies its account on this device.
        has_processes: it had processes on the device when somebody last looked.
        used_from_ns: since when it has, or had, processes there, by the monotonic clock: the look
            before the one that first showed them. None where it never had.
        used_to_ns: the look that showed them no more; None where none has.
        unseen: it was there when podgpu last ran, and hasn't been seen since.
        running: the holding that goes on.
        ending: those that have ended, and for which something may still come.
        last_finalized: when the last of those ended for which nothing may come any more.
        concealed: MPS concealed what it did for a time: no 0 stands for that.
        absorbed: ids of accounts and holdings that were found to be this container's, and are part
            of this one now.
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
    absorbed: tuple[str, ...] = ()

    @property
    def has_full_identity(self) -> bool:
        """Whether its pod's name and uid are both known."""
        return bool(self.name[1] and self.name[3])

    def start_holding(self, start: Instant) -> HoldingAccount:
        """See that a holding goes on, from a moment on if there was none.

        One that has only just ended goes on, if it isn't told of yet and that moment isn't later.
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
                start = start if self.last_finalized is None else max(start, self.last_finalized)
                running = start_holding(start, self.ids())
            self.running = running
        return running

    def move_start_back(self, start: Instant) -> None:
        """See that the holding that goes on began before: nothing of it has passed yet."""
        if self.running is not None:
            start = start if self.last_finalized is None else max(start, self.last_finalized)
            self.running.start, self.running.until_ns = start, start.mono_ns
            self.start = min(self.start, start)

    def add_earlier_holding(self, start: Instant, end: Instant) -> None:
        """See that it had another holding before the one that goes on."""
        running, self.running = self.running, None
        self.start_holding(start)
        self.end(end)
        self.start = min(self.start, start)
        self.running, self.ended = running, None

    def end(self, moment: Instant) -> None:
        """Let it have ended at a moment."""
        self.ended = max(moment, self.start)
        self.memory_bytes, self.unseen = None, False
        running = self.running
        if running is not None:
            running.end = max(moment, running.start)
            self.ending.append(running)
            self.running = None

    def ended_before(self, moment: Instant) -> bool:
        """Whether it had ended before a moment."""
        return self.ended is not None and self.ended.mono_ns < moment.mono_ns

    def end_at_last_seen(self, moment: Instant) -> None:
        """Let it have ended when it was last there, before podgpu began.

        Args:
            moment: when it did, if it has no holding.
        """
        self.end(moment if self.running is None else self.running.rewind_to_last_seen())

    def mark_concealed(self) -> None:
        """Let what it does now be unknown, and what it did so far too where that was nothing."""
        self.concealed = True
        self.busy_ns, self.energy_mj = self.busy_ns or None, self.energy_mj or None
        for one in self.open_holdings():
            one.mark_concealed()

    def open_holdings(self) -> list[HoldingAccount]:
        """Return the holdings for which something may come, the latest last."""
        running = self.running
        if running is None:
            return self.ending
        return [*self.ending, running] if self.ending else [running]

    def holding_at(self, moment_ns: int) -> HoldingAccount | None:
        """Return the holding at a moment, if something may still come for it."""
        return next((one for one in self.open_holdings() if one.covers(moment_ns)), None)

    def used_at(self, moment_ns: int) -> bool:
        """Whether it had processes on the device at a moment, as far as looks tell."""
        begin, end = self.used_from_ns, self.used_to_ns
        if begin is None or moment_ns < begin:
            return False
        return self.has_processes or (end is not None and moment_ns <= end)

    def usage(self, device: str, at_ns: int) -> ContainerUsage:
        """Return it as it is now.

        Args:
            device: uuid.
            at_ns: when the device was last looked at.
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
            sorted_xids(self.xids),
            running.to_holding(device, self.subject, self.pod, at_ns, unseen=self.unseen)
            if running
            else None,
            self.id,
            self.absorbed,
            tuple([one.to_holding(device, self.subject, self.pod, at_ns) for one in self.ending]),
        )


class ContainerAccounts:
    """Containers by name, no more than `MAX_CONTAINERS`.

    Attributes:
        rejected: those that found no room since `rejected` was last cleared.
        has_ending: whether any may have a holding that has ended and isn't told of yet.
        removed_ends: of those that are kept no more, when the last holding ended that was told of,
            where no look has passed that yet: whoever comes back begins after it.
        forgotten_busy_ns: busy time of those that are kept no more.
        forgotten_held_ns: held time of those.
        forgotten_energy_mj: energy of those.

    Args:
        ids: makes the ids of containers and holdings.
    """

    def __init__(self, ids: Ids) -> None:
        self._ids = ids
        self._accounts: dict[ContainerName, ContainerAccount] = {}
        self.rejected: set[ContainerName] = set()
        self.has_ending = False
        self.removed_ends: dict[ContainerName, Instant] = {}
        self.forgotten_busy_ns = 0
        self.forgotten_held_ns = 0
        self.forgotten_energy_mj = 0

    def __iter__(self) -> Iterator[ContainerAccount]:
        """Yield all, sorted by subject."""
        return iter(self._accounts.values())

    def get(self, name: ContainerName) -> ContainerAccount | None:
        """Return a container that is in the account."""
        return self._accounts.get(name)

    def admit(
        self, name: ContainerName, pod: PodInfo | None, start: Instant
    ) -> tuple[ContainerAccount | None, ContainerAccount | None]:
        """See that a container is in the account, if there is room.

        The one that ended first makes room for it, before its time.

        Args:
            name: the container.
            pod: what is known of its pod now.
            start: since when there is an account of it, if it is new.

        Returns:
            The container, and one that had to make room; of either None if there is none. One that
            is new has no holding yet.
        """
        entries = self._accounts
        known = entries.get(name)
        if known is not None:
            if pod is not None:
                known.pod = pod
            return known, None
        oldest = None
        if len(entries) >= MAX_CONTAINERS:
            ended = [(e.ended.mono_ns, at) for at, e in enumerate(self) if e.ended is not None]
            if not ended:
                self.rejected.add(name)
                return None, None
            oldest = entries[list(entries)[min(ended)[1]]]
            self.remove(oldest)
        closed = self.removed_ends.pop(name, None)
        # What it had before that stands among what is forgotten.
        start = start if closed is None else max(start, closed)
        ids = self._ids
        new = entries[name] = ContainerAccount(
            name, PartialRef(*name), pod, start, ids, ids(), last_finalized=closed
        )
        self._accounts = {key: entries[key] for key in sorted(entries)}
        return new, oldest

    def end_absent(
        self,
        holders: Collection[ContainerName],
        now: Instant,
        end_of: Callable[[ContainerAccount], Instant],
    ) -> None:
        """Find out who has ended: who neither holds the device nor uses it.

        Args:
            holders: who holds it now.
            now: since when somebody is there who wasn't, where that is news.
            end_of: tells when one has ended who is there no more.
        """
        for entry in self:
            if entry.has_processes or entry.name in holders:
                if entry.running is None or entry.unseen:
                    entry.start_holding(now)
            elif entry.ended is None and not entry.unseen:
                self.end(entry, end_of(entry))

    def end(self, account: ContainerAccount, moment: Instant) -> None:
        """Let a container have ended at a moment."""
        account.end(moment)
        self.has_ending = True

    def evict_expired(self, now_ns: int) -> list[ContainerAccount]:
        """Let go of those that ended long ago; return them."""
        gone = [
            entry
            for entry in self
            if entry.ended is not None and now_ns - entry.ended.mono_ns > RETENTION_NS
        ]
        for entry in gone:
            self.remove(entry)
        return gone

    def put(self, account: ContainerAccount) -> None:
        """Take in a container with what it had; where there is no room that is forgotten at once.

        Args:
            account: one that isn't there yet.
        """
        if account.name in self._accounts or len(self._accounts) >= MAX_CONTAINERS:
            self.add_to_forgotten(account)
            return
        self.has_ending = self.has_ending or bool(account.ending)
        entries = {**self._accounts, account.name: account}
        self._accounts = {key: entries[key] for key in sorted(entries)}

    def rename(self, before: ContainerName, name: ContainerName) -> ContainerAccount:
        """Take out a container and give it another name; `put` lets it in again."""
        entry = self._accounts.pop(before)
        entry.name, entry.subject = name, PartialRef(*name)
        return entry

    def add_to_forgotten(self, account: ContainerAccount) -> None:
        """Add what a container had to that of those that are kept no more."""
        self.forgotten_busy_ns += account.busy_ns or 0
        self.forgotten_held_ns += account.held_ns
        self.forgotten_energy_mj += account.energy_mj or 0

    def note_removed_end(self, account: ContainerAccount) -> None:
        """Note when the last holding ended of a container that is kept no more."""
        if account.last_finalized is not None:
            if len(self.removed_ends) >= MAX_CONTAINERS:
                del self.removed_ends[next(iter(self.removed_ends))]
            self.removed_ends[account.name] = account.last_finalized

    def advance_sample(self, at_ns: int) -> None:
        """Let go of what lies before a look."""
        if self.removed_ends:
            self.removed_ends = {
                n: end for n, end in self.removed_ends.items() if end.mono_ns > at_ns
            }

    def forget_memory(self) -> None:
        """Let the memory of all be unknown."""
        for entry in self:
            entry.memory_bytes = None
            for one in entry.open_holdings():
                one.memory_bytes = None

    def first_end_ns(self) -> int | None:
        """Return when the first of those that are there now ended; None if none has."""
        return min((e.ended.mono_ns for e in self if e.ended is not None), default=None)

    def remove(self, account: ContainerAccount) -> None:
        """Let go of a container; what it had is that of those that are kept no more."""
        del self._accounts[account.name]
        self.add_to_forgotten(account)
