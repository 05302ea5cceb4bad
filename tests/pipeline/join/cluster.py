"""A node whose sources tell of pods and claims, each in its own words."""

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


def said(
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


def listed(
    name: str, *ids: str, container: str = "main", resource: str = "nvidia.com/gpu"
) -> Claim:
    """The kubelet's list: names and no uids."""
    ref = PartialRef("ml", name, container)
    return said(Evidence.KUBELET_IDS, ref, ids, "plugin", resource=resource)


def kept(uid: str, *ids: str, container: str = "main", resource: str = "nvidia.com/gpu") -> Claim:
    """The kubelet's checkpoint, where the plugin answered what it was asked: uids and no names."""
    ref = PartialRef(uid=uid, container=container)
    return said(Evidence.KUBELET_IDS, ref, ids, "plugin", resource=resource)


def answered(
    uid: str, asked: Iterable[str], *ids: str, container: str = "main", scheme: Scheme = "visible"
) -> Claim:
    """The kubelet's checkpoint, where the plugin handed out others than it was asked for."""
    ref = PartialRef(uid=uid, container=container)
    return said(Evidence.PLUGIN_ANSWER, ref, ids, scheme, resource="nvidia.com/gpu", asked=asked)


def annotated(
    name: str, *ids: str, container: str = "", scheme: Scheme = "uuid", share: float | None = None
) -> Claim:
    """A scheduler's annotation, of the pod as a whole unless it names a container."""
    ref = PartialRef("ml", name, container, uid_of(name))
    return said(Evidence.SCHEDULER_ANNOTATION, ref, ids, scheme, share=share)


def filed(name: str, *ids: str, container: str = "main", share: float | None = None) -> Claim:
    """podlist.json."""
    ref = PartialRef("ml", name, container)
    return said(Evidence.POD_LIST_FILE, ref, ids, "uuid", share=share)


def ran(
    name: str,
    *ids: str,
    container: str = "main",
    evidence: Evidence = Evidence.RUNTIME_NODES,
    container_id: str = "",
) -> Claim:
    """The container runtime, which knows all of its containers."""
    ref = PartialRef("ml", name, container, uid_of(name), container_id)
    return said(evidence, ref, ids, "visible")


def whole(*claims: Claim, complete: bool = False) -> ClaimsReplaced:
    return ClaimsReplaced(claims, GOOD_FOR * NS, complete)


def relist(*pods: Pod) -> PodsReplaced:
    return PodsReplaced(pods, GOOD_FOR * NS)


def offer(**resources: Iterable[str]) -> ResourcesAdvertised:
    """Resources of `nvidia.com/`, in which `_` stands for `-`, and `__` for a dot."""
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
    """The node, with four GPUs whose minor numbers run against their indices."""

    def __init__(self, devices: Iterable[Device] = GPUS) -> None:
        super().__init__()
        for order, source in enumerate(SOURCES):
            self.say(SourceAdded(order), source, source)
        self.has(*devices)

    def tell(self, source: str, event: Event) -> bool:
        return self.say(event, source, source)

    def pods(self, *pods: Pod) -> None:
        self.tell("pods", relist(*pods))

    def upsert(self, pod: Pod) -> None:
        self.tell("pods", PodUpserted(pod))

    def delete(self, name: str, uid: str = "") -> None:
        self.tell("pods", PodDeleted(uid or uid_of(name)))

    def kubelet(self, *claims: Claim, complete: bool = False) -> None:
        self.tell("kubelet", whole(*claims, complete=complete))

    def checkpoint(self, *claims: Claim) -> None:
        self.tell("checkpoint", whole(*claims))

    def file(self, *claims: Claim) -> None:
        self.tell("podlist", whole(*claims))

    def runtime(self, *claims: Claim) -> None:
        self.tell("runtime", whole(*claims))

    def tick(self, seconds: float) -> None:
        self.seconds = seconds
        self.say(ClockTicked(), "", "clock")

    def on(self, uuid: str) -> Attribution:
        return self.snapshot().layout.attributions[uuid]

    def held(self) -> dict[str, list[str]]:
        """By device, `pod/container` of its holders; a pod without name goes by its uid."""
        return {
            uuid: [f"{h.subject.pod or h.subject.uid}/{h.subject.container}" for h in on.holders]
            for uuid, on in self.snapshot().layout.attributions.items()
            if on.holders
        }

    def shares(self, uuid: str) -> list[float | None]:
        return [holder.share for holder in self.on(uuid).holders]

    def conflicts(self) -> dict[str, int]:
        """By device, where there are any."""
        attributions = self.snapshot().layout.attributions
        return {uuid: on.conflicts for uuid, on in attributions.items() if on.conflicts}


def moment(seconds: float, *, stepped: float = 0) -> Instant:
    """A moment after the wall clock was set, by so many seconds."""
    when = at(seconds)
    return Instant(when.mono_ns, when.wall_ns + round(stepped * NS))
