"""The containers in the account of one device."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Final

from pipeline.model import NS, ContainerUsage, Instant, PartialRef, PodInfo
from pipeline.usage.account_ids import Ids
from pipeline.usage.holding import HoldingAccount, begun, told_of
from pipeline.usage.interval_samples import Name

MOST_CONTAINERS: Final = 256
"""How many containers of a device are kept account of, those that have ended among them."""

KEPT_NS: Final = 300 * NS
"""How long the account of what has ended is kept, so that no scrape misses its last value."""


@dataclass(slots=True, eq=False)
class Entry:
    """What is known of a container, as `ContainerUsage` has it.

    Attributes:
        name: the container.
        ids: makes the ids of its holdings.
        id: identifies its account on this device.
        uses: it had processes on the device when somebody last looked.
        used_from_ns: since when it has, or had, processes there, by the monotonic clock: the look
            before the one that first showed them. None where it never had.
        used_to_ns: the look that showed them no more; None where none has.
        awaited: it was there when podgpu last ran, and hasn't been seen since.
        running: the holding that goes on.
        closing: those that have ended, and for which something may still come.
        closed: when the last of those ended for which nothing may come any more.
        concealed: MPS concealed what it did for a time: no 0 stands for that.
        absorbed: ids of accounts and holdings that were found to be this container's, and are part
            of this one now.
    """

    name: Name
    subject: PartialRef
    pod: PodInfo | None
    start: Instant
    ids: Ids
    id: str
    ended: Instant | None = None
    uses: bool = False
    memory_bytes: int | None = None
    busy_ns: int | None = None
    held_ns: int = 0
    energy_mj: int | None = None
    xids: dict[int, int] = field(default_factory=dict)
    used_from_ns: int | None = None
    used_to_ns: int | None = None
    awaited: bool = False
    running: HoldingAccount | None = None
    closing: list[HoldingAccount] = field(default_factory=list)
    closed: Instant | None = None
    concealed: bool = False
    absorbed: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether its pod's name and uid are both known."""
        return bool(self.name[1] and self.name[3])

    def begin(self, start: Instant) -> HoldingAccount:
        """See that a holding goes on, from a moment on if there was none.

        One that has only just ended goes on, if it isn't told of yet and that moment isn't later.
        """
        running = self.running
        if running is not None and self.awaited:
            running.see()
        self.ended, self.awaited = None, False
        if running is None:
            last = self.closing[-1].end if self.closing else None
            if last is not None and last.mono_ns >= start.mono_ns:
                running = self.closing.pop()
                running.end = None
            else:
                start = start if self.closed is None else max(start, self.closed)
                running = begun(start, self.ids())
            self.running = running
        return running

    def begin_before(self, start: Instant) -> None:
        """See that the holding that goes on began before: nothing of it has passed yet."""
        if self.running is not None:
            start = start if self.closed is None else max(start, self.closed)
            self.running.start, self.running.until_ns = start, start.mono_ns
            self.start = min(self.start, start)

    def came_before(self, start: Instant, end: Instant) -> None:
        """See that it had another holding before the one that goes on."""
        running, self.running = self.running, None
        self.begin(start)
        self.end(end)
        self.start = min(self.start, start)
        self.running, self.ended = running, None

    def end(self, moment: Instant) -> None:
        """Let it have ended at a moment."""
        self.ended = max(moment, self.start)
        self.memory_bytes, self.awaited = None, False
        running = self.running
        if running is not None:
            running.end = max(moment, running.start)
            self.closing.append(running)
            self.running = None

    def over(self, moment: Instant) -> bool:
        """Whether it had ended before a moment."""
        return self.ended is not None and self.ended.mono_ns < moment.mono_ns

    def give_up(self, moment: Instant) -> None:
        """Let it have ended when it was last there, before podgpu began.

        Args:
            moment: when it did, if it has no holding.
        """
        self.end(moment if self.running is None else self.running.give_up())

    def conceal(self) -> None:
        """Let what it does now be unknown, and what it did so far too where that was nothing."""
        self.concealed = True
        self.busy_ns, self.energy_mj = self.busy_ns or None, self.energy_mj or None
        for one in self.open():
            one.conceal()

    def open(self) -> list[HoldingAccount]:
        """Return the holdings for which something may come, the latest last."""
        running = self.running
        if running is None:
            return self.closing
        return [*self.closing, running] if self.closing else [running]

    def covering(self, moment_ns: int) -> HoldingAccount | None:
        """Return the holding at a moment, if something may still come for it."""
        return next((one for one in self.open() if one.covers(moment_ns)), None)

    def used_at(self, moment_ns: int) -> bool:
        """Whether it had processes on the device at a moment, as far as looks tell."""
        begin, end = self.used_from_ns, self.used_to_ns
        if begin is None or moment_ns < begin:
            return False
        return self.uses or (end is not None and moment_ns <= end)

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
            told_of(self.xids),
            running.shown(device, self.subject, self.pod, at_ns, awaited=self.awaited)
            if running
            else None,
            self.id,
            self.absorbed,
            tuple([one.shown(device, self.subject, self.pod, at_ns) for one in self.closing]),
        )


