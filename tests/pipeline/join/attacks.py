"""Random nodes for tests of trust: the author of some pods lies, or writes nothing.

What the author writes passes through the real readers of pods and containers and the real join.
"""

import json
from dataclasses import dataclass, field
from random import Random

from pipeline.model import (
    Device,
)
from tests.support.nodes import gpu, mig

AUTHOR = "evil"
GPU = "nvidia.com/gpu"
SCHEDULERS = ("koordinator", "hami", "volcano", "gpushare")
RESOURCE = {
    "koordinator": "koordinator.sh/gpu-core",
    "hami": "nvidia.com/gpu",
    "volcano": "volcano.sh/vgpu-number",
    "gpushare": "aliyun.com/gpu-mem",
}
OTHER_RESOURCES = (
    "example.com/fuse",
    "koordinator.sh/gpu.shared",
    "nvidia.com/gpumem",
    "aliyun.com/gpu-mem",
)
PLACEHOLDER = {"hami": "{}-{}", "volcano": "{}-{}", "gpushare": "{}-_-{}"}
MOUNTS = "/var/run/nvidia-container-devices/"
STARTED = "2026-11-01T08:00:00Z"


@dataclass
class Lie:
    """What the author writes into one pod: annotations, labels, environment and mounts."""

    annotations: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    env: list[str] = field(default_factory=list)
    mounts: list[str] = field(default_factory=list)
    copied: bool = False


@dataclass
class RealPod:
    """A pod as it really is, and the lie in it.

    Attributes:
        requests: resources that its only container requests.
        ids: device ids that the kubelet allocated.
        nodes: minor numbers of the GPUs whose device nodes are in the container.
        cdi: CDI names of the container.
        answer: device ids that the device plugin returned; None if they are those of `ids`.
        dra: name under which a DRA driver allocated a GPU.
    """

    namespace: str
    name: str
    requests: dict[str, str] = field(default_factory=dict)
    ids: list[str] = field(default_factory=list)
    annotations: dict[str, str] = field(default_factory=dict)
    nodes: list[int] = field(default_factory=list)
    cdi: list[str] = field(default_factory=list)
    env: list[str] = field(default_factory=list)
    answer: list[str] | None = None
    labels: dict[str, str] = field(default_factory=dict)
    dra: str = ""
    lie: Lie = field(default_factory=Lie)

    @property
    def uid(self) -> str:
        return f"uid-{self.namespace}-{self.name}"

    @property
    def resource(self) -> str:
        return next(iter(self.requests), "")

    @property
    def requested(self) -> bool:
        """Whether it requests a resource of a GPU device plugin or a GPU scheduler."""
        return bool(self.dra) or any(name != "example.com/fuse" for name in self.requests)


