"""Detection of containers that no longer hold or use a device, and of when they ended."""

from collections.abc import Collection

from pipeline.model import Instant
from pipeline.usage.admission import Admission
from pipeline.usage.container_accounts import ContainerAccount, ContainerAccounts
from pipeline.usage.holder_timeline import HolderTimeline
from pipeline.usage.interval_samples import ContainerName


class Departures:
    """Ends the holdings of containers that neither hold nor use the device.

    Args:
        timeline: the holders of the device over time.
        accounts: the containers in the account.
        admission: admits containers that return.
    """

    def __init__(
        self, timeline: HolderTimeline, accounts: ContainerAccounts, admission: Admission
    ) -> None:
        self._timeline = timeline
        self._containers = accounts
        self._admission = admission

    def end_absent(
        self, moment: Instant, before: Instant, known_ended: Collection[ContainerName] = ()
    ) -> None:
        """End absent containers, according to the current holders and the last usage sample.

        Args:
            moment: the start of the holding of a container that is present without one.
            before: the previous sample.
            known_ended: containers that are known to have ended.
        """
        last = self._timeline.last
        holding = (
            frozenset[ContainerName]() if last is None else last.containers.difference(known_ended)
        )
        for entry in self._containers:
            if entry.has_processes or entry.name in holding:
                if entry.running is None or entry.unseen:
                    entry.start_holding(moment)
            elif entry.ended is None and not entry.unseen:
                released = self._timeline.released(entry.name)
                self._containers.end(entry, _ended(entry, released, moment, before))

    def end_missed(self, at: Instant, before: Instant) -> frozenset[ContainerName]:
        """End containers that were absent at a sample and hold the device again since.

        Args:
            at: when the sample was taken; its processes are recorded.
            before: the previous sample.

        Returns:
            The containers. Call `restart_returned` with them after the time before the sample is
            counted.
        """
        later = self._timeline.after(at.mono_ns)
        if not later:
            return frozenset()
        holding = {held.container for held in self._timeline.at(at.mono_ns)}
        returned = (
            frozenset[ContainerName]().union(*[change.containers for change in later]) - holding
        )
        found = [self._containers.get(name) for name in returned]
        missed = [entry for entry in found if entry is not None and _was_there(entry, at)]
        for entry in missed:
            released = self._timeline.released(entry.name, at.mono_ns)
            self._containers.end(entry, _ended(entry, released, at, before))
        return frozenset([entry.name for entry in missed])

    def restart_returned(self, missed: Collection[ContainerName], at: Instant) -> None:
        """Start and end holdings of these containers by the holder changes after the sample."""
        for change in self._timeline.after(at.mono_ns) if missed else ():
            for held in change.held:
                if held.container in missed:
                    self._admission.admit_holder(held, change.at, at)
            for name in set(missed) - change.containers:
                entry = self._containers.get(name)
                if entry is not None and entry.running is not None:
                    self._containers.end(entry, change.at)


def _ended(
    account: ContainerAccount, released: Instant | None, moment: Instant, before: Instant
) -> Instant:
    """Return when a container ended that is absent at `moment`.

    If the container stopped holding the device after the previous sample, it ended then: its
    processes are assumed to have ended with it.
    """
    running = account.running
    if released is None or released.mono_ns <= before.mono_ns:
        return moment
    if running is not None and released.mono_ns <= running.start.mono_ns:
        # The release ended an earlier holding. Processes seen since belong to this holding.
        return moment if account.used_at(moment.mono_ns) else released
    return released


def _was_there(account: ContainerAccount, at: Instant) -> bool:
    """Whether a running holding had processes at the previous sample and has none at this one."""
    running = account.running
    gone = account.used_to_ns == at.mono_ns and not (account.has_processes or account.unseen)
    return gone and running is not None and running.start.mono_ns <= at.mono_ns
