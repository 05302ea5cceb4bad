"""The join itself: routes events to the tables and makes snapshots of them."""

from collections.abc import Mapping

from pipeline.join.attribution import Attributor, Outcome
from pipeline.join.process_owners import Owners
from pipeline.join.reading_table import Key, ReadingTable
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
    Layout,
    Pod,
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
)


class Join:
    """Joins readings with the containers that hold the devices.

    Not thread-safe and never blocking. `apply` must see envelopes in the order of the inbox: a
    claim emitted before a reading is joined before it.

    Args:
        run: identifies this run of podgpu; the ids of accounts and holdings begin with it.
    """

    def __init__(self, run: str = "") -> None:
        self._sources = SourceTable()
        self._attributor = Attributor(self._sources)
        self._readings = ReadingTable()
        self._topology = TopologyTable()
        self._owners = Owners(self._attributor.pods, self._attributor.containers)
        self._usage = UsageTable(self._sources, self._owners, run)
        self._xids = XidTable(self._usage.accounts, self._owners)
        self._noted_at: Instant | None = None
        self._keys: list[Key] = []
        self._renamed: list[tuple[int, str]] = []
        self._series: dict[Key, Series] = {}
        self._layout = Layout((), {})
        self._starts: tuple[Instant | None, ...] = ()

    def apply(self, envelope: Envelope, *, more: bool = False) -> Outcome:
        """Take in one event, and let time go on to its moment.

        Args:
            envelope: the event.
            more: others wait, so that what this one changes need not be worked out yet; `settle`
                does, or the next `apply` without it.
        """
        now = envelope.at
        outcome = Outcome(changed=False)
        if self._attributor.due and self._comes_after(envelope):
            outcome |= self.settle(now)
        if not self._attributor.due:
            self._noted_at = now
        # A loop that was too busy to hear of something is no reason to call it old.
        due = Instant(now.mono_ns - envelope.late_ns, now.wall_ns - envelope.late_ns)
        expired = self._readings.expire(due.mono_ns)
        outcome |= self._attributor.expire(due)
        of_errors = self._xids.expire(now.mono_ns)
        if self._usage.expire(now) or expired or of_errors:
            outcome |= Outcome(changed=True)
        up = self._sources.is_up(envelope.source)
        outcome |= self._dispatch(envelope)
        if self._usage.begin(now):
            everything = Hint(devices=frozenset(self._attributor.attributions))
            outcome |= Outcome(changed=False, hints=(everything,))
        if self._sources.is_up(envelope.source) != up:
            # What a source doesn't name counts for something only while it does its work, and of
            # a device it is believed before one that is down.
            self._attributor.enumerate(envelope.source)
        return outcome if more else outcome | self.settle(now)

    @property
    def unsettled(self) -> bool:
        """Whether something has changed that isn't worked out yet."""
        return self._attributor.due

    def settle(self, at: Instant) -> Outcome:
        """Work out who holds what, if that may have changed; has to come before `snapshot`."""
        if not self._attributor.due:
            return Outcome(changed=False)
        at = self._noted_at or at
        outcome = self._attributor.settle(at)
        attributor = self._attributor
        self._usage.hold(
            attributor.attributions, at, informed=attributor.informed, meant=attributor.meant
        )
        return outcome

    def _comes_after(self, envelope: Envelope) -> bool:
        """Whether what has changed so far has to be worked out before an event.

        Whose a device was is told by the changes that are known, not by those worked out. And a
        container that comes and goes while both events wait has held its device for that time. Pods
        come in bursts, and most of what is told of them changes no holder: they wait together.
        """
        match envelope.event:
            case ProcessesSampled() | XidsReported():
                return True
            case PodUpserted(pod) if not pod.ended:
                return False
            case _:
                before = self._noted_at
                return before is None or before.mono_ns < envelope.at.mono_ns

    def _dispatch(self, envelope: Envelope) -> Outcome:
        source, who = envelope.source, self._attributor
        match envelope.event:
            case SamplesTaken() | ProcessesSampled() | XidsReported():
                return self._heard(envelope) | self._take_facts(envelope)
            case ClaimsReplaced() as said:
                who.claim(source, said)
                return self._confirmed(envelope)
            case PodsReplaced() | PodUpserted() | PodDeleted():
                return self._confirmed(envelope) | self._take_pods(envelope)
            case ContainersReplaced() | ContainerStarted() | ContainerStopped():
                return self._confirmed(envelope) | self._take_containers(envelope)
            case DeviceAliasesReplaced() as told:
                woke = self._heard(envelope)
                return self._enumerate(envelope) if who.name(source, told, envelope.at) else woke
            case ResourcesAdvertised() | TopologyRead():
                return self._heard(envelope) | self._take_node(envelope)
            case DevicesDiscovered(devices):
                woke = self._heard(envelope)
                self._sources.counted(source, len(devices))
                if not who.inventory.replace(source, devices):
                    return woke
                before = who.places
                found = self._enumerate(envelope)
                self._readings.moved(before, who.places)
                return found
            case SourceAdded() | SourceLost() | SourceRemoved():
                return self._take_source(envelope)
            case TotalsRestored() | ClockTicked():
                return self._take_own(envelope)

    def _take_own(self, envelope: Envelope) -> Outcome:
        """Take in what podgpu says itself: no source is heard by that, and nothing shown."""
        match envelope.event:
            case TotalsRestored(accounts):
                if envelope.via:
                    # A recording that is played once more: what it told of goes on, or is over.
                    begun = self._usage.accounts.goes_on
                    accounts = tuple([one for one in accounts if not begun(one.device)])
                self._usage.accounts.restore(accounts, envelope.at)
            case _:
                pass
        return Outcome(changed=False)

    def _take_facts(self, envelope: Envelope) -> Outcome:
        source, told = envelope.source, envelope.event
        match told:
            case SamplesTaken(readings, processes):
                self._readings.take(source, readings)
                self._readings.take_processes(source, processes)
                return Outcome(changed=True)
            case ProcessesSampled(uses):
                places = self._attributor.places
                return Outcome(changed=self._usage.take(envelope, uses, places))
            case XidsReported(reports):
                known, places = self._attributor.attributions, self._attributor.places
                return Outcome(self._xids.take(source, reports, envelope.at, known, places))
            case _:
                return Outcome(changed=False)

    def _take_node(self, envelope: Envelope) -> Outcome:
        """Take in what is said of the node as a whole."""
        source, told = envelope.source, envelope.event
        match told:
            case ResourcesAdvertised():
                return Outcome(changed=self._attributor.offer(source, told, envelope.at))
            case TopologyRead():
                return Outcome(changed=self._topology.replace(source, told))
            case _:
                return Outcome(changed=False)

    def _take_source(self, envelope: Envelope) -> Outcome:
        match envelope.event:
            case SourceLost():
                news = self._sources.lost(envelope)
                if self._sources.waited(envelope.at):
                    self._attributor.attribute()
                return Outcome(changed=news)
            case SourceRemoved():
                for name in self._sources.with_relayed(envelope.source):
                    self._sources.removed(name)
                    self._readings.remove(name)
                    self._attributor.remove(name)
                    self._topology.remove(name)
                    self._usage.remove(name, envelope.at)
            case _:
                self._sources.added(envelope)
        return self._enumerate(envelope)

    def _take_pods(self, envelope: Envelope) -> Outcome:
        source, at, pods = envelope.source, envelope.at, self._attributor.pods
        match envelope.event:
            case PodsReplaced() as told:
                change = pods.replace(source, told, at)
                self._told_of([pods.shown(source, pod) for pod in told.pods])
            case PodUpserted(pod):
                change = pods.upsert(source, pod, at)
                self._told_of([pods.shown(source, pod)])
            case PodDeleted(uid):
                change = pods.delete(source, uid, at)
            case _:
                return Outcome(changed=False)
        if change.matters:
            self._attributor.attribute()
        moved = change.moved
        if moved is None or moved.ended or moved.started is None:
            # Of what holds nothing, or nothing any more, the kubelet need not be asked.
            return Outcome(changed=False)
        if not (moved.wants_devices or moved.claims):
            return Outcome(changed=False)
        return Outcome(changed=False, hints=(_in_pod(moved.info.uid, source),))

    def _told_of(self, pods: list[Pod]) -> None:
        self._owners.tell_pods(pods)
        self._usage.tell_pods(pods, self._attributor.meant)

    def _take_containers(self, envelope: Envelope) -> Outcome:
        source, containers = envelope.source, self._attributor.containers
        uid = ""
        match envelope.event:
            case ContainersReplaced() as told:
                changed = containers.replace(source, told)
                self._owners.tell_containers(told.containers)
            case ContainerStarted(container):
                changed, uid = containers.start(source, container), container.subject.uid
                self._owners.tell_containers((container,))
            case ContainerStopped(container_id):
                stopped = containers.stop(source, container_id)
                changed, uid = stopped is not None, stopped.subject.uid if stopped else ""
            case _:
                changed = False
        if changed:
            self._attributor.attribute(source)
        return Outcome(changed=False, hints=(_in_pod(uid, source),) if changed and uid else ())

    def _heard(self, envelope: Envelope) -> Outcome:
        """Note an event of a source: it may have brought the source up."""
        return Outcome(changed=self._sources.heard(envelope))

    def _confirmed(self, envelope: Envelope) -> Outcome:
        """Note that a source stands by its word."""
        woke = self._heard(envelope)
        self._sources.confirmed(envelope.source, envelope.at)
        return woke

    def _enumerate(self, envelope: Envelope) -> Outcome:
        self._readings.reshaped = True
        self._attributor.enumerate(envelope.source)
        return Outcome(changed=True)

    @property
    def closed(self) -> frozenset[str]:
        """The devices that a device plugin or a DRA driver gives out, and no scheduler."""
        return self._attributor.closed

    @property
    def all_told(self) -> bool:
        """Whether each source has told what it is there for, or that it can't."""
        return self._sources.all_told

    @property
    def informed(self) -> bool:
        """Whether some source tells who holds what: else a device without holders isn't free."""
        return self._attributor.informed

    @property
    def unplaced_xids(self) -> Mapping[str, int]:
        """How many XID errors were of devices that nobody knows, by what their source wrote."""
        return self._xids.unplaced

    def sources(self) -> Mapping[str, SourceState]:
        """Return what is known of each source at this moment, snapshot or not."""
        return self._sources.states()

    def snapshot(self, at: Instant) -> Snapshot:
        """Return everything that is known; the readings taken since the last call are fresh."""
        self._lay_out()
        table = self._readings
        fresh = table.fresh
        readings = [table[key] for key in self._keys]
        for place, uuid in self._renamed:
            readings[place] = readings[place]._replace(device=uuid)
        snapshot = Snapshot(
            at=at,
            layout=self._layout,
            readings=tuple(readings),
            fresh=tuple([at for at, key in enumerate(self._keys) if key in fresh]) if fresh else (),
            starts=self._starts,
            processes={
                device: found.processes
                for device, found in table.processes(
                    self._sources.ranking(), self._attributor.places
                ).items()
            },
            sources=self._sources.states(),
            topology=self._topology.topology,
            topology_source=self._topology.source,
            availability=self._topology.availability,
            usage=self._usage.usage,
            xids=self._xids.errors,
        )
        fresh.clear()
        return snapshot

    def _lay_out(self) -> None:
        """Make a new layout if series or their owners changed; unchanged series stay the same."""
        attributions = self._attributor.attributions
        resources = self._attributor.count_resources()
        reshaped = self._readings.reshaped
        places = self._attributor.places
        if reshaped:
            devices = {uuid: known.device for uuid, known in attributions.items()}
            self._keys = self._readings.keys(devices, self._sources.ranking(), places)
        if reshaped or self._readings.restarted:
            self._readings.restarted = False
            starts = self._readings.starts
            self._starts = tuple([starts.get(key) for key in self._keys])
        layout = self._layout
        # Cheap where nothing has changed: of each GPU the same attributions are found again.
        held = self._attributor.known
        self._topology.settle(self._sources.ranking(), held, self._sources.is_up)
        if not reshaped and (layout.attributions, layout.resources) == (attributions, resources):
            return
        series: dict[Key, Series] = {}
        self._renamed = []
        for at, key in enumerate(self._keys):
            uuid = places.find(key.device)
            if uuid != key.device:
                self._renamed.append((at, uuid))
            attribution = attributions[uuid]
            known = self._series.get(key)
            if known is None or known.attribution is not attribution:
                known = Series(key.field, key.attrs, attribution)
            series[key] = known
        self._series = series
        self._layout = Layout(tuple(series.values()), dict(attributions), resources)


def _in_pod(uid: str, source: str) -> Hint:
    return Hint(pods=frozenset({uid}), sources=frozenset({source}))
