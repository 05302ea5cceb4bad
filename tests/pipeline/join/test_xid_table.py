"""Whom an XID error strikes, and what two sources tell of one."""

import pytest

from pipeline.join.xid_table import MAX_ERRORS, MAX_UNKNOWN_DEVICES, RETENTION_NS
from pipeline.model import (
    NS,
    Instant,
    PartialRef,
    XidError,
    XidReport,
    XidsReported,
)
from pipeline.usage.holding import MAX_XID_CODES
from tests.pipeline.join.cluster import GPUS, A, B, ran
from tests.pipeline.join.watched import Watched, ids, ran_by
from tests.pipeline.usage.looking import use
from tests.support.nodes import at, mig


def report(
    when: float,
    code: int = 79,
    *,
    device: str = A,
    bus: str = "",
    pid: int | None = None,
    owner: PartialRef | None = None,
) -> XidReport:
    process = "python3" if pid is not None else ""
    return XidReport("" if bus else device, bus, code, at(when), pid, process, owner)


def tell(node: Watched, when: float, *reports: XidReport, source: str = "gpus") -> bool:
    node.seconds = when
    return node.say(XidsReported(reports), source, source)


def kernel(node: Watched, when: float, *reports: XidReport) -> bool:
    return tell(node, when, *reports, source="kernel")


def holds(node: Watched, when: float, *pods: str, device: str = A) -> None:
    node.seconds = when
    node.runtime(*(ran(name, device) for name in pods))


def sole(node: Watched) -> XidError:
    [one] = node.snapshot().xids
    return one


def victims(error: XidError) -> list[tuple[str, bool, bool]]:
    return [(one.subject.pod, one.holds, one.uses) for one in error.victims]


def xids(node: Watched, pod: str, device: str = A) -> tuple[tuple[int, int], ...]:
    [one] = [c for c in node.account(device).containers if c.subject.pod == pod]
    return one.xids


# -- victims


def test_those_who_hold_and_those_who_use_the_device() -> None:
    node = Watched()
    holds(node, 0, "a", "b")
    node.look(0, use(A, 0, None))
    node.look(5, use(A, 5, 0, ran_by(ids("b"), busy=0), ran_by(ids("c", "2"), busy=0)))
    assert tell(node, 6, report(6))
    error = sole(node)
    assert (error.serial, error.device, error.code, error.at) == (1, A, 79, at(6))
    assert sorted(victims(error)) == [("", False, True), ("a", True, False), ("b", True, True)]
    assert xids(node, "a") == xids(node, "b") == ((79, 1),)
    continuing = [one.holding for one in node.account().containers if one.holding]
    assert [one.xids for one in continuing] == [((79, 1),)] * 3
    tell(node, 7, report(7, 31), report(7, 31))
    assert xids(node, "a") == ((31, 2), (79, 1))


def test_without_looks_those_who_hold_it() -> None:
    node = Watched()
    holds(node, 0, "a")
    holds(node, 5, "b")
    tell(node, 6, report(4), report(6))
    first, second = node.snapshot().xids
    assert (victims(first), victims(second)) == ([("a", True, False)], [("b", True, False)])


def test_it_is_who_was_there_then_and_not_who_is_there_now() -> None:
    node = Watched()
    holds(node, 0, "a")
    node.look(0, use(A, 0, None))
    node.look(5, use(A, 5, 0, ran_by(ids("a"), busy=0)))
    holds(node, 7)
    node.look(7.1, use(A, 7.1, 5))
    holds(node, 8, "b")
    tell(node, 9, report(6.9))
    assert victims(sole(node)) == [("a", True, True)]
    assert xids(node, "a") == ((79, 1),)
    assert xids(node, "b") == ()
    # What has been told of is final.
    [ended] = node.used().ended
    assert ended.xids == ()


def test_it_is_in_the_holding_that_ends_right_after_it() -> None:
    node = Watched()
    holds(node, 0, "a")
    node.look(0, use(A, 0, None))
    holds(node, 7)
    tell(node, 7.1, report(6.9))
    node.look(7.2, use(A, 7.2, 0))
    [ended] = node.used().ended
    assert ended.xids == ((79, 1),)


def test_one_on_a_gpu_strikes_all_its_instances_and_one_on_an_instance_no_other() -> None:
    one, other = mig(GPUS[0], 1), mig(GPUS[0], 2)
    node = Watched([*GPUS, one, other])
    node.seconds = 0
    node.runtime(ran("a", one.uuid), ran("b", other.uuid))
    tell(node, 1, report(1), report(1, device=other.uuid))
    of_gpu, of_instance = node.snapshot().xids
    assert [(v.subject.pod, v.device) for v in of_gpu.victims] == [
        ("a", one.uuid),
        ("b", other.uuid),
    ]
    assert (of_instance.device, victims(of_instance)) == (other.uuid, [("b", True, False)])


def test_codes_are_counted_and_not_too_many() -> None:
    node = Watched()
    holds(node, 0, "a")
    node.look(0, use(A, 0, None))
    tell(node, 1, *(report(1, code) for code in range(MAX_XID_CODES + 9)))
    tell(node, 2, *(report(2, 5) for _ in range(1000)))
    assert xids(node, "a") == tuple((n, 1001 if n == 5 else 1) for n in range(MAX_XID_CODES))
    assert len(node.snapshot().xids) == MAX_ERRORS


