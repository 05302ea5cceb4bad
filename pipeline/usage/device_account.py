"""The usage account of one device."""

from collections.abc import Sequence
from typing import Final

from pipeline.model import NS, DeviceUsage, DeviceUse, Instant
from pipeline.usage.container_account import Ids
from pipeline.usage.container_accounts import ContainerAccounts
from pipeline.usage.device_totals import UsageTotals
from pipeline.usage.ended_holdings import NEVER, EndedHoldings
from pipeline.usage.energy_meter import EnergyMeter
from pipeline.usage.holder_timeline import Holders, HolderTimeline
from pipeline.usage.holding import HoldingAccount
from pipeline.usage.interval_samples import ContainerName, ProcessSample
from pipeline.usage.interval_split import (
    Memory,
    concealed_by_mps,
    split_busy,
    split_busy_with_mps,
    split_memory,
)
from pipeline.usage.presence import Presence
from pipeline.usage.recent_load import RecentLoad
from pipeline.usage.renames import IdentityCompletion, NameReferredTo
from pipeline.usage.restored_accounts import not_after, restore_totals

RESTORED_WAIT_NS: Final = 60 * NS
"""How long after the first sample podgpu waits for a container that was present when podgpu last
ran. A container that does not reappear ended when it was last seen."""

_HISTORY_NS: Final = 60 * NS
"""How long past holders are kept, for the first sample and for XID errors that come late."""

_GOOD_FOR_NS: Final = 15 * NS
"""How long a usage sample is valid if none has reported its own value yet: three default sample
intervals."""

_UNKNOWN: Final = Memory(None, None, None, {}, no_others=False)


