"""Ids that fit no device count once all sources that could resolve them have reported."""

from pipeline.model import (
    DeviceAliasesReplaced,
    DevicesDiscovered,
    RawDeviceId,
    SourceAdded,
    SourceLost,
)
from tests.support.nodes import Node, claim, gpu, uuid_of

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
