"""A container of which a part of the name was missing until now: it goes on under its full name.

What it had so far stays its own, in one account and one holding: where both names had one, the two
are put together. Sums don't change.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TypeAlias

from pipeline.model import Instant, PodInfo
from pipeline.usage.apportionment import known, plus
from pipeline.usage.container_accounts import Entry, Roster
from pipeline.usage.holder_timeline import Held, Timeline
from pipeline.usage.holding import HoldingAccount, count
from pipeline.usage.holding_finalizer import Closing
from pipeline.usage.interval_samples import Name, Process

_Renamed: TypeAlias = tuple[Name, Name]

Meant: TypeAlias = Callable[[Name, Instant], bool]
"""Tells whether the name of a container's pod meant that very pod at a moment."""


def never(_name: Name, _moment: Instant) -> bool:
    """Tell of no name what it meant before."""
    return False


def lesser(name: Name, others: Collection[Name]) -> Iterator[Name]:
    """Yield the names that a container may have had while a part of its name was missing.

    Args:
        name: with its pod's name and uid.
        others: the containers that are known now, itself among them.
    """
    namespace, pod, container, uid = name
    yield (namespace, pod, container, "")
    if sum(other[3] == uid for other in others) == 1:
        yield ("", "", container, uid)
        yield ("", "", "", uid)


class Renaming:
    """Finds the containers in the account of one device that are better known now.

    Args:
        timeline: who held the device.
        roster: those in the account.
        closing: closes their holdings.
    """

    def __init__(self, timeline: Timeline, roster: Roster, closing: Closing) -> None:
        self._timeline = timeline
        self._roster = roster
        self._closing = closing

    @property
    def nameless(self) -> list[Name]:
        """The containers whose pod has a uid and no name."""
        return [one.name for one in self._roster if one.name[3] and not one.whole]

    def hold(self, held: Sequence[Held], meant: Meant) -> list[_Renamed]:
        """Recognise those who hold the device from now on.

        Args:
            held: the containers.
            meant: tells what a pod's name meant before its uid was known.

        Returns:
            Of each that goes on under another name that and its name so far.
        """
        if not self._timeline.unsure and all(entry.whole for entry in self._roster):
            return []
        names = [one.container for one in held]
        found = [self._recognise(one.container, names, one.pod, meant) for one in held]
        return [one for several in found for one in several]

    def look(self, processes: Iterable[Process]) -> list[_Renamed]:
        """Recognise those whose processes are seen; return what `hold` does."""
        nameless = self.nameless
        if not nameless:
            return []
        pods = {one.container: one.pod for one in processes if one.container is not None}
        found: list[_Renamed] = []
        for name in sorted(pods):
            for before in nameless:
                if name[3] == before[3]:
                    found += self.name(before, name, pods[name], beside=pods)
        return found

    def name(
        self, before: Name, name: Name, pod: PodInfo | None, beside: Collection[Name] = ()
    ) -> list[_Renamed]:
        """Let a container that has no name go on under its full name, if that is one.

        Args:
            before: one of `nameless`.
            name: the container of its pod, as far as it is known.
            pod: what is known of its pod.
            beside: containers that are seen with it: one of two may be meant.

        Returns:
            What `hold` does.
        """
        last = self._timeline.last
        held = [one.container for one in last.held] if last is not None else []
        others = {
            name,
            *(one for one in beside if one[1] and one[3]),
            *(one.name for one in self._roster if one.whole),
            *held,
        }
        if before in held or before not in lesser(name, others):
            return []
        return self._recognise(name, sorted(others), pod, never)

    def name_pod(self, place: tuple[str, str], pod: PodInfo, meant: Meant) -> list[_Renamed]:
        """Recognise those that had a pod's name and no uid, and hold nothing now.

        Args:
            place: the pod's namespace and name.
            pod: what is known of the pod.
            meant: tells what the name meant before.

        Returns:
            What `hold` does.
        """
        last = self._timeline.last
        held = [one.container for one in last.held] if last is not None else []
        unsure = {*self._timeline.unsure, *(one.name for one in self._roster if not one.whole)}
        found: list[_Renamed] = []
        for before in sorted(unsure):
            if before[:2] == place and not before[3]:
                found += self._recognise((*before[:3], pod.uid), held, pod, meant)
        return found

    def _recognise(
        self, name: Name, names: Collection[Name], pod: PodInfo | None, meant: Meant
    ) -> list[_Renamed]:
        found: list[_Renamed] = []
        if not (name[1] and name[3]):
            return found
        for before in lesser(name, names):
            if before in names:
                continue

            def same(moment: Instant, before: Name = before) -> bool:
                return before[3] != "" or meant(name, moment)

            if before in self._timeline.unsure:
                self._timeline.rename(before, name, same)
            entry = self._roster.get(before)
            if entry is not None and same(entry.start):
                folded = put_together(self._roster, before, name, pod)
                self._closing.rename(before, name, folded)
                found.append((before, name))
        return found


