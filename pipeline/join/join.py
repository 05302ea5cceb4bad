"""The class `Join`: routes events to the tables and makes snapshots of them."""

from collections.abc import Mapping
from typing import Final

from pipeline.join.attribution import Attributor, Outcome
from pipeline.join.job_table import JobTable
from pipeline.join.process_owners import ProcessOwners
from pipeline.join.reading_table import ReadingTable, SeriesKey
from pipeline.join.source_table import SourceTable
from pipeline.join.topology_table import TopologyTable
from pipeline.join.usage_table import UsageTable
from pipeline.join.xid_table import XidTable
from pipeline.model import (
    ClaimsReplaced,
    ClockTicked,
    ContainersReplaced,
    ContainerStarted,
    ContainerStopped,
    DeviceAliasesReplaced,
    DevicesDiscovered,
    Envelope,
    Hint,
    Instant,
    JobsReplaced,
    Layout,
    PodDeleted,
    PodsReplaced,
    PodUpserted,
    ProcessesSampled,
    ResourcesAdvertised,
    SamplesTaken,
    Series,
    Snapshot,
    SourceAdded,
    SourceLost,
    SourceRemoved,
    SourceState,
    TopologyRead,
    TotalsRestored,
    XidsReported,
    owner_kind,
)

_UNCHANGED: Final = Outcome(changed=False)


