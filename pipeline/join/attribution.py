"""Who holds what: the tables that say so, and what they come to."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from operator import itemgetter

from pipeline.join.arbitration import Verdict
from pipeline.join.claim_resolution import PodKey, Word
from pipeline.join.container_table import ContainerTable
from pipeline.join.device_index import DeviceIndex
from pipeline.join.dra_devices import ClaimedDevices
from pipeline.join.holder_resolution import Resolution, resolve
from pipeline.join.holding_start import Since, holder_of
from pipeline.join.inventory import Inventory, numbered
from pipeline.join.mig_placement import Places
from pipeline.join.plugin_devices import ClosedDevices
from pipeline.join.pod_identity import Moment, Pairs
from pipeline.join.pod_table import Known, PodTable
from pipeline.join.resource_table import ResourceTable
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
)
from pipeline.usage import Name

_NOBODY = Verdict(())


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one event did.

    Attributes:
        changed: the next snapshot will differ from the last one.
        hints: for those sources that asked for hints.
    """

    changed: bool
    hints: tuple[Hint, ...] = ()

    def __or__(self, other: "Outcome") -> "Outcome":
        return Outcome(self.changed or other.changed, self.hints + other.hints)


class Attributor:
    """Keeps what each source said of devices, pods and claims, and what that comes to.

    Whatever changes is noted (`attribute`), and worked out when somebody needs it (`settle`): a
    burst of events costs one resolution.

    Attributes:
        inventory: the devices.
        pods: the pods.
        containers: the containers that run.
        resources: what the kubelet offers.
        attributions: by device uuid, in device order. An attribution that didn't change stays the
            same object.
        places: the MIG instances among the devices, by where they are.

    Args:
        sources: what is known of each source.
    """

    def __init__(self, sources: SourceTable) -> None:
        self.inventory = Inventory()
        self.pods = PodTable()
        self.containers = ContainerTable()
        self.resources = ResourceTable()
        self.attributions: dict[str, Attribution] = {}
        self.places = Places()
        self._sources = sources
        self._claims: dict[str, ClaimsReplaced] = {}
        self._aliases: dict[str, DeviceAliasesReplaced] = {}
        self._claimed = ClaimedDevices()
        self._closed = ClosedDevices()
        self._devices = DeviceIndex(())
        self._parents: dict[str, str] = {}
        self._numbered: frozenset[str] = frozenset()
        self._resolution = Resolution()
        self._pairs = Pairs()
        self._said_before: dict[str, Instant | None] = {}
        self._since: dict[str, Since] = {}
        self._early: set[str] = set()
        self._due = False
        self._due_to: set[str] = set()
        self._informed = False

    def claim(self, source: str, said: ClaimsReplaced) -> None:
        """Take in all claims of a source."""
        before = self._claims.get(source)
        self._claims[source] = said
        # What was too early for a pod that has been taken on since isn't so any more.
        same = before is not None and (before.claims, before.complete) == (
            said.claims,
            said.complete,
        )
        if not same:
            self._said_before[source] = self._sources.confirmed_at(source)
        if not same or source in self._early:
            self.attribute(source)

    def name(self, source: str, told: DeviceAliasesReplaced, at: Instant) -> bool:
        """Take in all further names of devices; return whether `enumerate` has to follow."""
        before = self._aliases.get(source)
        self._aliases[source] = told
        self._claimed.tell(source, told, at)
        self._closed.publish(source, told)
        return before != told

    def offer(self, source: str, event: ResourcesAdvertised, at: Instant) -> bool:
        """Take in what the kubelet offers; return whether that is news."""
        if not self.resources.replace(source, event, at):
            return False
        self._closed.offer(source, event)
        self.attribute()
        return True

    def remove(self, source: str) -> None:
        """Forget a source; `enumerate` has to follow."""
        self._claims.pop(source, None)
        self._said_before.pop(source, None)
        self._aliases.pop(source, None)
        self._claimed.remove(source)
        self._closed.remove(source)
        self.pods.remove(source)
        self.containers.remove(source)
        self.resources.remove(source)
        self.inventory.remove(source)

    def expire(self, now: Instant) -> Outcome:
        """Withdraw the word of sources that have been silent for too long."""
        expired: set[str] = set()
        for source in self._sources.ranking():
            confirmed = self._sources.confirmed_at(source)
            if confirmed is None:
                continue
            silent_ns = now.mono_ns - confirmed.mono_ns
            said = self._claims.get(source)
            if said is not None and said.good_for_ns < silent_ns:
                del self._claims[source]
                expired.add(source)
            if self.pods.expire(source, silent_ns, now):
                expired.add(source)
            if self.containers.expire(source, silent_ns):
                expired.add(source)
        withdrawn = self.resources.expire(now.mono_ns)
        if expired or withdrawn:
            self.attribute(*expired)
        if self._sources.waited(now):
            self.attribute()
        return Outcome(changed=withdrawn or bool(expired))

    def enumerate(self, *sources: str) -> None:
        """Work out the devices anew; who holds them is noted as changed."""
        ranking = self._sources.ranking()
        down = {source for source in ranking if not self._sources.is_up(source)}
        known = self.inventory.devices(ranking, down)
        self.places = Places(device for device, _ in known)
        aliases = {
            raw: uuid
            for source in reversed(ranking)
            if source in self._aliases
            for raw, uuid in self._aliases[source].aliases
        }
        # A GPU that is gone may have left its index to another: present ones come last, and win.
        self._devices = DeviceIndex([d for d, _ in sorted(known, key=itemgetter(1))], aliases)
        self._parents = {d.uuid: d.mig.parent_uuid for d, _ in known if d.mig is not None}
        self._numbered = numbered(device for device, _ in known)
        before, self.attributions = self.attributions, {}
        for device, present in known:
            old = before.get(device.uuid)
            new = (
                Attribution(device, present, ())
                if old is None
                else replace(old, device=device, present=present)
            )
            self.attributions[device.uuid] = old if old is not None and old == new else new
        self._since = {uuid: s for uuid, s in self._since.items() if uuid in self.attributions}
        self.attribute(*sources)

    def attribute(self, *sources: str) -> None:
        """Note that who holds what may have changed.

        Args:
            sources: those whose claims led to this.
        """
        self._due = True
        self._due_to.update(sources)

    @property
    def due(self) -> bool:
        """Whether something was noted and not worked out yet."""
        return self._due

    @property
    def closed(self) -> frozenset[str]:
        """The devices that no scheduler gives out, as of the last `settle`."""
        return self._resolution.closed

    @property
    def informed(self) -> bool:
        """Whether it is known who holds what: else nobody known to hold it says nothing.

        It takes the word of a source that lists all that is held, the kubelet's or the runtime's,
        and no container of which it isn't known which devices it was given. Pods alone don't tell:
        what the kubelet gave them isn't written on them.
        """
        return self._listed and not self._resolution.blind

    @property
    def known(self) -> Mapping[str, Attribution] | None:
        """Who holds what, by device uuid, as far as that is known; None where it isn't.

        A container of which it isn't known which of a scheduler's GPUs it was given leaves known
        what a device plugin gives out; that is told where some of it is free.
        """
        if not self._listed:
            return None
        unknown = self._resolution.unknown
        if not self._resolution.blind:
            return self.attributions
        left = {
            u: one for u, one in self.attributions.items() if one.device.gpu_uuid not in unknown
        }
        held = {one.device.gpu_uuid for one in left.values() if one.holders}
        return left if any(one.device.gpu_uuid not in held for one in left.values()) else None

    @property
    def _listed(self) -> bool:
        listed = bool(self._claims)
        return listed or (self.containers.known and not self._resolution.accessed)

    def settle(self, at: Instant) -> Outcome:
        """Resolve all claims anew, if anything was noted."""
        if not self._due:
            return Outcome(changed=False)
        self._due = False
        self._early.clear()
        ranking = self._sources.ranking()
        up = {source for source in ranking if self._sources.is_up(source)}
        self.pods.begin(ranking, up)
        before, waited = self._resolution, self._pairs.waiting
        claimed = None if self._claimed.idle else self._claimed
        if claimed is not None:
            claimed.begin(self._resource_claims(ranking), self.pods.lives)
        resolution = resolve(
            {s: self._said(s) for s in ranking},
            self._devices,
            self._identify,
            pods=self.containers.pods(),
            complete=any(s in up and said.complete for s, said in self._claims.items()),
            closed=(
                self._closed.devices(self._devices)
                if self._sources.begun(at)
                else frozenset(self.attributions)
            ),
            parents=self._parents,
            numbered=self._numbered,
            pairs=self._pairs,
            moment=Moment(
                at, self._sources.confirmed_at, self._said_before.get, self._claims.keys()
            ),
            before=before,
            claimed=claimed,
        )
        if claimed is not None:
            claimed.end()
        self._resolution = resolution
        self._early.update(self._pairs.waiting)
        self.pods.end(at)
        # Before the first enumeration every id would look wrong.
        unresolved = resolution.unresolved if self.inventory.declared else {}
        changed = (
            self._sources.unresolved(unresolved, at) or resolution.allocated != before.allocated
        )
        if self.informed != self._informed:
            self._informed = self.informed
            changed = True
        moved: set[str] = set()
        for uuid, known in self.attributions.items():
            verdict = resolution.verdicts.get(uuid, _NOBODY)
            access = _access(resolution.access.get(uuid, ()))
            same = verdict is before.verdicts.get(uuid, _NOBODY) and access == known.access
            if same and uuid in self._since:
                continue
            since: Since = {}
            began = self._since.get(uuid, since)
            self._since[uuid] = since
            holders = tuple([holder_of(holding, at, began, since) for holding in verdict.holdings])
            contradicting = tuple([_pod_name(pod) for pod in verdict.contradicting])
            new = replace(
                known,
                holders=holders,
                conflicts=verdict.conflicts,
                contradicting=contradicting,
                access=access,
            )
            if new == known:
                continue
            changed = True
            if [h.subject for h in holders] != [h.subject for h in known.holders]:
                moved.add(uuid)
            self.attributions[uuid] = new
        # A name and a uid that may be of one pod: who has told them is to tell them again.
        asking = bool(self._pairs.waiting - waited)
        hint = Hint(frozenset(moved), sources=frozenset(self._due_to))
        self._due_to.clear()
        return Outcome(changed, (hint,) if moved or asking else ())

    def count_resources(self) -> Mapping[str, ResourceCount]:
        """Return how many devices stand behind each extended resource."""
        present = [known.device for known in self.attributions.values() if known.present]
        return self.resources.count(
            present, self._devices, self._resolution.allocated, heard=self._claims
        )

    def meant(self, name: Name, moment: Instant) -> bool:
        """Whether the name of a container's pod meant that very pod at a moment.

        Args:
            name: namespace, pod, container and uid.
            moment: not after now.
        """
        namespace, pod, _, uid = name
        known = self.pods.meant((namespace, pod), uid, moment)
        return self._pairs.meant((namespace, pod), uid, moment) if known is None else known

    def _said(self, source: str) -> Iterable[Claim]:
        said = self._claims.get(source)
        if said is not None:
            yield from said.claims
        yield from self.pods.claims(source)
        yield from self.containers.claims(source)

    def _resource_claims(self, ranking: Iterable[str]) -> Iterator[tuple[Claim, Known]]:
        """Yield the claims on ResourceClaims, and what is known of their containers."""
        for source in ranking:
            for claim in self._said(source):
                if claim.resource_claim and (known := self._identify(source, claim)) is not None:
                    yield claim, known

    def _identify(self, source: str, claim: Claim) -> Known | None:
        said = self._sources.confirmed_at(source)
        if said is None:  # it made no claims
            return None
        known = self.pods.identify(claim.subject, said, claim.origin.evidence)
        if known is None and not claim.subject.uid:
            self._early.add(source)
        return known


def _access(words: Iterable[Word]) -> tuple[Access, ...]:
    """Return the containers that have access to a device without a holding, each once."""
    if not words:
        return ()
    found: dict[PartialRef, Access] = {}
    for word in words:
        subject = word.subject
        found.setdefault(
            replace(subject, container_id=""),
            Access(
                replace(subject, container_id=word.claim.subject.container_id),
                word.source,
                word.evidence,
            ),
        )
    return tuple(sorted(found.values()))


def _pod_name(pod: PodKey) -> str:
    namespace, name, uid = pod
    return f"{namespace}/{name}" if name else uid
