"""Attribution of devices to containers: the tables of claims, and the holders that result."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from operator import itemgetter

from pipeline.join.advertised_resources import AdvertisedResources
from pipeline.join.arbitration import ArbitrationResult, make_holder
from pipeline.join.claim_resolution import ResolutionTime, ResolvedClaim
from pipeline.join.container_table import ContainerTable
from pipeline.join.device_index import DeviceIndex
from pipeline.join.dra_name_history import DraNameHistory
from pipeline.join.holder_resolution import Resolution, resolve
from pipeline.join.inventory import Inventory
from pipeline.join.mig_placement import MigPlacements
from pipeline.join.plugin_devices import PluginManagedDevices
from pipeline.join.pod_identity import PodIdentities
from pipeline.join.pod_table import IdentifiedContainer, PodTable
from pipeline.join.source_table import SourceTable
from pipeline.model import (
    Access,
    Attribution,
    Claim,
    ClaimsReplaced,
    DeviceAliasesReplaced,
    Hint,
    Instant,
    PartialRef,
    ResourceCount,
    ResourcesAdvertised,
    owner_text,
)
from pipeline.usage import ContainerName

_NO_HOLDERS = ArbitrationResult(())


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of applying one event.

    Attributes:
        changed: whether the next snapshot will differ from the last one.
        hints: hints for the sources that subscribed to hints.
    """

    changed: bool
    hints: tuple[Hint, ...] = ()

    def __or__(self, other: "Outcome") -> "Outcome":
        return Outcome(self.changed or other.changed, self.hints + other.hints)


