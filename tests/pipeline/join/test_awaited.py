"""What counts once all sources that it takes have reported.

Ids that fit no device wait for those that could resolve them, schedulers' annotations for those
that tell what the kubelet gave out.
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
    """A node on which podgpu starts: a source of devices, one of names, and a list."""

    def __init__(self) -> None:
        super().__init__()
        self.say(SourceAdded(0, ("devices",)), "gpus", "nvml")
        self.say(SourceAdded(1, ("names",)), "pods", "pods")
        self.say(SourceAdded(2), "podlist", "podlist")

    def counted(self) -> int:
        return self.snapshot().sources["podlist"].unresolved_total

    def after(self, seconds: float) -> "Starting":
        self.seconds = seconds
        self.podlist(claim("a", NAME, scheme="dra"), claim("b", uuid_of(9)))
        return self


FOUND = DevicesDiscovered((gpu(0),))
NAMED = DeviceAliasesReplaced(((RawDeviceId("dra", NAME), gpu(0).uuid),))


def test_t17_an_id_counts_once_all_who_could_resolve_it_have_reported() -> None:
    node = Starting().after(1)
    node.say(FOUND, "gpus", "nvml")
    assert node.counted() == 0
    assert node.snapshot().sources["podlist"].unresolved == ()
    node.say(NAMED, "pods", "pods")
    assert node.counted() == 1
    assert [raw.text for raw in node.snapshot().sources["podlist"].unresolved] == [uuid_of(9)]


def test_t17_names_before_devices_wait_for_the_devices() -> None:
    node = Starting().after(1)
    node.say(NAMED, "pods", "pods")
    assert node.counted() == 0
    node.say(FOUND, "gpus", "nvml")
    assert node.counted() == 1


def test_t17_who_can_not_report_is_not_waited_for() -> None:
    node = Starting().after(1)
    node.say(FOUND, "gpus", "nvml")
    node.say(SourceLost("no API server"), "pods", "pods")
    assert node.counted() == 2


def test_t17_who_never_reports_is_waited_for_a_minute() -> None:
    node = Starting().after(1)
    node.say(FOUND, "gpus", "nvml")
    assert node.after(59.9).counted() == 0
    assert node.after(60).counted() == 2
    node.say(NAMED, "pods", "pods")
    assert [raw.text for raw in node.snapshot().sources["podlist"].unresolved] == [uuid_of(9)]
    assert node.counted() == 2


def test_t17_what_counts_already_counts_once_when_another_source_is_added() -> None:
    node = Starting().after(1)
    node.say(FOUND, "gpus", "nvml")
    node.say(NAMED, "pods", "pods")
    node.say(SourceAdded(3, ("devices",)), "late", "dcgm")
    node.podlist(claim("b", uuid_of(9)), claim("c", uuid_of(8)))
    assert node.counted() == 1
    node.say(FOUND, "late", "dcgm")
    assert node.counted() == 2


def test_t17_names_bring_no_lost_source_up() -> None:
    node = Starting()
    node.say(SourceLost("may not list pods"), "pods", "pods")
    node.say(NAMED, "pods", "pods")
    state = node.snapshot().sources["pods"]
    assert (state.up, state.reason) == (False, "may not list pods")


class Begun(Node):
    """A node on which podgpu starts: the pods are heard first, and one has an annotation."""

    def __init__(self, *kinds: str) -> None:
        super().__init__()
        for order, kind in enumerate(["nvml", "pods", *kinds]):
            resolves = ("claims",) if kind in kinds else ()
            self.say(SourceAdded(order, resolves), kind, kind)  # type: ignore[arg-type]
        self.say(FOUND, "nvml", "nvml")
        held = claim("a", uuid_of(0), container="", evidence=Evidence.SCHEDULER_ANNOTATION)
        pod = Pod(PodInfo("uid-a", "ml", "a"), at(0), claims=(held,))
        self.say(PodsReplaced((pod,), 600 * NS), "pods", "pods")

    def held(self) -> list[str]:
        holders = self.snapshot().layout.attributions[uuid_of(0)].holders
        return [holder.subject.pod for holder in holders]


LOST = SourceLost("no kubelet")


@pytest.mark.parametrize("said", [claims(), LOST])
def test_t01_an_annotation_counts_once_the_kubelet_s_word_is_known(said: Event) -> None:
    node = Begun("podresources", "checkpoint")
    assert node.held() == []
    node.say(said, "podresources", "podresources")
    assert node.held() == []
    node.say(claims(), "checkpoint", "checkpoint")
    assert node.held() == ["a"]
    # One that is added later changes nothing.
    node.say(SourceAdded(5, ("claims",)), "late", "checkpoint")
    assert node.held() == ["a"]


def test_t01_before_it_no_one_takes_what_the_kubelet_gave_out() -> None:
    node = Begun("podresources")
    given = claim("victim", uuid_of(0), evidence=Evidence.KUBELET_IDS, scheme="plugin")
    node.say(claims(given), "podresources", "podresources")
    assert node.held() == ["victim"]


def test_t01_an_annotation_waits_a_minute_for_a_kubelet_that_says_nothing() -> None:
    node = Begun("podresources")
    for seconds, held in ((59.9, []), (60, ["a"])):
        node.seconds = seconds
        node.say(FOUND, "nvml", "nvml")
        assert node.held() == held


def test_t01_where_no_one_reports_what_the_kubelet_gave_out_no_one_is_waited_for() -> None:
    assert Begun().held() == ["a"]
