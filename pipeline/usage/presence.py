"""Presence of containers on a device: their admission, and the start and end of holdings."""

from collections.abc import Collection, Sequence
from operator import attrgetter

from pipeline.model import Holder, Instant
from pipeline.usage.container_account import ContainerAccount
from pipeline.usage.container_accounts import ContainerAccounts
from pipeline.usage.holder_timeline import HolderChange, Holders, HolderSpan, HolderTimeline
from pipeline.usage.interval_samples import ContainerName, ProcessSample


class Presence:
    """Adds containers to the account of a device; starts and ends their holdings.

    Args:
        timeline: the holders of the device over time.
        accounts: the containers in the account.
    """

    def __init__(self, timeline: HolderTimeline, accounts: ContainerAccounts) -> None:
        self._timeline = timeline
        self._containers = accounts

    def admit_holder(self, name: ContainerName, held: Holder, start: Instant, now: Instant) -> None:
        """Add a container that holds the device; start a holding if none is running."""
        entry = self._containers.admit(name, held.pod, start, now)
        if entry is not None:
            holding = entry.start_holding(start)
            holding.source, holding.evidence = held.source, held.evidence

    def admit_holders(self, held: Holders, at: Instant) -> None:
        """Add the containers that held the device at a sample that ends no counted interval.

        A container that was seen since podgpu started and has a running holding does not change.
        """
        for name, one in held.items():
            entry = self._containers.get(name)
            if entry is None or entry.unseen or entry.running is None:
                self.admit_holder(name, one, at, at)

    def admit_interval(
        self,
        last: HolderChange | None,
        spans: Sequence[HolderSpan],
        processes: Sequence[ProcessSample],
        begin: Instant,
        at: Instant,
    ) -> None:
        """Add the containers that held or used the device in an interval to the device's account.

        A holding starts for each that still holds or uses the device and has none running. One that
        came and went in the interval may also get a holding. Containers that began to hold the
        device after the sample that ends the interval are added too.

        Args:
            last: the newest change of holders; None if there is none.
            spans: the interval, divided where the holders changed; empty if no time is counted.
            processes: the processes of the interval.
            begin: the start of the interval.
            at: the end of the interval, when the sample was taken.
        """
        self._containers.rejected.clear()
        for change in [span.change for span in spans]:
            if change is None or change is last:
                continue
            for name, one in change.held.items():
                # A container in the account was admitted when its source reported it.
                if self._containers.get(name) is None:
                    self.admit_holder(name, one, max(begin, change.at), at)
        if last is not None:
            # A container that began to hold after the sample has no part in the interval.
            start = max(begin if spans and spans[-1].change is last else at, last.at)
            for name, one in last.held.items():
                self.admit_holder(name, one, start, at)
        users: dict[ContainerName, ProcessSample] = {}
        for process in sorted(processes, key=attrgetter("presence_key"), reverse=True):
            if process.container is not None:
                users.setdefault(process.container, process)
        for container in sorted(users):
            self._admit_user(container, users[container], begin, at)

    def end_absent(
        self, moment: Instant, before: Instant, known_ended: Collection[ContainerName] = ()
    ) -> None:
        """End absent containers, by the current holders and the last usage sample.

        A container that is present without a holding starts one.

        Args:
            moment: the present moment.
            before: the previous sample.
            known_ended: containers that are known to have ended, although they hold the device now.
        """
        last = self._timeline.last
        holding = set[ContainerName]() if last is None else last.held.keys() - known_ended
        for entry in self._containers:
            if entry.has_processes or entry.name in holding:
                if entry.running is None or entry.unseen:
                    entry.start_holding(moment)
            elif entry.ended is None and not entry.unseen:
                released = self._timeline.released(entry.name)
                entry.end(_ended(entry, released, moment, before))

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
        returned = {name for change in later for name in change.held}
        returned -= self._timeline.at(at.mono_ns).keys()
        found = [self._containers.get(name) for name in returned]
        missed = [entry for entry in found if entry is not None and _was_there(entry, at)]
        for entry in missed:
            released = self._timeline.released(entry.name, at.mono_ns)
            entry.end(_ended(entry, released, at, before))
        return frozenset([entry.name for entry in missed])

    def restart_returned(self, missed: Collection[ContainerName], at: Instant) -> None:
        """Start and end holdings of the missed containers, by the changes of holders since `at`."""
        for change in self._timeline.after(at.mono_ns) if missed else ():
            for name, one in change.held.items():
                if name in missed:
                    self.admit_holder(name, one, change.at, at)
            for name in set(missed) - change.held.keys():
                entry = self._containers.get(name)
                if entry is not None and entry.running is not None:
                    entry.end(change.at)

    def _admit_user(
        self, container: ContainerName, process: ProcessSample, begin: Instant, at: Instant
    ) -> None:
        entry = self._containers.admit(container, process.pod, begin, at)
        if entry is None:
            return
        if not entry.has_processes:
            entry.used_from_ns = begin.mono_ns
        entry.used_to_ns = at.mono_ns
        running = entry.running
        later = running if running is not None and running.start.mono_ns > at.mono_ns else None
        if running is not None and later is None and not entry.unseen:
            return
        last = entry.ending[-1].end if entry.ending else None
        apart = last is None or last.mono_ns <= begin.mono_ns
        # The container came and went in the interval, and no earlier holding reaches into it.
        passed = (
            begin.mono_ns < at.mono_ns and (process.busy_ns or not entry.last_finalized) and apart
        )
        if later is not None:
            # The container began to hold the device after the sample.
            if process.is_running and apart:
                entry.move_start_back(begin)
            elif passed:
                entry.add_earlier_holding(begin, at)
        elif process.is_running or passed:
            entry.start_holding(begin)


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
