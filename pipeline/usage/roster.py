"""The containers in the account of one device."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from pipeline.model import NS, ContainerUsage, Instant, PartialRef, PodInfo
from pipeline.usage.looks import Name

MOST_CONTAINERS: Final = 256
"""How many containers of a device are kept account of, those that have ended among them."""

KEPT_NS: Final = 300 * NS
"""How long the account of what has ended is kept, so that no scrape misses its last value."""


@dataclass(slots=True, eq=False)
class Entry:
    """What is known of a container, as `ContainerUsage` has it.

    Attributes:
        name: the container.
        uses: it had processes on the device when somebody last looked.
    """

    name: Name
    subject: PartialRef
    pod: PodInfo | None
    start: Instant
    ended: Instant | None = None
    uses: bool = False
    memory_bytes: int | None = None
    busy_ns: int | None = None
    held_ns: int = 0
    energy_mj: int | None = None

    def usage(self) -> ContainerUsage:
        """Return it as it is now."""
        return ContainerUsage(
            self.subject,
            self.pod,
            self.start,
            self.ended,
            self.memory_bytes,
            self.busy_ns,
            self.held_ns,
            self.energy_mj,
        )


class Roster:
    """Containers by name, no more than `MOST_CONTAINERS`.

    Attributes:
        refused: those that found no room since `refused` was last cleared.
        forgotten_busy_ns: busy time of those that are kept no more.
        forgotten_held_ns: held time of those.
        forgotten_energy_mj: energy of those.
    """

    def __init__(self) -> None:
        self._entries: dict[Name, Entry] = {}
        self.refused: set[Name] = set()
        self.forgotten_busy_ns = 0
        self.forgotten_held_ns = 0
        self.forgotten_energy_mj = 0

    def __iter__(self) -> Iterator[Entry]:
        """Yield all, sorted by subject."""
        return iter(self._entries.values())

    def get(self, name: Name) -> Entry | None:
        """Return a container that is in the account."""
        return self._entries.get(name)

    def enter(self, name: Name, pod: PodInfo | None, start: Instant) -> Name | None:
        """See that a container is in the account, if there is room.

        The one that ended first makes room for it, before its time.

        Args:
            name: the container.
            pod: what is known of its pod now.
            start: since when there is an account of it, if it is new.

        Returns:
            One that had to make room.
        """
        entries = self._entries
        known = entries.get(name)
        if known is not None:
            if pod is not None:
                known.pod = pod
            return None
        oldest = None
        if len(entries) >= MOST_CONTAINERS:
            ended = [(e.ended.mono_ns, at) for at, e in enumerate(self) if e.ended is not None]
            if not ended:
                self.refused.add(name)
                return None
            oldest = list(entries)[min(ended)[1]]
            self._forget(oldest)
        entries[name] = Entry(name, PartialRef(*name), pod, start)
        self._entries = {key: entries[key] for key in sorted(entries)}
        return oldest

    def settle(self, holding: Collection[Name], moment: Instant) -> None:
        """Find out who has ended: who neither holds the device nor uses it.

        Args:
            holding: who holds it now.
            moment: since when that is so, where it is news.
        """
        for entry in self:
            if entry.uses or entry.name in holding:
                entry.ended = None
            elif entry.ended is None:
                entry.ended, entry.memory_bytes = moment, None

    def forget(self, now_ns: int) -> list[Name]:
        """Let go of those that ended long ago; return them."""
        gone = [
            entry.name
            for entry in self
            if entry.ended is not None and now_ns - entry.ended.mono_ns > KEPT_NS
        ]
        for name in gone:
            self._forget(name)
        return gone

    def first_end_ns(self) -> int | None:
        """Return when the first of those that are there now ended; None if none has."""
        return min((e.ended.mono_ns for e in self if e.ended is not None), default=None)

    def _forget(self, name: Name) -> None:
        entry = self._entries.pop(name)
        self.forgotten_busy_ns += entry.busy_ns or 0
        self.forgotten_held_ns += entry.held_ns
        self.forgotten_energy_mj += entry.energy_mj or 0