class Attributor:
    """Keeps the reports of all sources about devices, pods and claims, and resolves the holders.

    A change is only recorded (`mark_changed`). It is resolved when the result is needed
    (`resolve_pending`), so that a burst of events costs one resolution.

    Attributes:
        inventory: the devices.
        pods: the pods.
        containers: the running containers.
        resources: the extended resources that the kubelet advertises.
        attributions: the attributions by device uuid, in device order. An attribution that did not
            change stays the same object.
        mig_placements: the MIG instances by placement.
        resolution: the result of the last `resolve_pending`.
        has_pending_changes: whether recorded changes are not resolved yet.

    Args:
        sources: state of each source.
    """

    def __init__(self, sources: SourceTable) -> None:
        self.inventory = Inventory()
        self.pods = PodTable()
        self.containers = ContainerTable()
        self.resources = AdvertisedResources()
        self.attributions: dict[str, Attribution] = {}
        self.mig_placements = MigPlacements()
        self._sources = sources
        self._claims: dict[str, ClaimsReplaced] = {}
        self._aliases: dict[str, DeviceAliasesReplaced] = {}
        self._dra_names = DraNameHistory(self.pods.is_alive)
        self._plugin_managed = PluginManagedDevices()
        self._devices = DeviceIndex(())
        self.resolution = Resolution()
        self._pod_identities = PodIdentities()
        self._previously_confirmed: dict[str, Instant | None] = {}
        self._premature_sources: set[str] = set()
        self.has_pending_changes = False
        self._changed_sources: set[str] = set()
        self._holders_known_before = False

    def replace_claims(self, source: str, event: ClaimsReplaced) -> None:
        """Replace all claims of a source, and mark them as changed if they differ."""
        before = self._claims.get(source)
        self._claims[source] = event
        # A claim that was too early for its pod may be valid with this later confirmation.
        same = before is not None and (before.claims, before.complete) == (
            event.claims,
            event.complete,
        )
        if not same:
            self._previously_confirmed[source] = self._sources.confirmed_at(source)
        if not same or source in self._premature_sources:
            self.mark_changed(source)

    def replace_aliases(self, source: str, event: DeviceAliasesReplaced, at: Instant) -> bool:
        """Replace all aliases of a source; return whether `rebuild_devices` has to follow."""
        before = self._aliases.get(source)
        self._aliases[source] = event
        self._dra_names.update_names(source, event, at)
        self._plugin_managed.update_aliases(source, event)
        return before != event

    def replace_resources(self, source: str, event: ResourcesAdvertised, at: Instant) -> bool:
        """Replace the resources that the kubelet advertises; return whether they changed."""
        if not self.resources.replace(source, event, at):
            return False
        self._plugin_managed.update_resources(source, event)
        self.mark_changed()
        return True

    def remove(self, source: str) -> None:
        """Remove a source's reports about devices, pods and claims; call `rebuild_devices` then."""
        self._claims.pop(source, None)
        self._previously_confirmed.pop(source, None)
        self._aliases.pop(source, None)
        self._dra_names.remove(source)
        self._plugin_managed.remove(source)
        self.pods.remove(source)
        self.containers.remove(source)
        self.resources.remove(source)
        self.inventory.remove(source)

    def expire(self, now: Instant) -> bool:
        """Remove reports that were not confirmed for too long; return whether there were any."""
        expired: set[str] = set()
        for source in self._sources.ranking:
            confirmed = self._sources.confirmed_at(source)
            if confirmed is None:
                continue
            silent_ns = now.mono_ns - confirmed.mono_ns
            claims = self._claims.get(source)
            if claims is not None and claims.good_for_ns < silent_ns:
                del self._claims[source]
                expired.add(source)
            if self.pods.expire(source, silent_ns, now):
                expired.add(source)
            if self.containers.expire(source, silent_ns):
                expired.add(source)
        withdrawn = self.resources.expire(now.mono_ns)
        if expired or withdrawn:
            self.mark_changed(*expired)
        if self._sources.take_wait_expired(now):
            self.mark_changed()
        return withdrawn or bool(expired)

    def rebuild_devices(self, *sources: str) -> None:
        """Rebuild the set of devices, and mark the holders as changed; see `mark_changed`."""
        ranking = self._sources.ranking
        down = {source for source in ranking if not self._sources.is_up(source)}
        known = self.inventory.devices(ranking, down)
        self.mig_placements = MigPlacements(device for device, _ in known)
        aliases = {
            raw: uuid
            for source in reversed(ranking)
            if source in self._aliases
            for raw, uuid in self._aliases[source].aliases
        }
        # Another GPU may have taken the index of one that is gone: present ones come last and win.
        self._devices = DeviceIndex([d for d, _ in sorted(known, key=itemgetter(1))], aliases)
        before, self.attributions = self.attributions, {}
        for device, present in known:
            old = before.get(device.uuid) or Attribution(device, present, ())
            new = replace(old, device=device, present=present)
            self.attributions[device.uuid] = old if old == new else new
        self.mark_changed(*sources)

    def mark_changed(self, *sources: str) -> None:
        """Record that holders may have changed.

        Args:
            sources: the sources whose claims caused the change.
        """
        self.has_pending_changes = True
        self._changed_sources.update(sources)

    @property
    def holders_known(self) -> bool:
        """Whether all holders are known. Otherwise a device without holders need not be free.

        This needs a report of a source that lists all holders (the kubelet or the runtime), and no
        container for which it is unknown which devices it was given. The runtime is not enough if a
        container has access to a device by a variable. Pods are not enough: they do not contain
        what the kubelet allocated. Where sources list jobs, or containers without pods, it needs a
        report of each of them. They are enough on a node without a source of the kubelet's claims.
        """
        return self._holders_listed and not self.resolution.has_unresolved_holder

    @property
    def known_attributions(self) -> Mapping[str, Attribution] | None:
        """Attributions by device uuid, as far as the holders are known; None if they are not.

        If it is unknown which of a scheduler's GPUs a container was given, the holders of devices
        that a device plugin allocates are still known. Then only these devices are returned, and
        only if at least one of their GPUs is free.
        """
        if not self._holders_listed:
            return None
        possibly_held = self.resolution.possibly_held
        if not self.resolution.has_unresolved_holder:
            return self.attributions
        known = {
            uuid: attribution
            for uuid, attribution in self.attributions.items()
            if attribution.device.gpu_uuid not in possibly_held
        }
        held = {one.device.gpu_uuid for one in known.values() if one.holders}
        return known if {one.device.gpu_uuid for one in known.values()} - held else None

    @property
    def _holders_listed(self) -> bool:
        reporting, owners = self.containers.reporting_sources, self._sources.owner_sources
        if not owners <= reporting:
            return False
        if self._claims:
            return True
        counts = reporting - owners if self._sources.kubelet_sources else reporting
        return bool(counts) and not self.resolution.has_env_access

    def resolve_pending(self, at: Instant) -> Outcome:
        """Resolve all claims again if a change was recorded.

        Returns:
            Whether the holders or the state of sources changed; and a hint if containers of a
            device changed, or if another report can complete a pod's name or uid.
        """
        if not self.has_pending_changes:
            return Outcome(changed=False)
        self.has_pending_changes = False
        self._premature_sources.clear()
        ranking = self._sources.ranking
        up = {source for source in ranking if self._sources.is_up(source)}
        self.pods.begin_resolution(ranking, up)
        before, pending_before = self.resolution, self._pod_identities.pending_sources
        self._dra_names.begin_resolution(
            (claim, container)
            for source in ranking
            for claim in self._claims_of(source)
            if claim.resource_claim and (container := self._identify(source, claim)) is not None
        )
        resolution = resolve(
            {s: self._claims_of(s) for s in ranking},
            self._devices,
            self._identify,
            pods=self.containers.pods(),
            complete=any(s in up and event.complete for s, event in self._claims.items()),
            plugin_managed=(
                self._plugin_managed.devices(self._devices)
                if self._sources.kubelet_claims_complete(at)
                else frozenset(self.attributions)
            ),
            pod_identities=self._pod_identities,
            moment=ResolutionTime(
                at, self._sources.confirmed_at, self._previously_confirmed.get, self._claims.keys()
            ),
            previous=before,
            dra_names=self._dra_names,
        )
        self._dra_names.end_resolution()
        self.resolution = resolution
        self._premature_sources.update(self._pod_identities.pending_sources)
        self.pods.end_resolution(at)
        # Before the first enumeration of devices no id can be resolved.
        unresolved = resolution.unresolved if self.inventory.is_enumerated else {}
        changed = (
            self._sources.record_unresolved(unresolved, at)
            or resolution.allocated != before.allocated
        )
        if self.holders_known != self._holders_known_before:
            self._holders_known_before = self.holders_known
            changed = True
        moved_devices: set[str] = set()
        for uuid, known in self.attributions.items():
            arbitration = resolution.arbitrations.get(uuid, _NO_HOLDERS)
            access = _access(resolution.access.get(uuid, ()))
            same = (
                arbitration is before.arbitrations.get(uuid, _NO_HOLDERS) and access == known.access
            )
            # A device that was gone between two resolutions has lost its holders.
            if same and len(known.holders) == len(arbitration.holders):
                continue
            previous = {replace(h.subject, container_id=""): h for h in known.holders}
            holders = tuple(
                [
                    make_holder(one, at, previous.get(one.claim.subject))
                    for one in arbitration.holders
                ]
            )
            conflicting = [owner_text(*pod_key) for pod_key in arbitration.conflicting_pods]
            new = replace(
                known, holders=holders, conflicting_pods=tuple(conflicting), access=access
            )
            if new == known:
                continue
            changed = True
            if [h.subject for h in holders] != [h.subject for h in known.holders]:
                moved_devices.add(uuid)
            self.attributions[uuid] = new
        # A name and a uid may belong to one pod: their sources are asked for a new report.
        needs_reports = bool(self._pod_identities.pending_sources - pending_before)
        hint = Hint(frozenset(moved_devices), sources=frozenset(self._changed_sources))
        self._changed_sources.clear()
        return Outcome(changed, (hint,) if moved_devices or needs_reports else ())

    def count_resources(self) -> Mapping[str, ResourceCount]:
        """Return the number of devices of each extended resource."""
        present = [known.device for known in self.attributions.values() if known.present]
        return self.resources.count(
            present, self._devices, self.resolution.allocated, active_sources=self._claims
        )

    def name_referred_to_pod(self, name: ContainerName, moment: Instant) -> bool:
        """Whether the pod name of a container meant the pod with its uid at a moment.

        Args:
            name: namespace, pod, container and uid.
            moment: a moment that is not in the future.
        """
        namespace, pod, _, uid = name
        known = self.pods.referred_to((namespace, pod), uid, moment)
        if known is None:
            known = self._pod_identities.referred_to((namespace, pod), uid, moment)
        return known

    def _claims_of(self, source: str) -> Iterable[Claim]:
        event = self._claims.get(source)
        if event is not None:
            yield from event.claims
        yield from self.pods.claims(source)
        yield from self.containers.claims(source)

    def _identify(self, source: str, claim: Claim) -> IdentifiedContainer | None:
        confirmed_at = self._sources.confirmed_at(source)
        if confirmed_at is None:  # the source made no claims
            return None
        if claim.subject.kind != "pod":
            return self.containers.identify(source, claim.subject)
        container = self.pods.identify(claim.subject, confirmed_at, claim.origin.evidence)
        if container is None and not claim.subject.uid:
            self._premature_sources.add(source)
        return container


def _access(resolved_claims: Iterable[ResolvedClaim]) -> tuple[Access, ...]:
    """Return the containers that have access to a device without holding it, each once."""
    found: dict[PartialRef, Access] = {}
    for claim in resolved_claims:
        subject = replace(claim.subject, container_id=claim.claim.subject.container_id)
        found.setdefault(claim.subject, Access(subject, claim.source, claim.evidence))
    return tuple(sorted(found.values()))
