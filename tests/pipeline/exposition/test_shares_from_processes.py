"""What each pod's processes use, from the usage samples through the join to the page."""

import pytest

from pipeline.model import (
    NS,
    DeviceUse,
    PartialRef,
    Pod,
    PodContainer,
    PodInfo,
    PodsReplaced,
    ProcessesSampled,
    ProcessUse,
)
from tests.pipeline.exposition.pages import of, parsed, rendered
from tests.pipeline.usage.samples import use
from tests.support.nodes import Node, at, claims, gpu, kubelet_claim, reading

A = gpu(0)
MIB = 1 << 20
UTIL, USED = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED"


def process(
    pid: int, pod: str | None, memory: int | None, busy: float | None, kind: str = "compute"
) -> ProcessUse:
    """Return a process of a pod; None means that its owner is unknown."""
    owner = None if pod is None else PartialRef(uid=f"uid-{pod}", container_id=f"id-{pod}")
    busy_ns = None if busy is None else round(busy * NS)
    memory_bytes = None if memory is None else memory * MIB
    return ProcessUse(pid, 1, owner, kind, memory_bytes, busy_ns)  # type: ignore[arg-type]


def sample(since: float | None, *processes: ProcessUse, **more: bool) -> DeviceUse:
    """Return a sample that is taken five seconds after the last one."""
    busy = sum(one.busy_ns or 0 for one in processes)
    when = 0 if since is None else since + 5
    return use(A, when, since, *processes, used=1000 * MIB, busy=busy, **more)


class SharedGpu(Node):
    """A GPU that two pods share.

    Args:
        known: whether a source reports the pods with their uids.
        holders: names of the pods.
    """

    def __init__(self, *, known: bool = True, holders: str = "ab") -> None:
        super().__init__()
        self.has(A)
        held = [kubelet_claim(pod, f"{A.uuid}::{number}") for number, pod in enumerate(holders)]
        self.say(claims(*held), "kubelet", "podresources")
        if known:
            pods = [
                Pod(
                    PodInfo(f"uid-{pod}", "ml", pod),
                    at(-60),
                    containers=(PodContainer("main", "app", f"id-{pod}", at(-50)),),
                )
                for pod in holders
            ]
            self.say(PodsReplaced(tuple(pods), 300 * NS), "pods", "pods")
        self.reads(
            reading(A, "gpu_utilization_percent", 90, good_for=600),
            reading(A, "memory_used_bytes", 1000 * MIB, good_for=600),
        )
        self.say(ProcessesSampled((sample(None),)))

    def samples(self, *processes: ProcessUse, **more: bool) -> None:
        since, self.seconds = self.seconds, self.seconds + 5
        self.say(ProcessesSampled((sample(since, *processes, **more),)))

    def shown(self, metric: str) -> dict[str, float]:
        series = of(parsed(rendered(self.snapshot(), sharing="copies")), metric)
        assert all(one["pod_uid"] == f"uid-{one['pod']}" for one, _ in series if one["pod"])
        return {one["pod"]: value for one, value in series}


def test_the_value_of_a_pod_is_the_sum_over_its_own_processes() -> None:
    node = SharedGpu()
    node.samples(process(1, "a", 300, 1.5), process(2, "a", 100, 0.5), process(3, "b", 50, 0))
    assert node.shown(UTIL) == {"": 90, "a": 40, "b": 0}
    assert node.shown(USED) == {"": 1000, "a": 400, "b": 50}


def test_a_pod_without_processes_is_idle() -> None:
    node = SharedGpu()
    node.samples(process(1, "a", 300, 1))
    assert node.shown(UTIL) == {"": 90, "a": 20, "b": 0}
    assert node.shown(USED) == {"": 1000, "a": 300, "b": 0}


def test_processes_of_other_pods_belong_to_no_holder() -> None:
    node = SharedGpu()
    node.samples(process(1, "other", 300, 1), process(2, "a", 10, 0.25))
    assert node.shown(UTIL) == {"": 90, "a": 5, "b": 0}
    assert node.shown(USED) == {"": 1000, "a": 10, "b": 0}


@pytest.mark.parametrize(
    ("processes", "more"),
    [
        pytest.param([], {"listed": False}, id="the driver hides them"),
        pytest.param([process(1, None, 300, 1)], {}, id="their owners are unknown"),
    ],
)
def test_without_known_processes_pods_that_share_have_no_sample(
    processes: list[ProcessUse], more: dict[str, bool]
) -> None:
    node = SharedGpu()
    node.samples(*processes, **more)
    assert node.shown(USED) == {"": 1000}
    assert node.shown(UTIL) == {"": 90}


def test_a_device_with_one_holder_needs_no_owners() -> None:
    node = SharedGpu(holders="a")
    node.samples(process(1, None, 300, 1))
    assert node.shown(UTIL) == {"": 90, "a": 20}
    assert node.shown(USED) == {"": 1000, "a": 300}


def test_clients_of_an_mps_server_have_memory_and_no_utilisation() -> None:
    node = SharedGpu()
    server = process(9, "mps", 30, 5)
    node.samples(
        process(1, "a", 300, None, "mps"), process(2, "b", 200, None, "mps"), server, mps=True
    )
    assert node.shown(UTIL) == {"": 90}
    assert node.shown(USED) == {"": 1000, "a": 300, "b": 200}


def test_memory_that_the_driver_does_not_report_is_unknown() -> None:
    node = SharedGpu()
    node.samples(process(1, "a", None, 1), process(2, "b", 200, 0))
    assert node.shown(USED) == {"": 1000, "b": 200}
    assert node.shown(UTIL) == {"": 90, "a": 20, "b": 0}


def test_without_uids_it_is_unknown_which_pod_a_process_belongs_to() -> None:
    node = SharedGpu(known=False)
    node.samples(process(1, "a", 300, 1))
    page = parsed(rendered(node.snapshot(), sharing="copies"))
    assert [(one["pod"], value) for one, value in of(page, USED)] == [("", 1000)]
    assert [(one["pod"], value) for one, value in of(page, UTIL)] == [("", 90)]


def test_values_expire_when_samples_stop() -> None:
    node = SharedGpu()
    node.samples(process(1, "a", 300, 1))
    node.seconds += 60
    node.reads()
    assert node.shown(USED) == {"": 1000}
    assert node.shown(UTIL) == {"": 90}
