"""Unresolved ids and annotations do not count until the other sources have reported.

Ids that match no device wait for the sources that could resolve them. Annotations of schedulers
wait for the sources that report what the kubelet allocated.
"""

import pytest

from pipeline.model import (
    NS,
    DeviceAliasesReplaced,
    DevicesDiscovered,
    Event,
    Evidence,
    Pod,
    PodInfo,
    PodsReplaced,
    RawDeviceId,
    SourceAdded,
    SourceLost,
)
from tests.support.nodes import Node, at, claim, claims, gpu, uuid_of

NAME = "gpu.nvidia.com/node-1/gpu-0"


class Starting(Node):
    """A node after the start of podgpu, with a source of devices, one of names, and a pod list."""

    def __init__(self) -> None:
        super().__init__()
        self.say(SourceAdded(0, ("devices",)), "gpus", "nvml")
        self.say(SourceAdded(1, ("names",)), "pods", "pods")
        self.say(SourceAdded(2), "podlist", "podlist")

    def unresolved_total(self) -> int:
        return self.snapshot().sources["podlist"].unresolved_total

    def report_ids_at(self, seconds: float) -> "Starting":
        self.seconds = seconds
        self.podlist(claim("a", NAME, scheme="dra"), claim("b", uuid_of(9)))
        return self


DEVICES = DevicesDiscovered((gpu(0),))
NAMES = DeviceAliasesReplaced(((RawDeviceId("dra", NAME), gpu(0).uuid),))


def test_t17_an_id_counts_as_unresolved_after_all_its_sources_reported() -> None:
    node = Starting().report_ids_at(1)
    node.say(DEVICES, "gpus", "nvml")
    assert node.unresolved_total() == 0
    assert node.snapshot().sources["podlist"].unresolved == ()
    node.say(NAMES, "pods", "pods")
    assert node.unresolved_total() == 1
    assert [raw.text for raw in node.snapshot().sources["podlist"].unresolved] == [uuid_of(9)]


def test_t17_ids_wait_for_devices_also_if_names_are_reported_first() -> None:
    node = Starting().report_ids_at(1)
    node.say(NAMES, "pods", "pods")
    assert node.unresolved_total() == 0
    node.say(DEVICES, "gpus", "nvml")
    assert node.unresolved_total() == 1


def test_t17_ids_do_not_wait_for_a_source_that_is_down() -> None:
    node = Starting().report_ids_at(1)
    node.say(DEVICES, "gpus", "nvml")
    node.say(SourceLost("no API server"), "pods", "pods")
    assert node.unresolved_total() == 2


def test_t17_ids_wait_a_minute_for_a_source_that_never_reports() -> None:
    node = Starting().report_ids_at(1)
    node.say(DEVICES, "gpus", "nvml")
    assert node.report_ids_at(59.9).unresolved_total() == 0
    assert node.report_ids_at(60).unresolved_total() == 2
    node.say(NAMES, "pods", "pods")
    assert [raw.text for raw in node.snapshot().sources["podlist"].unresolved] == [uuid_of(9)]
    assert node.unresolved_total() == 2


def test_t17_an_id_is_not_counted_again_when_another_source_is_added() -> None:
    node = Starting().report_ids_at(1)
    node.say(DEVICES, "gpus", "nvml")
    node.say(NAMES, "pods", "pods")
    node.say(SourceAdded(3, ("devices",)), "late", "dcgm")
    node.podlist(claim("b", uuid_of(9)), claim("c", uuid_of(8)))
    assert node.unresolved_total() == 1
    node.say(DEVICES, "late", "dcgm")
    assert node.unresolved_total() == 2


def test_t17_device_names_of_a_lost_source_do_not_bring_it_up() -> None:
    node = Starting()
    node.say(SourceLost("may not list pods"), "pods", "pods")
    node.say(NAMES, "pods", "pods")
    state = node.snapshot().sources["pods"]
    assert (state.up, state.reason) == (False, "may not list pods")


class WithAnnotation(Node):
    """A node after the start of podgpu: pods are reported first, and one has an annotation."""

    def __init__(self, *kinds: str) -> None:
        super().__init__()
        for order, kind in enumerate(["nvml", "pods", *kinds]):
            resolves = ("claims",) if kind in kinds else ()
            self.say(SourceAdded(order, resolves), kind, kind)  # type: ignore[arg-type]
        self.say(DEVICES, "nvml", "nvml")
        annotation = claim("a", uuid_of(0), container="", evidence=Evidence.SCHEDULER_ANNOTATION)
        pod = Pod(PodInfo("uid-a", "ml", "a"), at(0), claims=(annotation,))
        self.say(PodsReplaced((pod,), 600 * NS), "pods", "pods")

    def held(self) -> list[str]:
        holders = self.snapshot().layout.attributions[uuid_of(0)].holders
        return [holder.subject.pod for holder in holders]


LOST = SourceLost("no kubelet")


@pytest.mark.parametrize("report", [claims(), LOST])
def test_t01_an_annotation_counts_after_the_kubelet_s_claims_are_known(report: Event) -> None:
    node = WithAnnotation("podresources", "checkpoint")
    assert node.held() == []
    node.say(report, "podresources", "podresources")
    assert node.held() == []
    node.say(claims(), "checkpoint", "checkpoint")
    assert node.held() == ["a"]
    # A source that is added later changes nothing.
    node.say(SourceAdded(5, ("claims",)), "late", "checkpoint")
    assert node.held() == ["a"]


def test_t01_an_earlier_annotation_does_not_take_a_gpu_that_the_kubelet_allocated() -> None:
    node = WithAnnotation("podresources")
    allocated = claim("victim", uuid_of(0), evidence=Evidence.KUBELET_IDS, scheme="plugin")
    node.say(claims(allocated), "podresources", "podresources")
    assert node.held() == ["victim"]


def test_t01_an_annotation_waits_a_minute_for_a_kubelet_that_does_not_report() -> None:
    node = WithAnnotation("podresources")
    for seconds, held in ((59.9, []), (60, ["a"])):
        node.seconds = seconds
        node.say(DEVICES, "nvml", "nvml")
        assert node.held() == held


def test_t01_an_annotation_counts_immediately_without_a_source_of_kubelet_claims() -> None:
    assert WithAnnotation().held() == ["a"]