# -- which device


@pytest.mark.parametrize(
    "written",
    ["00000000:01:00.0", "0000:01:00", "PCI:0000:01:00", "pci:0000:01:00.0", "01:00.0", "0:1:0"],
)
def test_a_gpu_by_its_place_on_the_bus(written: str) -> None:
    node = Watched()
    assert tell(node, 1, report(1, bus=written))
    assert sole(node).device == A


def test_one_of_a_device_that_no_one_knows_is_counted_and_strikes_no_one() -> None:
    node = Watched()
    holds(node, 0, "a")
    strange = [report(1, bus="0001:01:00.0"), report(1, device="GPU-?"), report(1, device="GPU-?")]
    assert not tell(node, 1, *strange, report(1, bus="nonsense"))
    assert node.snapshot().xids == ()
    assert node.join.unknown_xid_devices == {"0001:01:00.0": 1, "GPU-?": 2, "nonsense": 1}
    tell(node, 2, *(report(2, device=f"GPU-{n}x") for n in range(2 * MAX_UNKNOWN_DEVICES)))
    assert len(node.join.unknown_xid_devices) == MAX_UNKNOWN_DEVICES + 1
    assert sum(node.join.unknown_xid_devices.values()) == 4 + 2 * MAX_UNKNOWN_DEVICES


# -- two sources


def test_the_kernels_log_adds_the_process_and_whose_it_is() -> None:
    node = Watched()
    holds(node, 0, "a", "b")
    node.look(0, use(A, 0, None))
    tell(node, 1, report(1))
    before = sole(node)
    assert kernel(node, 2, report(1.2, bus="0000:01:00", pid=42, owner=ids("a", "1")))
    after = sole(node)
    assert (after.serial, after.revision, after.pid, after.process) == (1, 1, 42, "python3")
    assert [(v.subject.pod, v.caused) for v in after.victims] == [("a", True), ("b", False)]
    assert before.revision == 0
    assert xids(node, "a") == ((79, 1),)


@pytest.mark.parametrize(
    ("source", "apart", "code", "device", "one"),
    [
        ("kernel", 5, 79, A, True),
        ("kernel", -5, 79, A, True),
        ("kernel", 5.1, 79, A, False),
        ("kernel", 1, 31, A, False),
        ("kernel", 1, 79, B, False),
        # Twice from one source are two.
        ("gpus", 0, 79, A, False),
    ],
)
def test_what_is_one_error(*, source: str, apart: float, code: int, device: str, one: bool) -> None:
    node = Watched()
    tell(node, 10, report(10))
    tell(node, 20, report(10 + apart, code, device=device), source=source)
    assert len(node.snapshot().xids) == (1 if one else 2)


def test_each_word_has_the_nearest_other() -> None:
    node = Watched()
    tell(node, 10, report(8), report(10))
    kernel(node, 11, report(10.1, pid=2), report(8.1, pid=1))
    assert [error.pid for error in node.snapshot().xids] == [1, 2]


def test_the_kernels_word_may_come_first_and_nothing_new_is_no_news() -> None:
    node = Watched()
    kernel(node, 1, report(1, bus="0000:01:00", pid=42))
    assert not tell(node, 2, report(1))
    assert (sole(node).pid, sole(node).revision) == (42, 0)
    assert not kernel(node, 3)


def test_an_instance_is_known_better_than_its_gpu() -> None:
    one = mig(GPUS[0], 1)
    for first, second in ((one.uuid, A), (A, one.uuid)):
        node = Watched([*GPUS, one])
        tell(node, 1, report(1, device=first))
        kernel(node, 1, report(1, device=second))
        assert sole(node).device == one.uuid


def test_whose_process_it_was_is_a_victim_though_no_one_saw_it_there() -> None:
    node = Watched()
    holds(node, 0, "a")
    kernel(node, 1, report(1, pid=7, owner=ids("z", "9")))
    found = [(one.subject.uid, one.holds, one.caused) for one in sole(node).victims]
    assert found == [("uid-z", False, True), ("uid-a", True, False)]
    kernel(node, 20, report(20, pid=8, owner=PartialRef()))
    assert not any(one.caused for one in node.snapshot().xids[1].victims)


# -- for how long


def test_errors_are_kept_for_a_while_and_stay_the_same_objects() -> None:
    node = Watched()
    tell(node, 1, report(1))
    before = node.snapshot().xids
    tell(node, 200, report(99, 31))
    assert [one.serial for one in node.snapshot().xids] == [1, 2]
    assert node.snapshot().xids is node.snapshot().xids
    assert node.snapshot().xids[0] is before[0]
    node.tick(1.1 + RETENTION_NS / NS)
    assert [one.serial for one in node.snapshot().xids] == [2]


def test_one_from_the_future_is_of_now() -> None:
    node = Watched()
    tell(node, 5, report(50))
    assert sole(node).at == Instant(at(5).mono_ns, at(5).wall_ns)
