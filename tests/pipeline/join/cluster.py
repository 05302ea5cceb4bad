"""A node with sources that report pods and claims, and constructors of their claims."""

from collections.abc import Iterable

from pipeline.model import (
    NS,
    AdvertisedResource,
    Attribution,
    Claim,
    ClaimsReplaced,
    ClockTicked,
    Device,
    Event,
    Evidence,
    Instant,
    Origin,
    PartialRef,
    Pod,
    PodContainer,
    PodDeleted,
    PodInfo,
    PodsReplaced,
    PodUpserted,
    RawDeviceId,
    ResourcesAdvertised,
    SourceAdded,
)
from pipeline.model.claims import Scheme
from tests.support.nodes import Node, at, gpu, uuid_of

GPUS = [gpu(0, minor=3), gpu(1, minor=2), gpu(2, minor=1), gpu(3, minor=0)]
SOURCES = ("gpus", "pods", "kubelet", "checkpoint", "podlist", "runtime")
GOOD_FOR = 300
A, B, C, D = (uuid_of(index) for index in range(4))


def uid_of(name: str) -> str:
    return f"uid-{name}"


def container(
    name: str = "main",
    kind: str = "app",
    *,
    started: float | None = None,
    ended: bool = False,
    container_id: str = "",
) -> PodContainer:
    when = None if started is None else at(started)
    return PodContainer(name, kind, container_id, when, ended)  # type: ignore[arg-type]


def pod(
    name: str,
    *containers: PodContainer,
    uid: str = "",
    started: float | None = 0,
    ended: bool = False,
    static_uid: str = "",
    claims: Iterable[Claim] = (),
    wants: bool = True,
    requests: tuple[str, ...] | None = None,
) -> Pod:
    return Pod(
        PodInfo(uid or uid_of(name), "ml", name),
        None if started is None else at(started),
        ended,
        static_uid,
        containers or (container(),),
        tuple(claims),
        wants,
        requests,
    )


def make_claim(
    evidence: Evidence,
    subject: PartialRef,
    ids: Iterable[str],
    scheme: Scheme,
    *,
    share: float | None = None,
    since: float | None = None,
    resource: str = "",
    asked: Iterable[str] = (),
) -> Claim:
    return Claim(
        subject,
        tuple(RawDeviceId(scheme, text) for text in ids),
        share,
        None if since is None else at(since),
        Origin(evidence),
        resource,
        tuple(RawDeviceId("plugin", text) for text in asked),
    )


def kubelet_claim(
    name: str, *ids: str, container: str = "main", resource: str = "nvidia.com/gpu"
) -> Claim:
    """Return a claim of the kubelet's list of pods, which has pod names and no UIDs."""
    ref = PartialRef("ml", name, container)
    return make_claim(Evidence.KUBELET_IDS, ref, ids, "plugin", resource=resource)


def checkpoint_claim(
    uid: str, *ids: str, container: str = "main", resource: str = "nvidia.com/gpu"
) -> Claim:
    """Return a claim of the kubelet's checkpoint, which has pod UIDs and no names."""
    ref = PartialRef(uid=uid, container=container)
    return make_claim(Evidence.KUBELET_IDS, ref, ids, "plugin", resource=resource)


def plugin_answer(
    uid: str, asked: Iterable[str], *ids: str, container: str = "main", scheme: Scheme = "visible"
) -> Claim:
    """Return a checkpoint's claim on other devices than requested, as the plugin answered."""
    ref = PartialRef(uid=uid, container=container)
    return make_claim(
        Evidence.PLUGIN_ANSWER, ref, ids, scheme, resource="nvidia.com/gpu", asked=asked
    )


def annotation_claim(
    name: str, *ids: str, container: str = "", scheme: Scheme = "uuid", share: float | None = None
) -> Claim:
    """Return a claim of a scheduler's annotation, on the whole pod unless it names a container."""
    ref = PartialRef("ml", name, container, uid_of(name))
    return make_claim(Evidence.SCHEDULER_ANNOTATION, ref, ids, scheme, share=share)