def put_together(
    roster: Roster, before: Name, name: Name, pod: PodInfo | None
) -> dict[HoldingAccount, HoldingAccount]:
    """Let a container in the account go on under another name.

    Args:
        roster: those in the account.
        before: its name so far; one that is there.
        name: its name now.
        pod: what is known of its pod.

    Returns:
        Holdings that are none any more, each with the one that has what it had.
    """
    entry = roster.rename(before, name)
    if pod is not None:
        entry.pod = pod
    folded: dict[HoldingAccount, HoldingAccount] = {}
    if (other := roster.get(name)) is None:
        roster.put(entry)
        return folded
    for each, more in ((other, entry), (entry, other)):
        if each.awaited and not more.awaited:
            _be_seen(each, more)
    _add_up(other, entry)
    going: list[HoldingAccount] = []
    for one in sorted([*other.open(), *entry.open()], key=lambda one: one.start.mono_ns):
        last = going[-1] if going else None
        if last is None or (last.end is not None and last.end.mono_ns <= one.start.mono_ns):
            going.append(one)
        else:
            _fold(last, one)
            folded[one] = last
    other.running = next((one for one in going if one.end is None), None)
    other.closing = [one for one in going if one.end is not None]
    roster.closing = roster.closing or bool(other.closing)
    if other.running is not None:
        other.ended = None
    other.absorbed += (entry.id, *entry.absorbed, *(one.id for one in folded))
    return folded


def _be_seen(entry: Entry, more: Entry) -> None:
    """Let a container that was awaited have been there under another name."""
    if more.ended is None:
        entry.begin(more.start)
    elif entry.running is None or not more.closing:
        # What has been told of its time since then is final.
        entry.give_up(more.ended)
    else:
        entry.running.give_up(more.ended.mono_ns)
        entry.end(more.ended)


def _add_up(entry: Entry, more: Entry) -> None:
    entry.start = min(entry.start, more.start)
    ends = known(entry.ended, more.ended)
    entry.ended = max(ends) if len(ends) == 2 else None
    entry.held_ns += more.held_ns
    entry.busy_ns = plus(entry.busy_ns, more.busy_ns)
    entry.energy_mj = plus(entry.energy_mj, more.energy_mj)
    entry.memory_bytes = plus(entry.memory_bytes, more.memory_bytes)
    _add_xids(entry.xids, more.xids.items())
    entry.used_from_ns = min(known(entry.used_from_ns, more.used_from_ns), default=None)
    entry.used_to_ns = max(known(entry.used_to_ns, more.used_to_ns), default=None)
    entry.uses |= more.uses
    entry.awaited &= more.awaited
    entry.concealed |= more.concealed
    entry.closed = max(known(entry.closed, more.closed), default=None)


def _fold(one: HoldingAccount, more: HoldingAccount) -> None:
    """Add to a holding what one had that began later, and before the end of the first."""
    # Who of the two was seen last tells since when nobody has seen the container.
    last = max(one, more, key=lambda each: each.seen_ns)
    one.unseen_counted_ns, one.unseen_gap_ns = last.unseen_counted_ns, last.unseen_gap_ns
    counted_ns = 0
    if more.until_ns > max(one.until_ns, more.start.mono_ns):
        counted_ns = more.elapsed_ns - one.elapsed_ns
        one.counted_ns += counted_ns
        one.gap_ns += more.until_ns - one.until_ns - counted_ns
        one.until_ns, one.elapsed_ns = more.until_ns, more.elapsed_ns
    if one.end is not None:
        one.end = None if more.end is None else max(one.end, more.end)
    if not one.source:
        one.source, one.evidence = more.source, more.evidence
    one.held_ns += more.held_ns
    one.busy_ns = plus(one.busy_ns, more.busy_ns)
    one.energy_mj = plus(one.energy_mj, more.energy_mj)
    one.memory_bytes = plus(one.memory_bytes, more.memory_bytes)
    one.memory_byte_ns += more.memory_byte_ns
    # A look that shows the memory of one shows that of both.
    one.memory_ns = max(one.memory_ns + min(more.memory_ns, counted_ns), more.memory_ns)
    peaks = known(one.memory_peak_bytes, more.memory_peak_bytes, one.memory_bytes)
    if peaks and one.memory_ns:
        # Both may have had memory at once: then the peak of neither is that of both.
        peaks.append(one.memory_byte_ns // one.memory_ns)
    one.memory_peak_bytes = max(peaks, default=None)
    one.busy_time_ns = max(one.busy_time_ns, more.busy_time_ns)
    one.peak_ppm = max(known(one.peak_ppm, more.peak_ppm), default=None)
    one.concealed |= more.concealed
    _add_xids(one.xids, more.xids.items())


def _add_xids(xids: dict[int, int], more: Iterable[tuple[int, int]]) -> None:
    for code, number in more:
        for _ in range(number):
            count(xids, code)
