"""Admission of containers to the account of a device, and the start of their holdings."""

from collections.abc import Sequence

from pipeline.model import Instant, PodInfo
from pipeline.usage.container_accounts import ContainerAccount, ContainerAccounts
from pipeline.usage.holder_timeline import HolderChange, HolderShare, HolderSpan
from pipeline.usage.holding_finalizer import HoldingFinalizer
from pipeline.usage.interval_samples import ContainerName, ProcessSample


class Admission:
    """Adds containers to the account of a device.

    Args:
        accounts: the containers in the account.
        finalizer: finalizes the holdings of containers that are evicted.
    """

    def __init__(self, accounts: ContainerAccounts, finalizer: HoldingFinalizer) -> None:
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
                self._containers.has_ending = True
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