class DeviceAccount:
    """Adds up the usage samples of one device, from the first one or from a restored account.

    Attributes:
        device: uuid of the device.
        timeline: the holders of the device over time.
        energy_meter: reads the energy counter of the GPU; not used for a MIG instance.
        containers: the containers in the account, their holdings, and pending usage.
        totals: the totals of the device.
        identity_completion: finds containers whose incomplete name can be completed.
        at: time of the last sample; None before the first one.

    Args:
        device: uuid of the device.
        ended: receives the holdings that are final.
        ids: generates the ids of this account, its containers and holdings.
        timeline: the holders so far.
    """

    def __init__(
        self, device: str, ended: EndedHoldings, ids: Ids, timeline: HolderTimeline | None = None
    ) -> None:
        self.device = device
        self._ids = ids
        self._id = ids()
        self.timeline = timeline or HolderTimeline()
        self.energy_meter = EnergyMeter()
        self.at: Instant | None = None
        self._start: Instant | None = None
        self.containers = ContainerAccounts(device, ended, ids)
        self.totals = UsageTotals(self.containers)
        self._recent_load = RecentLoad(self.containers)
        self._presence = Presence(self.timeline, self.containers)
        self.identity_completion = IdentityCompletion(
            self.timeline, self.containers, self._rename_user
        )
        self._memory = _UNKNOWN
        self._memory_end_ns = NEVER
        self._good_for_ns = _GOOD_FOR_NS
        self._users: frozenset[ContainerName | None] = frozenset()
        self._listed_end_ns = -NEVER
        self._restored_at: Instant | None = None
        self._wait_until_ns = NEVER

    def update_holders(
        self, held: Holders, at: Instant, referred_to: NameReferredTo, *, holders_known: bool
    ) -> None:
        """Record the holders of the device from a moment on.

        After the first sample, this starts the holdings of new holders, and ends the holdings of
        containers that neither hold nor use the device any more.

        Args:
            held: the holders.
            at: the moment.
            referred_to: returns whether a pod's name meant the pod with this uid at an earlier
                moment.
            holders_known: whether a source reports all holders of the device.
        """
        self.identity_completion.match_holders(held, referred_to)
        self.timeline.record(held, at, holders_known=holders_known)
        last = self.timeline.last
        if self.at is None or self._awaits_sample or last is None:
            # Before the first sample, sources may still report incomplete container names.
            self.timeline.forget(at.mono_ns - _HISTORY_NS)
            return
        moment = max(at, last.at, self.at)
        for name, one in held.items():
            self._presence.admit_holder(name, one, moment, at)
        self._end_absent(moment)

    def restore(self, stored: DeviceUsage, now: Instant) -> None:
        """Continue a stored account, before the first sample.

        Call `update_holders` afterwards.
        """
        without_uid = restore_totals(self.totals, stored, now, self._ids)
        self._id = stored.id or self._ids()
        self.at = self._restored_at = not_after(stored.at, now)
        self._start = min(not_after(stored.start, now), self.at)
        for entry in (*self.containers, *without_uid):
            self.containers.finalize_container(entry, now.mono_ns)

    def counting_start(self, use: DeviceUse) -> Instant | None:
        """Return the start of the time that a sample counts; None if it counts no time."""
        if self.at is None or self._awaits_sample:
            return None
        if use.since is None or use.since.mono_ns >= use.at.mono_ns:
            return None
        return max(use.since, self.at)

    def is_contiguous(self, since: Instant | None) -> bool:
        """Whether the time from `since` on follows the last sample without a gap."""
        return since is not None and self.at is not None and since.mono_ns == self.at.mono_ns

    def add_sample(
        self, use: DeviceUse, since: Instant | None, processes: Sequence[ProcessSample]
    ) -> None:
        """Add a sample, without its energy. Until that is added, the usage of the time is pending.

        Call `finalize_sampled` after the energy is added.

        Args:
            use: the sample, which is later than the last one.
            since: the start of the time that it counts; None if it counts no time.
            processes: the processes of `use` with their containers.
        """
        at = use.at
        begin = since or at
        self.identity_completion.match_processes(processes)
        spans = self.timeline.spans(begin.mono_ns, at.mono_ns)
        before = self._users if self.is_contiguous(since) else frozenset[ContainerName | None]()
        if not spans:
            # Changes after the sample do not belong to it.
            self._presence.admit_holders(self.timeline.at(at.mono_ns), at)
        self._presence.admit_interval(self.timeline.last, spans, processes, begin, at)
        # A container without an account counts as unattributed.
        account_of = self.containers.get
        processes = [
            p if p.container is None or account_of(p.container) else p._replace(container=None)
            for p in processes
        ]
        self._record_users(use, processes, begin)
        shown = self._memory
        missed = self._presence.end_missed(at, self.at or at)
        self._end_absent(at, missed)
        times = self._pass_time(since, at, shown)
        if since is None or use.since is None:
            self._recent_load.forget()
        else:
            time_ns, whole_ns = (at.mono_ns - start.mono_ns for start in (since, use.since))
            interval = self.totals.count_time(spans, time_ns, times)
            held = {name for span in spans if span.change for name in span.change.held}
            others = {*before, *held}
            if use.mps:
                self.totals.mark_concealed(interval, concealed_by_mps(processes, others))
            no_others = False
            if (total := use.busy_ns) is not None:
                # A device cannot be busy for longer than the interval.
                total = min(total, whole_ns) * time_ns // whole_ns
                processes = [p.scaled_to(time_ns, whole_ns) for p in processes]
                if use.mps:
                    found = split_busy_with_mps(total, processes, interval.concealed, others)
                    # The processes of the server, and concealed ones, are no users.
                    users = frozenset[ContainerName | None]()
                else:
                    sole_holder = next(iter(held)) if len(held) == 1 else None
                    found = split_busy(total, processes, sole_holder, before, listed=use.listed)
                    users = before | {one.owner(sole_holder) for one in processes}
                self.totals.count_busy(interval, found, users)
                no_others = found.no_others
            self._recent_load.add(interval, no_others=no_others)
            self.containers.pending.append(interval)
        self._presence.restart_returned(missed, at)
        self._good_for_ns = use.good_for_ns
        self._mark_sampled(at)

    def skip_sample(self, at: Instant) -> None:
        """Record the time of a sample of a GPU with MIG instances.

        Only the instances have usage: the GPU's own holdings end, and its memory is unknown.
        """
        self._end_use(at)
        self._end_absent(at)
        self.forget_present()
        self._pass_time(None, at, _UNKNOWN)
        self._mark_sampled(at)

    def add_pending_energy(self, used: int | None) -> None:
        """Add the energy of a GPU without MIG instances, used in the time of the pending usage.

        While a good reading of the energy counter is outstanding, the usage stays pending.

        Args:
            used: energy in millijoules; None if it is unknown. Then it is in no account.
        """
        if self.energy_meter.has_outstanding_energy:
            return
        interval = self.containers.take_pending()
        if used is not None and interval.time_ns:
            idle = self.energy_meter.idle_energy(used, interval.busy_ns)
            self.totals.count_energy(used, idle, interval)

    def finalize_sampled(self, now_ns: int) -> None:
        """Finalize holdings that ended by the time of the last sample and have no pending usage."""
        if self.at is not None:
            pending = self.containers.pending.holding_times
            self.containers.finalize(now_ns, self.at.mono_ns, keep=pending)

    def end_all_holdings(self, at: Instant, now_ns: int) -> None:
        """End and finalize all holdings, because the device or its account is removed."""
        moment = at if self.at is None else max(at, self.at)
        self._end_use(moment)
        self._end_unseen()
        for entry in self.containers:
            if entry.running is not None:
                entry.end(moment)
        self.containers.take_pending()
        self.forget_present()
        self.containers.finalize(now_ns)

    def forget_present(self) -> None:
        """Set memory, and how busy the containers are, to unknown."""
        self._memory, self._memory_end_ns = _UNKNOWN, NEVER
        self.containers.forget_memory()
        self._recent_load.forget()

    def expire(self, now_ns: int) -> bool:
        """Discard what has expired: memory, unseen containers, ended containers and holdings.

        Returns:
            Whether anything changed.
        """
        changed = self._memory_end_ns < now_ns
        if changed:
            self.forget_present()
        if self._wait_until_ns < now_ns:
            self._end_unseen()
            self.finalize_sampled(now_ns)
            changed = True
        changed |= self.containers.finalize(now_ns, now_ns - self._good_for_ns - 1)
        return self.containers.evict_expired(now_ns) or changed

    @property
    def due_ns(self) -> int:
        """The last time at which `expire` changes nothing."""
        due_ns = self.containers.due_ns(self._good_for_ns)
        return min(self._memory_end_ns, self._wait_until_ns, due_ns)

    def usage(self) -> DeviceUsage | None:
        """Return the usage; None before the first sample."""
        at, totals, accounts = self.at, self.totals, self.containers
        if self._start is None or at is None:
            return None
        return DeviceUsage(
            self.device,
            self._start,
            at,
            tuple([entry.usage(self.device, at.mono_ns) for entry in accounts]),
            self._memory.used,
            self._memory.reserved,
            self._memory.unattributed,
            totals.busy_ns,
            None if totals.busy_ns is None else totals.busy_unattributed_ns,
            totals.elapsed_ns,
            totals.unheld_ns,
            totals.energy_mj,
            None if totals.energy_mj is None else totals.energy_unattributed_mj,
            accounts.forgotten_busy_ns,
            accounts.forgotten_held_ns,
            accounts.forgotten_energy_mj,
            totals.unknown_ns,
            self._id,
        )

    def _rename_user(self, before: ContainerName, name: ContainerName) -> None:
        self._users = frozenset([name if one == before else one for one in self._users])
        self._memory.rename(before, name)

    def _record_users(
        self, use: DeviceUse, processes: Sequence[ProcessSample], begin: Instant
    ) -> None:
        """Record which containers use the device now, and their memory."""
        holding = self.timeline.at(use.at.mono_ns)
        sole_holder = next(iter(holding)) if len(holding) == 1 else None
        if sole_holder is not None and self.containers.get(sole_holder) is None:
            sole_holder = None
        self._memory = split_memory(
            use.memory_used_bytes,
            use.memory_reserved_bytes,
            processes,
            sole_holder,
            listed=use.listed,
        )
        self._memory_end_ns = use.at.mono_ns + use.good_for_ns
        users = frozenset([p.owner(sole_holder) for p in processes if p.is_running])
        if use.listed:
            self._listed_end_ns = self._memory_end_ns
        elif use.at.mono_ns <= self._listed_end_ns:
            users |= self._users
        self._users = users
        for entry in self.containers:
            uses = entry.name in self._users
            if uses and not entry.has_processes:
                entry.used_from_ns = begin.mono_ns
            elif entry.has_processes and not uses:
                entry.used_to_ns = use.at.mono_ns
            entry.has_processes = uses

    def _end_use(self, at: Instant) -> None:
        self._users = frozenset()
        for entry in self.containers:
            if entry.has_processes:
                entry.has_processes, entry.used_to_ns = False, at.mono_ns

    def _pass_time(
        self, since: Instant | None, at: Instant, shown: Memory
    ) -> dict[HoldingAccount, int]:
        """Advance all holdings to a sample; return the counted time of each one that has any.

        Args:
            since: the start of the time that the sample counts; None if it counts no time.
            at: when the sample was taken.
            shown: the memory at the sample, by container.
        """
        at_ns, since_ns = at.mono_ns, None if since is None else since.mono_ns
        adjoins, times = self.is_contiguous(since), dict[HoldingAccount, int]()
        memories, elapsed_ns = shown.containers, self.totals.elapsed_ns
        nothing = 0 if shown.no_others else None
        for entry in self.containers:
            running = entry.running
            if running is not None and entry.unseen:
                running.advance_unseen(since_ns, at_ns, elapsed_ns)
                continue
            if running is None and not entry.ending:
                continue
            for one in entry.open_holdings():
                counted_ns = one.advance(since_ns, at_ns, elapsed_ns, adjoins=adjoins)
                if counted_ns:
                    times[one] = counted_ns
            has = memories.get(entry.name, nothing)
            if running is not None:
                entry.memory_bytes = has
            now = running if running is not None and running.start.mono_ns <= at_ns else None
            if now is None:
                now = entry.holding_at(at_ns)
            if now is not None:
                now.set_memory(has)
        return times

    def _end_absent(
        self, moment: Instant, known_ended: frozenset[ContainerName] = frozenset()
    ) -> None:
        """End absent containers, according to the current holders and the last sample's users."""
        self._presence.end_absent(moment, self.at or moment, known_ended)
        # If processes are invisible, a container has memory only while it holds the device.
        gone = [e.name for e in self.containers if e.ended and e.name in self._memory.containers]
        self._memory = self._memory.without(gone)

    def _end_unseen(self) -> None:
        """End the containers that were present when podgpu last ran and did not reappear."""
        self._wait_until_ns = NEVER
        for entry in self.containers:
            if entry.unseen and self._restored_at is not None:
                entry.end_at_last_seen(self._restored_at)

    def _mark_sampled(self, at: Instant) -> None:
        if self._awaits_sample:
            self._wait_until_ns = at.mono_ns + RESTORED_WAIT_NS
        self._start = self._start or at
        self.at = at
        self.timeline.forget(at.mono_ns - _HISTORY_NS)
        self.containers.advance_sample(at.mono_ns)

    @property
    def _awaits_sample(self) -> bool:
        """Whether the account was restored and has no sample since."""
        return self._restored_at is not None and self._restored_at is self.at
