"""Presence of containers on a device: their admission, and the start and end of holdings."""

from collections.abc import Collection, Sequence

from pipeline.model import Instant, PodInfo
from pipeline.usage.container_accounts import ContainerAccount, ContainerAccounts
from pipeline.usage.holder_timeline import HolderChange, HolderShare, HolderSpan, HolderTimeline
from pipeline.usage.holding_finalizer import HoldingFinalizer
from pipeline.usage.interval_samples import ContainerName, ProcessSample


class Presence:
    """Adds containers to the account of a device; starts and ends their holdings.

    Args:
        timeline: the holders of the device over time.
        accounts: the containers in the account.
        finalizer: finalizes the holdings of containers that are evicted.
    """

    def __init__(
        self, timeline: HolderTimeline, accounts: ContainerAccounts, finalizer: HoldingFinalizer
    ) -> None:
        self._timeline = timeline
        self._containers = accounts
        self._finalizer = finalizer

    def admit_holder(self, held: HolderShare, start: Instant, now: Instant) -> None:
        """Add a container that holds the device; start a holding if none is running."""
        entry = self._admit(held.container, held.pod, start, now)
        if entry is not None:
            holding = entry.start_holding(start)
            holding.source, holding.evidence = held.source, held.evidence

    def admit_holders(self, held: Sequence[HolderShare], at: Instant) -> None:
        """Add the containers that held the device at a sample that ends no counted interval."""
        for one in held:
            entry = self._containers.get(one.container)
            if entry is None or entry.unseen or entry.running is None:
                self.admit_holder(one, at, at)

    def admit_interval(
        self,
        last: HolderChange | None,
        spans: Sequence[HolderSpan],
        processes: Sequence[ProcessSample],
        begin: Instant,
        at: Instant,
    ) -> None:
        """Add all containers that held or used the device in an interval.

        Args:
            last: the holders now.
            spans: the interval, divided where the holders changed; empty if no time is counted.
            processes: the processes of the interval.
            begin: the start of the interval.
            at: the end of the interval, when the sample was taken.
        """
        self._containers.rejected.clear()
        for change in [span.change for span in spans]:
            if change is None or change is last:
                continue
            for one in change.held:
                # A container in the account was admitted when its source reported it.
                if self._containers.get(one.container) is None:
                    self.admit_holder(one, max(begin, change.at), at)
        if last is not None:
            # A container that began to hold after the sample has no part in the interval.
            start = max(begin if spans and spans[-1].change is last else at, last.at)
            for one in last.held:
                self.admit_holder(one, start, at)
        users: dict[ContainerName, ProcessSample] = {}
        for process in processes:
            container = process.container
            if container is not None:
                known = users.get(container)
                if known is None or process.presence_key > known.presence_key:
                    users[container] = process
        for container in sorted(users) if len(users) > 1 else users:
            self._admit_user(container, users[container], begin, at)

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
        holding = {held.container for held in self._timeline.at(at.mono_ns)}
        returned = (
            frozenset[ContainerName]().union(*[change.containers for change in later]) - holding
        )
        found = [self._containers.get(name) for name in returned]
        missed = [entry for entry in found if entry is not None and _was_there(entry, at)]
        for entry in missed:
            released = self._timeline.released(entry.name, at.mono_ns)
            entry.end(_ended(entry, released, at, before))
        return frozenset([entry.name for entry in missed])

    def restart_returned(self, missed: Collection[ContainerName], at: Instant) -> None:
        """Start and end holdings of these containers by the holder changes after the sample."""
        for change in self._timeline.after(at.mono_ns) if missed else ():
            for held in change.held:
                if held.container in missed:
                    self.admit_holder(held, change.at, at)
            for name in set(missed) - change.containers:
                entry = self._containers.get(name)
                if entry is not None and entry.running is not None:
                    entry.end(change.at)

    def _admit_user(
        self, container: ContainerName, process: ProcessSample, begin: Instant, at: Instant
    ) -> None:
        entry = self._admit(container, process.pod, begin, at)
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

    def _admit(
        self, container: ContainerName, pod: PodInfo | None, start: Instant, now: Instant
    ) -> ContainerAccount | None:
        before = self._containers.get(container)
        if before is not None and not container[3] and before.ended_before(start):
            # Without a uid it is unknown whether this is the same pod.
            self._containers.remove(before)
            self._finalizer.release_container(before, now.mono_ns)
        entry, made_room = self._containers.admit(container, pod, start)
        if made_room is not None:
            self._finalizer.release_container(made_room, now.mono_ns)
        return entry


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