class Roster:
    """Containers by name, no more than `MOST_CONTAINERS`.

    Attributes:
        refused: those that found no room since `refused` was last cleared.
        closing: whether any may have a holding that has ended and isn't told of yet.
        left: of those that are kept no more, when the last holding ended that was told of, where no
            look has passed that yet: whoever comes back begins after it.
        forgotten_busy_ns: busy time of those that are kept no more.
        forgotten_held_ns: held time of those.
        forgotten_energy_mj: energy of those.

    Args:
        ids: makes the ids of containers and holdings.
    """

    def __init__(self, ids: Ids) -> None:
        self._ids = ids
        self._entries: dict[Name, Entry] = {}
        self.refused: set[Name] = set()
        self.closing = False
        self.left: dict[Name, Instant] = {}
        self.forgotten_busy_ns = 0
        self.forgotten_held_ns = 0
        self.forgotten_energy_mj = 0

    def __iter__(self) -> Iterator[Entry]:
        """Yield all, sorted by subject."""
        return iter(self._entries.values())

    def get(self, name: Name) -> Entry | None:
        """Return a container that is in the account."""
        return self._entries.get(name)

    def enter(
        self, name: Name, pod: PodInfo | None, start: Instant
    ) -> tuple[Entry | None, Entry | None]:
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
        entries = self._entries
        known = entries.get(name)
        if known is not None:
            if pod is not None:
                known.pod = pod
            return known, None
        oldest = None
        if len(entries) >= MOST_CONTAINERS:
            ended = [(e.ended.mono_ns, at) for at, e in enumerate(self) if e.ended is not None]
            if not ended:
                self.refused.add(name)
                return None, None
            oldest = entries[list(entries)[min(ended)[1]]]
            self.drop(oldest)
        closed = self.left.pop(name, None)
        # What it had before that stands among what is forgotten.
        start = start if closed is None else max(start, closed)
        ids = self._ids
        new = entries[name] = Entry(name, PartialRef(*name), pod, start, ids, ids(), closed=closed)
        self._entries = {key: entries[key] for key in sorted(entries)}
        return new, oldest

    def settle(
        self, holding: Collection[Name], now: Instant, ending: Callable[[Entry], Instant]
    ) -> None:
        """Find out who has ended: who neither holds the device nor uses it.

        Args:
            holding: who holds it now.
            now: since when somebody is there who wasn't, where that is news.
            ending: tells when one has ended who is there no more.
        """
        for entry in self:
            if entry.uses or entry.name in holding:
                if entry.running is None or entry.awaited:
                    entry.begin(now)
            elif entry.ended is None and not entry.awaited:
                self.end(entry, ending(entry))

    def end(self, entry: Entry, moment: Instant) -> None:
        """Let a container have ended at a moment."""
        entry.end(moment)
        self.closing = True

    def forget(self, now_ns: int) -> list[Entry]:
        """Let go of those that ended long ago; return them."""
        gone = [
            entry
            for entry in self
            if entry.ended is not None and now_ns - entry.ended.mono_ns > KEPT_NS
        ]
        for entry in gone:
            self.drop(entry)
        return gone

    def put(self, entry: Entry) -> None:
        """Take in a container with what it had; where there is no room that is forgotten at once.

        Args:
            entry: one that isn't there yet.
        """
        if entry.name in self._entries or len(self._entries) >= MOST_CONTAINERS:
            self.remember(entry)
            return
        self.closing = self.closing or bool(entry.closing)
        entries = {**self._entries, entry.name: entry}
        self._entries = {key: entries[key] for key in sorted(entries)}

    def rename(self, before: Name, name: Name) -> Entry:
        """Take out a container and give it another name; `put` lets it in again."""
        entry = self._entries.pop(before)
        entry.name, entry.subject = name, PartialRef(*name)
        return entry

    def remember(self, entry: Entry) -> None:
        """Add what a container had to that of those that are kept no more."""
        self.forgotten_busy_ns += entry.busy_ns or 0
        self.forgotten_held_ns += entry.held_ns
        self.forgotten_energy_mj += entry.energy_mj or 0

    def leave(self, entry: Entry) -> None:
        """Note when the last holding ended of a container that is kept no more."""
        if entry.closed is not None:
            if len(self.left) >= MOST_CONTAINERS:
                del self.left[next(iter(self.left))]
            self.left[entry.name] = entry.closed

    def pass_look(self, at_ns: int) -> None:
        """Let go of what lies before a look."""
        if self.left:
            self.left = {n: end for n, end in self.left.items() if end.mono_ns > at_ns}

    def withdraw_memory(self) -> None:
        """Let the memory of all be unknown."""
        for entry in self:
            entry.memory_bytes = None
            for one in entry.open():
                one.memory_bytes = None

    def first_end_ns(self) -> int | None:
        """Return when the first of those that are there now ended; None if none has."""
        return min((e.ended.mono_ns for e in self if e.ended is not None), default=None)

    def drop(self, entry: Entry) -> None:
        """Let go of a container; what it had is that of those that are kept no more."""
        del self._entries[entry.name]
        self.remember(entry)
