"""Who is on a device no more, and when their holdings ended."""

from collections.abc import Collection

from pipeline.model import Instant
from pipeline.usage.admission import Admission
from pipeline.usage.container_accounts import ContainerAccount, ContainerAccounts
from pipeline.usage.holder_timeline import HolderTimeline
from pipeline.usage.interval_samples import ContainerName


class Departures:
    """Lets holdings end of containers that neither hold the device nor use it.

    Args:
        timeline: who held it when.
        accounts: those in the account.
        entrance: lets those in who come back.
    """

    def __init__(
        self, timeline: HolderTimeline, accounts: ContainerAccounts, entrance: Admission
    ) -> None:
        self._timeline = timeline
        self._containers = accounts
        self._admission = entrance

    def end_absent(
        self, moment: Instant, before: Instant, known_ended: Collection[ContainerName] = ()
    ) -> None:
        """Find out who has ended, by the holders of now and the users at the last look.

        Args:
            moment: since when somebody is there who wasn't, where that is news.
            before: the look before.
            known_ended: those of whom it is known already.
        """
        last = self._timeline.last
        holding = (
            frozenset[ContainerName]() if last is None else last.containers.difference(known_ended)
        )
        self._containers.end_absent(
            holding,
            moment,
            lambda entry: _ended(entry, self._timeline.released(entry.name), moment, before),
        )

    def end_missed(self, at: Instant, before: Instant) -> frozenset[ContainerName]:
        """Let those have ended whom a look didn't find, and who hold the device again since.

        Args:
            at: the look; who uses the device is known.
            before: the look before.

        Returns:
            The containers. `restart_returned` has to follow, once the time before the look is
            counted.
        """
        later = self._timeline.after(at.mono_ns)
        if not later:
            return frozenset()
        holding = {held.container for held in self._timeline.at(at.mono_ns)}
        again = frozenset[ContainerName]().union(*[cut.containers for cut in later]) - holding
        found = [self._containers.get(name) for name in again]
        missed = [entry for entry in found if entry is not None and _was_there(entry, at)]
        for entry in missed:
            released = self._timeline.released(entry.name, at.mono_ns)
            self._containers.end(entry, _ended(entry, released, at, before))
        return frozenset([entry.name for entry in missed])

    def restart_returned(self, missed: Collection[ContainerName], at: Instant) -> None:
        """Let those come and go who came back after a look that missed them."""
        for cut in self._timeline.after(at.mono_ns) if missed else ():
            for held in cut.held:
                if held.container in missed:
                    self._admission.admit_holder(held, cut.at, at)
            for name in set(missed) - cut.containers:
                entry = self._containers.get(name)
                if entry is not None and entry.running is not None:
                    self._containers.end(entry, cut.at)


def _ended(
    account: ContainerAccount, released: Instant | None, moment: Instant, before: Instant
) -> Instant:
    """Return when one ended who is there no more at a moment.

    Processes that were there at the look before and aren't now have ended with their container, if
    it ceased to hold the device meanwhile.
    """
    running = account.running
    if released is None or released.mono_ns <= before.mono_ns:
        return moment
    if running is not None and released.mono_ns <= running.start.mono_ns:
        # Another holding ended then; where processes were seen since, this is theirs.
        return moment if account.used_at(moment.mono_ns) else released
    return released


def _was_there(account: ContainerAccount, at: Instant) -> bool:
    """Whether one has a holding whose processes were there at the look before, and not at this."""
    running = account.running
    gone = account.used_to_ns == at.mono_ns and not (account.has_processes or account.unseen)
    return gone and running is not None and running.start.mono_ns <= at.mono_ns