class World:
    """A node with GPUs of a device plugin or DRA driver, and GPUs that a scheduler manages.

    Attributes:
        managed: UUIDs of the GPUs that the scheduler manages.
        withdrawn: UUIDs of the GPUs that the device plugin has withdrawn.
        published: by UUID, the names under which a DRA driver publishes GPUs.
    """

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(seed)
        count = rng.randint(1, 4)
        self.gpus = [gpu(n, minor=count - 1 - n) for n in range(count)]
        self.scheduler = rng.choice(SCHEDULERS)
        self.form = {
            g.uuid: rng.choice(["whole", "whole", "replicas", "shared"]) for g in self.gpus
        }
        self.slices: list[Device] = []
        if self.form[self.gpus[-1].uuid] == "whole" and rng.random() < 0.3:
            self.form[self.gpus[-1].uuid] = "mig"
            self.slices = [mig(self.gpus[-1], n) for n in (1, 2)]
        self.managed = {u for u, form in self.form.items() if form == "shared"}
        self.sources = set(rng.sample(["kubelet", "checkpoint"], rng.randint(1, 2)))
        self.sources.add("pods")
        if rng.random() < 0.7:
            self.sources.add("runtime")
        free = [g.uuid for g in self.gpus if self.form[g.uuid] == "whole"]
        free += [one.uuid for one in self.slices]
        rng.shuffle(free)
        self.pods: list[RealPod] = []
        for number in range(rng.randint(1, 3)):
            self.pods.append(self.make_pod("ml", f"p{number}", free))
        for number in range(rng.randint(1, 2)):
            # Half of the names are those of pods in another namespace.
            name = rng.choice([f"p{number}", f"q{number}"])
            self.pods.append(self.make_pod(AUTHOR, name, free))
        for one in self.pods:
            if one.namespace == AUTHOR:
                one.lie = self.lie()
        self.withdraw(Random(seed + 0.5))
        free = [uuid for uuid in free if uuid not in self.published]
        self.reserved = ""
        if free and Random(~seed).random() < 0.5:
            self.reserve(free.pop())

    def withdraw(self, rng: Random) -> None:
        """Let the plugin withdraw GPUs, and move some GPUs without holders to a DRA driver."""
        held = {text for one in self.pods for text in [*one.ids, *(one.answer or ())]}
        own = [u for u, form in self.form.items() if form == "whole"]
        self.withdrawn = {u for u in own if rng.random() < 0.3}
        mine = [u for u in own if u not in held and rng.random() < 0.4]
        self.published = {u: f"gpu.nvidia.com/node-1/gpu-{n}" for n, u in enumerate(mine)}
        for uuid, name in self.published.items():
            self.form[uuid] = "dra"
            pods = [one for one in self.pods if not (one.ids or one.dra or one.requests)]
            if pods and rng.random() < 0.5:
                rng.choice(pods).dra = name

    def make_pod(self, namespace: str, name: str, free: list[str]) -> RealPod:
        rng, author = self.rng, namespace == AUTHOR
        pod = RealPod(namespace, name)
        kind = rng.choice(["whole", "replica", "shared", "nothing", "nothing"])
        if kind == "whole" and free:
            uuid = free.pop()
            resource = GPU if uuid.startswith("GPU") else "nvidia.com/mig-1g.5gb"
            pod.requests, pod.ids = {resource: "1"}, [uuid]
            self.show(pod, uuid)
        elif kind == "replica" and "replicas" in self.form.values():
            uuid = rng.choice([u for u, form in self.form.items() if form == "replicas"])
            pod.requests, pod.ids = {"nvidia.com/gpu.shared": "1"}, [f"{uuid}::{rng.randint(0, 3)}"]
            self.show(pod, uuid)
        elif kind == "shared" and self.managed:
            self.share(pod)
        if author and rng.random() < 0.4:
            pod.requests |= {rng.choice(OTHER_RESOURCES): "4"}
        return pod

    def reserve(self, uuid: str) -> None:
        """Let KAI reserve a GPU for a group of pods."""
        self.reserved = uuid
        group = {"runai-gpu-group": "group"}
        wrote = {"run.ai/reserve_for_gpu_index": uuid}
        resource = GPU if uuid.startswith("GPU") else "nvidia.com/mig-1g.5gb"
        self.pods += [
            RealPod(
                "kai-resource-reservation", "held", {resource: "1"}, [uuid], wrote, labels=group
            ),
            RealPod("ml", "member", annotations={"gpu-fraction": "0.5"}, labels=group),
        ]

    def show(self, pod: RealPod, uuid: str) -> None:
        """Show the container's device through the runtime, in a random way."""
        how = self.rng.choice(["nothing", "nodes", "cdi", "env"])
        device = next(g for g in self.gpus if uuid in {g.uuid, *self.instances(g)})
        if how == "nodes" and uuid == device.uuid:
            pod.nodes = [device.minor or 0]
        elif how == "cdi":
            pod.cdi = [f"nvidia.com/gpu={uuid}"]
        elif how == "env":
            pod.env = [f"NVIDIA_VISIBLE_DEVICES={uuid}"]

    def instances(self, device: Device) -> list[str]:
        return [one.uuid for one in self.slices if one.mig and one.mig.parent_uuid == device.uuid]

    def share(self, pod: RealPod) -> None:
        rng, scheduler = self.rng, self.scheduler
        uuid = rng.choice(sorted(self.managed))
        minor = next(g.minor for g in self.gpus if g.uuid == uuid)
        pod.requests = {RESOURCE[scheduler]: "25" if scheduler == "koordinator" else "1"}
        if scheduler != "koordinator":
            counted = rng.choice(sorted(self.managed))
            pod.ids = [PLACEHOLDER[scheduler].format(counted, rng.randint(0, 9))]
            if rng.random() < 0.5:
                pod.answer = [uuid]
        if pod.namespace != AUTHOR:
            pod.annotations = honest(scheduler, uuid, minor or 0)
            if rng.random() < 0.5:
                pod.env = [f"NVIDIA_VISIBLE_DEVICES={uuid}"]

    def lie(self) -> Lie:
        rng = self.rng
        lie = Lie(labels={rng.choice(["gpu", "runai-gpu-group", "app"]): self.target()})
        for scheduler in rng.sample(SCHEDULERS, rng.randint(0, 4)):
            lie.annotations |= self.forged(scheduler)
        if rng.random() < 0.3:
            mirrored = rng.choice([*(one.uid for one in self.pods), "uid-of-no-pod"])
            lie.annotations["kubernetes.io/config.mirror"] = mirrored
        if rng.random() < 0.3:
            lie.labels["runai-gpu-group"] = rng.choice(["group", "another"])
            lie.annotations |= rng.choice([{}, {"gpu-fraction": "0.5"}, {"gpu-fraction": "1"}])
        lie.copied = rng.random() < 0.5
        if rng.random() < 0.2:
            lie.annotations["podgpu.io/wrote"] = json.dumps(lie.annotations)
        if rng.random() < 0.6:
            names = [self.target() for _ in range(rng.randint(1, 3))]
            names += rng.choice([[], [], ["0"], ["all"], [f"nvidia.com/gpu={self.target()}"]])
            lie.env = [f"NVIDIA_VISIBLE_DEVICES={','.join(names)}"]
        if rng.random() < 0.3:
            lie.mounts = [MOUNTS + self.target()]
        if rng.random() < 0.3:
            lie.annotations["cdi.k8s.io/x"] = f"nvidia.com/gpu={self.target()}"
            lie.annotations["nvidia.cdi.k8s.io/container.main"] = f"nvidia.com/gpu={self.target()}"
        return lie

    def target(self) -> str:
        return self.rng.choice([d.uuid for d in [*self.gpus, *self.slices]])

    def forged(self, scheduler: str) -> dict[str, str]:
        rng = self.rng
        if rng.random() < 0.15:
            return {key: rng.choice(["{", "", "[]", "x;y"]) for key in honest(scheduler, "x", 0)}
        if scheduler == "koordinator":
            entries = [
                {
                    "minor": rng.choice([0, 1, 2, 3, 3, 99]),
                    "resources": {"koordinator.sh/gpu-core": core},
                }
                | (
                    {"id": rng.choice([self.target()] * 5 + ["GPU-x"])}
                    if rng.random() < 0.6
                    else {}
                )
                for _ in range(rng.randint(1, 4))
                for core in [rng.choice(["1", "50", "100"])]
            ]
            return {"scheduling.koordinator.sh/device-allocated": json.dumps({"gpu": entries})}
        forged = honest(scheduler, self.target(), rng.randint(0, 3), rng.choice([0, 1, 50, 100]))
        if rng.random() < 0.2:
            forged |= {"hami.io/vgpu-node": "other", "volcano.sh/vgpu-node": "other"}
        if scheduler == "volcano" and rng.random() < 0.5:
            forged |= {"volcano.sh/gpu-index": "0,1,2,3", "volcano.sh/predicate-time": "1"}
        return forged


def honest(scheduler: str, uuid: str, minor: int, core: int = 25) -> dict[str, str]:
    match scheduler:
        case "koordinator":
            entry = {
                "minor": minor,
                "id": uuid,
                "resources": {"koordinator.sh/gpu-core": str(core)},
            }
            return {"scheduling.koordinator.sh/device-allocated": json.dumps({"gpu": [entry]})}
        case "hami":
            return {"hami.io/vgpu-devices-allocated": f"{uuid},NVIDIA,3000,{core}:;"}
        case "volcano":
            return {"volcano.sh/vgpu-ids-new": f"{uuid},NVIDIA,3000,{core}:"}
        case _:
            return {
                "ALIYUN_COM_GPU_MEM_IDX": str(minor),
                "ALIYUN_COM_GPU_MEM_POD": str(max(core, 1)),
                "ALIYUN_COM_GPU_MEM_DEV": "100",
            }
