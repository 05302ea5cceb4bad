"""A snapshot of devices that several pods share, with what the processes of each pod use."""

from pipeline.model import NS, Snapshot
from tests.support.nodes import Node, at, claims, gpu, kubelet_claim, mig, reading
from tests.support.usage import account, used, with_usage

MIB = 1 << 20


def shared_gpus() -> Snapshot:
    """A GPU that two pods share, one that one pod holds, and one with two MIG instances.

    Two pods share the first instance: one is idle, the memory of the other is unknown.
    """
    node = Node()
    shared, whole, parted = (gpu(at) for at in range(3))
    instances = mig(parted, 1), mig(parted, 2)
    node.has(shared, whole, parted, *instances)
    held = (
        kubelet_claim("serve-a", f"{shared.uuid}::0"),
        kubelet_claim("serve-b", f"{shared.uuid}::1"),
        kubelet_claim("train-0", whole.uuid),
        kubelet_claim("note-0", f"{instances[0].uuid}::0"),
        kubelet_claim("note-1", f"{instances[0].uuid}::1"),
    )
    node.say(claims(*held), "kubelet", "podresources")
    node.reads(
        *(reading(one, "power_watts", 300 + one.index) for one in (shared, whole, parted)),  # type: ignore[operator]
        *(reading(one, "gpu_up", 1) for one in (shared, whole, parted)),
        reading(shared, "gpu_utilization_percent", 97),
        reading(whole, "gpu_utilization_percent", 100),
        *(
            reading(one, "memory_used_bytes", size * MIB)
            for one, size in zip((shared, whole, *instances), (1500, 9000, 700, 1), strict=True)
        ),
    )
    return with_usage(
        node.snapshot(),
        account(
            shared,
            used("serve-a", uid="", memory=900 * MIB, busy=NS, recent=600_000),
            used("serve-b", uid="", memory=500 * MIB, busy=NS, recent=337_500),
            until=at(5),
            memory=100 * MIB,
        ),
        account(
            whole,
            used("train-0", uid="", memory=9000 * MIB, busy=5 * NS, recent=1_000_000),
            until=at(5),
        ),
        account(
            instances[0],
            used("note-0", uid="", memory=0, busy=0, recent=0),
            used("note-1", uid="", memory=None, busy=None),
            until=at(5),
            memory=700 * MIB,
        ),
    )