class Join:
    """Combines readings with the containers that hold the devices.

    It is not thread-safe and never blocks. `apply` must be called in the order of the inbox, so
    that a claim that was emitted before a reading applies to that reading.

    Args:
        run: identifies this run of podgpu; prefix of the ids of accounts and holdings.
    """

    def __init__(self, run: str = "") -> None:
        self._sources = SourceTable()
        self._attributor = Attributor(self._sources)
        self._readings = ReadingTable()
        self._topology = TopologyTable()
        self._jobs = JobTable()
        self._process_owners = ProcessOwners(self._attributor.pods, self._attributor.containers)
        self._usage = UsageTable(self._sources, self._process_owners, run)
        self._xids = XidTable(self._usage.accounts, self._process_owners)
        self._changed_at: Instant | None = None
        self._keys: list[SeriesKey] = []
        self._canonical_uuids: list[tuple[int, str]] = []
        self._series: dict[SeriesKey, Series] = {}
        self._layout = Layout((), {})
        self._starts: tuple[Instant | None, ...] = ()

    def apply(self, envelope: Envelope, *, more_pending: bool = False) -> Outcome:
        """Apply one event, and advance the time to that of the event.

        Args:
            envelope: the event.
            more_pending: whether more events wait, so that changes of holders may stay pending
                until `resolve_pending` or the next `apply` without this flag.
        """
        now = envelope.at
        outcome = _UNCHANGED
        if self._attributor.has_pending_changes and self._must_resolve_before(envelope):
            outcome |= self.resolve_pending(now)
        if not self._attributor.has_pending_changes:
            self._changed_at = now
        # Reports must not expire because the event loop was too busy to receive confirmations.
        due = Instant(now.mono_ns - envelope.loop_delay_ns, now.wall_ns - envelope.loop_delay_ns)
        expired = (
            self._readings.expire(due.mono_ns),
            self._attributor.expire(due),
            self._jobs.expire(due.mono_ns),
            self._xids.expire(now.mono_ns),
            self._usage.expire(now),
        )
        outcome |= Outcome(changed=any(expired))
        up = self._sources.is_up(envelope.source)
        outcome |= self._dispatch(envelope)
        if self._usage.started_counting(now):
            all_devices = Hint(devices=frozenset(self._attributor.attributions))
            outcome |= Outcome(changed=False, hints=(all_devices,))
        if self._sources.is_up(envelope.source) != up:
            # Missing entries count only while a source is up, and a source that is up has
            # precedence over one that is down for the profiles of MIG instances.
            self._attributor.rebuild_devices(envelope.source)
        return outcome if more_pending else outcome | self.resolve_pending(now)

    @property
    def has_pending_changes(self) -> bool:
        """Whether changes wait for `resolve_pending`."""
        return self._attributor.has_pending_changes

    def resolve_pending(self, at: Instant) -> Outcome:
        """Resolve pending changes to holders. Must be called before `snapshot`."""
        attributor = self._attributor
        if not attributor.has_pending_changes:
            return _UNCHANGED
        at = self._changed_at or at
        outcome = attributor.resolve_pending(at)
        self._usage.update_holders(
            attributor.attributions,
            at,
            holders_known=attributor.holders_known,
            referred_to=attributor.name_referred_to_pod,
        )
        return outcome

    def _must_resolve_before(self, envelope: Envelope) -> bool:
        """Whether pending changes must be resolved before this event is applied.

        Usage samples and XID errors are attributed to the resolved holders. Before most other
        events the changes of an earlier moment are resolved: a container that came and went between
        two events has held its device for that time. Pods change in bursts that mostly change no
        holder, so their changes may wait.
        """
        event, before = envelope.event, self._changed_at
        if isinstance(event, ProcessesSampled | XidsReported):
            return True
        if isinstance(event, PodUpserted) and not event.pod.ended:
            return False
        return before is None or before.mono_ns < envelope.at.mono_ns

    def _dispatch(self, envelope: Envelope) -> Outcome:
        match envelope.event:
            case ClockTicked():
                return _UNCHANGED
            case TotalsRestored(accounts):
                if envelope.relayed_by:
                    # A recording may be played again: existing accounts continue or are final.
                    has_account = self._usage.accounts.has_account
                    accounts = tuple([one for one in accounts if not has_account(one.device)])
                self._usage.accounts.restore(accounts, envelope.at)
                return _UNCHANGED
            case SourceLost():
                changed = self._sources.record_loss(envelope)
                if self._sources.take_wait_expired(envelope.at):
                    self._attributor.mark_changed()
                return Outcome(changed)
            case SourceRemoved():
                for name in self._sources.with_relayed(envelope.source):
                    self._sources.remove(name)
                    self._readings.remove(name)
                    self._attributor.remove(name)
                    self._topology.remove(name)
                    self._jobs.remove(name)
                    self._usage.remove(name, envelope.at)
                self._rebuild_devices(envelope.source)
                return Outcome(changed=True)
            case SourceAdded():
                self._sources.record_start(envelope)
                self._rebuild_devices(envelope.source)
                return Outcome(changed=True)
            case _:
                came_up = Outcome(changed=self._sources.record_event(envelope))
                return came_up | self._apply_report(envelope)

    def _apply_report(self, envelope: Envelope) -> Outcome:
        """Apply an event of a source."""
        source, at, attributor = envelope.source, envelope.at, self._attributor
        changed = False
        match envelope.event:
            case SamplesTaken(readings, processes):
                self._readings.update(source, readings)
                self._readings.update_processes(source, processes)
                changed = True
            case ProcessesSampled(uses):
                changed = self._usage.add_samples(envelope, uses, attributor.mig_placements)
            case XidsReported(reports):
                changed = self._xids.add_reports(
                    source, reports, at, attributor.attributions, attributor.mig_placements
                )
            case ClaimsReplaced() as claims:
                attributor.replace_claims(source, claims)
                self._sources.record_confirmation(source, at)
            case PodsReplaced() | PodUpserted() | PodDeleted() as event:
                self._sources.record_confirmation(source, at)
                return self._apply_pods(source, event, at)
            case ContainersReplaced() | ContainerStarted() | ContainerStopped() as event:
                self._sources.record_confirmation(source, at)
                return self._apply_containers(source, event)
            case DeviceAliasesReplaced() as aliases:
                if changed := attributor.replace_aliases(source, aliases, at):
                    self._rebuild_devices(source)
            case ResourcesAdvertised() as resources:
                changed = attributor.replace_resources(source, resources, at)
            case TopologyRead() as topology:
                changed = self._topology.replace(source, topology)
            case JobsReplaced() as jobs:
                changed = self._jobs.replace(source, jobs, at.mono_ns)
            case DevicesDiscovered(devices):
                if changed := attributor.inventory.replace(source, devices):
                    placements = attributor.mig_placements
                    self._rebuild_devices(source)
                    self._readings.drop_moved_instances(placements, attributor.mig_placements)
            case _:
                pass
        return Outcome(changed=changed)

    def _apply_pods(
        self, source: str, event: PodsReplaced | PodUpserted | PodDeleted, at: Instant
    ) -> Outcome:
        pods, attributor = self._attributor.pods, self._attributor
        match event:
            case PodsReplaced(reported):
                change = pods.replace(source, event, at)
            case PodUpserted(pod):
                change, reported = pods.upsert(source, pod, at), (pod,)
            case _:
                change, reported = pods.delete(source, event.uid, at), ()
        known = [pods.with_node_uid(source, pod) for pod in reported]
        self._process_owners.update_pods(known)
        self._usage.update_pods(known, attributor.name_referred_to_pod)
        if change.affects_claims:
            attributor.mark_changed()
        changed = change.changed_pod
        # A pod that is not admitted, or has ended, holds nothing that could have changed.
        if changed is None or changed.ended or changed.started is None:
            return _UNCHANGED
        if not (changed.wants_devices or changed.claims):
            return _UNCHANGED
        return _pod_outcome(changed.info.uid, source)

    def _apply_containers(
        self, source: str, event: ContainersReplaced | ContainerStarted | ContainerStopped
    ) -> Outcome:
        containers, uid = self._attributor.containers, ""
        match event:
            case ContainersReplaced(reported):
                changed = containers.replace(source, event)
            case ContainerStarted(container):
                changed, reported = containers.start(source, container), (container,)
                uid = container.subject.uid
            case _:
                stopped = containers.stop(source, event.container_id)
                changed, reported = stopped is not None, ()
                uid = stopped.subject.uid if stopped else ""
        self._process_owners.update_containers(reported)
        if changed:
            self._attributor.mark_changed(source)
        is_of_pod = uid != "" and owner_kind(uid) == "pod"
        return _pod_outcome(uid, source) if changed and is_of_pod else _UNCHANGED

    def _rebuild_devices(self, source: str) -> None:
        self._readings.layout_changed = True
        self._attributor.rebuild_devices(source)

    @property
    def plugin_managed(self) -> frozenset[str]:
        """Devices that only a device plugin or a DRA driver allocates, and no scheduler."""
        return self._attributor.resolution.plugin_managed

    @property
    def all_reported(self) -> bool:
        """Whether each source has reported, or was lost, since it was added.

        Aliases, advertised resources and topology do not count.
        """
        return self._sources.all_reported

    @property
    def holders_known(self) -> bool:
        """Whether all holders are known. Otherwise a device without holders need not be free."""
        return self._attributor.holders_known

    @property
    def unknown_xid_devices(self) -> Mapping[str, int]:
        """Number of XID errors of unknown devices, by the device id that the source wrote."""
        return self._xids.unknown_devices

    def sources(self) -> Mapping[str, SourceState]:
        """Return the present state of each source, independent of snapshots."""
        return self._sources.states()

    def snapshot(self, at: Instant) -> Snapshot:
        """Return everything that is known. Readings taken since the last call are fresh."""
        self._update_layout()
        table = self._readings
        fresh = table.fresh
        readings = [table[key] for key in self._keys]
        for position, uuid in self._canonical_uuids:
            readings[position] = readings[position]._replace(device=uuid)
        snapshot = Snapshot(
            at=at,
            layout=self._layout,
            readings=tuple(readings),
            fresh=tuple([at for at, key in enumerate(self._keys) if key in fresh]) if fresh else (),
            starts=self._starts,
            processes=table.processes(self._sources.ranking, self._attributor.mig_placements),
            sources=self._sources.states(),
            topology=self._topology.topology,
            topology_source=self._topology.source,
            availability=self._topology.availability,
            usage=self._usage.usage,
            xids=self._xids.errors,
        )
        fresh.clear()
        return snapshot

    def _update_layout(self) -> None:
        """Make a new layout if series or attributions changed; unchanged series stay the same."""
        attributions = self._attributor.attributions
        resources = self._attributor.count_resources()
        layout_changed = self._readings.layout_changed
        placements = self._attributor.mig_placements
        if layout_changed:
            devices = {uuid: known.device for uuid, known in attributions.items()}
            self._keys = self._readings.keys(devices, self._sources.ranking, placements)
        if layout_changed or self._readings.starts_changed:
            self._readings.starts_changed = False
            starts = self._readings.starts
            self._starts = tuple([starts.get(key) for key in self._keys])
        layout = self._layout
        # Without changes this is cheap: the table recognizes the attributions of each GPU.
        known_attributions = self._attributor.known_attributions
        self._topology.recompute(self._sources.ranking, known_attributions, self._sources.is_up)
        jobs = self._jobs.by_device(self._sources.ranking, attributions)
        if not layout_changed and (layout.attributions, layout.resources, layout.jobs) == (
            attributions,
            resources,
            jobs,
        ):
            return
        series: dict[SeriesKey, Series] = {}
        self._canonical_uuids = []
        for at, key in enumerate(self._keys):
            uuid = placements.canonical_uuid(key.device)
            if uuid != key.device:
                self._canonical_uuids.append((at, uuid))
            attribution = attributions[uuid]
            known = self._series.get(key)
            if known is None or known.attribution is not attribution:
                known = Series(key.field, key.attrs, attribution)
            series[key] = known
        self._series = series
        self._layout = Layout(tuple(series.values()), dict(attributions), resources, jobs)


def _pod_outcome(uid: str, source: str) -> Outcome:
    hint = Hint(pods=frozenset({uid}), sources=frozenset({source}))
    return Outcome(changed=False, hints=(hint,))
