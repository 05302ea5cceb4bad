"""The usage accounts of the containers on one device."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from pipeline.model import NS, ContainerUsage, Instant, PartialRef, PodInfo
from pipeline.usage.ended_holdings import NEVER
from pipeline.usage.holding import HoldingAccount, sorted_xids, start_holding
from pipeline.usage.interval_samples import ContainerName

MAX_CONTAINERS: Final = 256
"""Largest number of containers in the account of a device, including those that have ended."""

RETENTION_NS: Final = 300 * NS
"""How long the account of an ended container is kept, so that a scrape gets its last value."""


class Ids:
    """Generates unique ids for accounts, containers and holdings.

    Args:
        run: identifies this run of podgpu among all runs that write to the same ledger.
    """

    def __init__(self, run: str) -> None:
        self._run = run
        self._numbers = count(1)

    def __call__(self) -> str:
        """Return the next id."""
        return f"{self._run}-{next(self._numbers)}"


@dataclass(slots=True, eq=False)
class ContainerAccount:
    """The usage of one container on one device; see `ContainerUsage`.

    Attributes:
        name: the container.
        ids: generates the ids of its holdings.
        id: identifies this account.
        has_processes: whether the last sample showed processes of the container on the device.
        used_from_ns: since when it has or had processes there, by the monotonic clock: the sample
            before the first one that showed them. None if no sample did.
        used_to_ns: the first sample that no longer showed them; None if there is none.
        unseen: whether the container was present when podgpu last ran and was not seen since.
        running: the holding that has not ended.
        ending: holdings that have ended and are not final yet.
        last_finalized: the latest end of a final holding.
        concealed: whether MPS concealed usage of the container. Then an unknown amount is not 0.
        absorbed: ids of accounts and holdings that were merged into this account.
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
        """Whether the pod's name and uid are both known."""
        return bool(self.name[1] and self.name[3])

    def start_holding(self, start: Instant) -> HoldingAccount:
        """Return the running holding; if there is none, start one.

        A holding that ended at `start` or later and is not final continues instead.
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
        """Move the start of the running holding back; no time of it is counted yet."""
        if self.running is not None:
            start = start if self.last_finalized is None else max(start, self.last_finalized)
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
        """End the container and its running holding."""
        self.ended = max(moment, self.start)
        self.memory_bytes, self.unseen = None, False
        running = self.running
        if running is not None:
            running.end = max(moment, running.start)
            self.ending.append(running)
            self.running = None

    def ended_before(self, moment: Instant) -> bool:
        """Whether the container ended before a moment."""
        return self.ended is not None and self.ended.mono_ns < moment.mono_ns

    def end_at_last_seen(self, moment: Instant) -> None:
        """End the container when it was last seen, before podgpu started.

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

    def holding_at(self, moment_ns: int) -> HoldingAccount | None:
        """Return the holding at a moment, if it is not final."""
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
            sorted_xids(self.xids),
            running.to_holding(device, self.subject, self.pod, at_ns, unseen=self.unseen)
            if running
            else None,
            self.id,
            self.absorbed,
            tuple([one.to_holding(device, self.subject, self.pod, at_ns) for one in self.ending]),
        )


class ContainerAccounts:
    """The container accounts of one device by name, at most `MAX_CONTAINERS`.

    Attributes:
        rejected: containers that did not fit since `rejected` was last cleared.
        removed_ends: the end of the last final holding of each removed container, until a sample
            passes that end. If the container returns, its new account starts no earlier.
        forgotten_busy_ns: sum of the busy time of removed containers.
        forgotten_held_ns: sum of their held time.
        forgotten_energy_mj: sum of their energy.

    Args:
        ids: generates the ids of containers and holdings.
    """

    def __init__(self, ids: Ids) -> None:
        self._ids = ids
        self._accounts: dict[ContainerName, ContainerAccount] = {}
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
        self, name: ContainerName, pod: PodInfo | None, start: Instant
    ) -> tuple[ContainerAccount | None, ContainerAccount | None]:
        """Return the account of a container; create it if there is room.

        If the table is full, the container that ended first is removed early.

        Args:
            name: the container.
            pod: the pod as known now.
            start: the start of a new account.

        Returns:
            The account, or None if there is no room; and the removed account, or None. A new
            account has no holding.
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
        # The usage before that end is in the forgotten sums already.
        start = start if closed is None else max(start, closed)
        ids = self._ids
        new = entries[name] = ContainerAccount(
            name, PartialRef(*name), pod, start, ids, ids(), last_finalized=closed
        )
        self._accounts = {key: entries[key] for key in sorted(entries)}
        return new, oldest

    def evict_expired(self, now_ns: int) -> list[ContainerAccount]:
        """Remove and return the containers that ended more than `RETENTION_NS` ago."""
        gone = [
            entry
            for entry in self
            if entry.ended is not None and now_ns - entry.ended.mono_ns > RETENTION_NS
        ]
        for entry in gone:
            self.remove(entry)
        return gone

    def put(self, account: ContainerAccount) -> None:
        """Add an account. If its name is taken or there is no room, only keep its totals."""
        if account.name in self._accounts or len(self._accounts) >= MAX_CONTAINERS:
            self.add_to_forgotten(account)
            return
        entries = {**self._accounts, account.name: account}
        self._accounts = {key: entries[key] for key in sorted(entries)}

    def rename(self, before: ContainerName, name: ContainerName) -> ContainerAccount:
        """Remove a container and give it another name. `put` adds it again."""
        entry = self._accounts.pop(before)
        entry.name, entry.subject = name, PartialRef(*name)
        return entry

    def add_to_forgotten(self, account: ContainerAccount) -> None:
        """Add the totals of a container to the sums of forgotten containers."""
        self.forgotten_busy_ns += account.busy_ns or 0
        self.forgotten_held_ns += account.held_ns
        self.forgotten_energy_mj += account.energy_mj or 0

    def note_removed_end(self, account: ContainerAccount) -> None:
        """Store when the last final holding of a removed container ended."""
        if account.last_finalized is not None:
            if len(self.removed_ends) >= MAX_CONTAINERS:
                del self.removed_ends[next(iter(self.removed_ends))]
            self.removed_ends[account.name] = account.last_finalized

    def advance_sample(self, at_ns: int) -> None:
        """Discard the ends of removed containers up to a sample."""
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

    @property
    def due_ns(self) -> int:
        """The last time at which `evict_expired` removes none."""
        return min((e.ended.mono_ns for e in self if e.ended), default=NEVER) + RETENTION_NS

    def remove(self, account: ContainerAccount) -> None:
        """Remove a container and add its totals to the forgotten sums."""
        del self._accounts[account.name]
        self.add_to_forgotten(account)
