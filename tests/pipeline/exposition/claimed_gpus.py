"""A snapshot of GPUs that ResourceClaims were allocated."""

from pipeline.model import Snapshot
from tests.support.nodes import (
    Node,
    claims,
    dra_claim,
    dra_names,
    gpu,
    mig,
    reading,
)


def claimed_gpus() -> Snapshot:
    """A GPU of one claim, one of a claim that two pods share, a MIG instance, and a free GPU."""
    node = Node()
    devices = [gpu(at) for at in range(4)]
    instance = mig(devices[2], 1)
    node.has(*devices, instance)
    names = {"gpu-0": devices[0].uuid, "gpu-1": devices[1].uuid, "gpu-2-mig-1": instance.uuid}
    node.say(dra_names(names), "pods", "pods")
    held = (
        dra_claim("train-0", "claim-of-train-0", "gpu-0"),
        dra_claim("serve-a", "shared", "gpu-1"),
        dra_claim("serve-b", "shared", "gpu-1"),
        dra_claim("note-0", "part", "gpu-2-mig-1", container="jupyter"),
    )
    node.say(claims(*held), "kubelet", "podresources")
    node.reads(
        *(
            reading(device, "memory_used_bytes", (at + 1) << 20)
            for at, device in enumerate([*devices[:3], instance, devices[3]])
        )
    )
    return node.snapshot()