def podlist_claim(
    name: str, *ids: str, container: str = "main", share: float | None = None
) -> Claim:
    """Return a claim of the file podlist.json."""
    ref = PartialRef("ml", name, container)
    return make_claim(Evidence.POD_LIST_FILE, ref, ids, "uuid", share=share)


def runtime_claim(
    name: str,
    *ids: str,
    container: str = "main",
    evidence: Evidence = Evidence.RUNTIME_NODES,
    container_id: str = "",
) -> Claim:
    """Return a claim of the container runtime, which knows names and UIDs."""
    ref = PartialRef("ml", name, container, uid_of(name), container_id)
    return make_claim(evidence, ref, ids, "visible")


def claim_list(*claims: Claim, complete: bool = False) -> ClaimsReplaced:
    return ClaimsReplaced(claims, GOOD_FOR * NS, complete)


def pod_list(*pods: Pod) -> PodsReplaced:
    return PodsReplaced(pods, GOOD_FOR * NS)


def advertised(**resources: Iterable[str]) -> ResourcesAdvertised:
    """Return resources `nvidia.com/...`; in a name, `_` means `-`, and `__` means a dot."""
    return ResourcesAdvertised(
        tuple(
            AdvertisedResource(
                "nvidia.com/" + name.replace("__", ".").replace("_", "-"),
                tuple(RawDeviceId("plugin", text) for text in ids),
            )
            for name, ids in resources.items()
        ),
        GOOD_FOR * NS,
    )


class Cluster(Node):
    """A node with one source of each kind and four GPUs; minor numbers run against the indices."""

    def __init__(self, devices: Iterable[Device] = GPUS) -> None:
        super().__init__()
        for order, source in enumerate(SOURCES):
            self.say(SourceAdded(order), source, source)
        self.has(*devices)

    def emit(self, source: str, event: Event) -> bool:
        return self.say(event, source, source)

    def pods(self, *pods: Pod) -> None:
        self.emit("pods", pod_list(*pods))

    def upsert(self, pod: Pod) -> None:
        self.emit("pods", PodUpserted(pod))

    def delete(self, name: str, uid: str = "") -> None:
        self.emit("pods", PodDeleted(uid or uid_of(name)))

    def kubelet(self, *claims: Claim, complete: bool = False) -> None:
        self.emit("kubelet", claim_list(*claims, complete=complete))

    def checkpoint(self, *claims: Claim) -> None:
        self.emit("checkpoint", claim_list(*claims))

    def file(self, *claims: Claim) -> None:
        self.emit("podlist", claim_list(*claims))

    def runtime(self, *claims: Claim) -> None:
        self.emit("runtime", claim_list(*claims))

    def tick(self, seconds: float) -> None:
        self.seconds = seconds
        self.say(ClockTicked(), "", "clock")

    def attribution(self, uuid: str) -> Attribution:
        return self.snapshot().layout.attributions[uuid]

    def held(self) -> dict[str, list[str]]:
        """Return `pod/container` of the holders by device. Without a pod name, its UID is used."""
        return {
            uuid: [f"{h.subject.pod or h.subject.uid}/{h.subject.container}" for h in on.holders]
            for uuid, on in self.snapshot().layout.attributions.items()
            if on.holders
        }

    def shares(self, uuid: str) -> list[float | None]:
        return [holder.share for holder in self.attribution(uuid).holders]

    def conflicts(self) -> dict[str, int]:
        """Return the number of conflicting pods by device, for devices that have any."""
        attributions = self.snapshot().layout.attributions
        return {uuid: on.conflicts for uuid, on in attributions.items() if on.conflicts}


def moment(seconds: float, *, stepped: float = 0) -> Instant:
    """Return a time after the wall clock was set forward by `stepped` seconds."""
    when = at(seconds)
    return Instant(when.mono_ns, when.wall_ns + round(stepped * NS))
