"""Who is on a device no more, and when their holdings ended."""

from collections.abc import Collection

from pipeline.model import Instant
from pipeline.usage.admission import Entrance
from pipeline.usage.container_accounts import Entry, Roster
from pipeline.usage.holder_timeline import Timeline
from pipeline.usage.interval_samples import Name


class Leaving:
    """Lets holdings end of containers that neither hold the device nor use it.

    Args:
        timeline: who held it when.
        roster: those in the account.
        entrance: lets those in who come back.
    """

    def __init__(self, timeline: Timeline, roster: Roster, entrance: Entrance) -> None:
        self._timeline = timeline
        self._roster = roster
        self._entrance = entrance

    def settle(self, moment: Instant, before: Instant, but: Collection[Name] = ()) -> None:
        """Find out who has ended, by the holders of now and the users at the last look.

        Args:
            moment: since when somebody is there who wasn't, where that is news.
            before: the look before.
            but: those of whom it is known already.
        """
        last = self._timeline.last
        holding = frozenset[Name]() if last is None else last.containers.difference(but)
        self._roster.settle(
            holding,
            moment,
            lambda entry: _ended(entry, self._timeline.released(entry.name), moment, before),
        )

    def miss(self, at: Instant, before: Instant) -> frozenset[Name]:
        """Let those have ended whom a look didn't find, and who hold the device again since.

        Args:
            at: the look; who uses the device is known.
            before: the look before.

        Returns:
            The containers. `come_back` has to follow, once the time before the look is counted.
        """
        later = self._timeline.after(at.mono_ns)
        if not later:
            return frozenset()
        holding = {held.container for held in self._timeline.at(at.mono_ns)}
        again = frozenset[Name]().union(*[cut.containers for cut in later]) - holding
        found = [self._roster.get(name) for name in again]
        missed = [entry for entry in found if entry is not None and _was_there(entry, at)]
        for entry in missed:
            released = self._timeline.released(entry.name, at.mono_ns)
            self._roster.end(entry, _ended(entry, released, at, before))
        return frozenset([entry.name for entry in missed])

    def come_back(self, missed: Collection[Name], at: Instant) -> None:
        """Let those come and go who came back after a look that missed them."""
        for cut in self._timeline.after(at.mono_ns) if missed else ():
            for held in cut.held:
                if held.container in missed:
                    self._entrance.holder(held, cut.at, at)
            for name in set(missed) - cut.containers:
                entry = self._roster.get(name)
                if entry is not None and entry.running is not None:
                    self._roster.end(entry, cut.at)


def _ended(entry: Entry, released: Instant | None, moment: Instant, before: Instant) -> Instant:
    """Return when one ended who is there no more at a moment.

    Processes that were there at the look before and aren't now have ended with their container, if
    it ceased to hold the device meanwhile.
    """
    running = entry.running
    if released is None or released.mono_ns <= before.mono_ns:
        return moment
    if running is not None and released.mono_ns <= running.start.mono_ns:
        # Another holding ended then; where processes were seen since, this is theirs.
        return moment if entry.used_at(moment.mono_ns) else released
    return released


def _was_there(entry: Entry, at: Instant) -> bool:
    """Whether one has a holding whose processes were there at the look before, and not at this."""
    running = entry.running
    gone = entry.used_to_ns == at.mono_ns and not (entry.uses or entry.awaited)
    return gone and running is not None and running.start.mono_ns <= at.mono_ns
