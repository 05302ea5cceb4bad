"""Which containers an XID error affects, and how reports of two sources are combined."""

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
from tests.pipeline.join.cluster import GPUS, A, B, runtime_claim
from tests.pipeline.join.sampled_cluster import SampledCluster, cgroup_owner, process_of
from tests.pipeline.usage.samples import use
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


def report_errors(
    node: SampledCluster, when: float, *reports: XidReport, source: str = "gpus"
) -> bool:
    node.seconds = when
    return node.say(XidsReported(reports), source, source)


def report_kernel_errors(node: SampledCluster, when: float, *reports: XidReport) -> bool:
    return report_errors(node, when, *reports, source="kernel")


def set_holders(node: SampledCluster, when: float, *pods: str, device: str = A) -> None:
    node.seconds = when
    node.runtime(*(runtime_claim(name, device) for name in pods))


def only_error(node: SampledCluster) -> XidError:
    [one] = node.snapshot().xids
    return one


def victims(error: XidError) -> list[tuple[str, bool, bool]]:
    return [(one.subject.pod, one.holds, one.uses) for one in error.victims]


def error_counts(node: SampledCluster, pod: str, device: str = A) -> tuple[tuple[int, int], ...]:
    [one] = [c for c in node.account(device).containers if c.subject.pod == pod]
    return one.xids


# -- affected containers


def test_holders_and_users_of_the_device_are_affected() -> None:
    node = SampledCluster()
    set_holders(node, 0, "a", "b")
    node.sample(0, use(A, 0, None))
    node.sample(
        5,
        use(
            A,
            5,
            0,
            process_of(cgroup_owner("b"), busy=0),
            process_of(cgroup_owner("c", "2"), busy=0),
        ),
    )
    assert report_errors(node, 6, report(6))
    error = only_error(node)
    assert (error.serial, error.device, error.code, error.at) == (1, A, 79, at(6))
    assert sorted(victims(error)) == [("", False, True), ("a", True, False), ("b", True, True)]
    assert error_counts(node, "a") == error_counts(node, "b") == ((79, 1),)
    continuing = [one.holding for one in node.account().containers if one.holding]
    assert [one.xids for one in continuing] == [((79, 1),)] * 3
    report_errors(node, 7, report(7, 31), report(7, 31))
    assert error_counts(node, "a") == ((31, 2), (79, 1))


def test_holders_are_affected_without_usage_samples() -> None:
    node = SampledCluster()
    set_holders(node, 0, "a")
    set_holders(node, 5, "b")
    report_errors(node, 6, report(4), report(6))
    first, second = node.snapshot().xids
    assert (victims(first), victims(second)) == ([("a", True, False)], [("b", True, False)])


def test_the_containers_at_the_time_of_the_error_are_affected() -> None:
    node = SampledCluster()
    set_holders(node, 0, "a")
    node.sample(0, use(A, 0, None))
    node.sample(5, use(A, 5, 0, process_of(cgroup_owner("a"), busy=0)))
    set_holders(node, 7)
    node.sample(7.1, use(A, 7.1, 5))
    set_holders(node, 8, "b")
    report_errors(node, 9, report(6.9))
    assert victims(only_error(node)) == [("a", True, True)]
    assert error_counts(node, "a") == ((79, 1),)
    assert error_counts(node, "b") == ()
    # A holding that was reported is final.
    [ended] = node.used().ended
    assert ended.xids == ()


def test_an_error_is_counted_in_the_holding_that_ends_right_after_it() -> None:
    node = SampledCluster()
    set_holders(node, 0, "a")
    node.sample(0, use(A, 0, None))
    set_holders(node, 7)
    report_errors(node, 7.1, report(6.9))
    node.sample(7.2, use(A, 7.2, 0))
    [ended] = node.used().ended
    assert ended.xids == ((79, 1),)


def test_an_error_of_a_gpu_affects_all_its_instances_and_an_instance_s_only_itself() -> None:
    one, other = mig(GPUS[0], 1), mig(GPUS[0], 2)
    node = SampledCluster([*GPUS, one, other])
    node.seconds = 0
    node.runtime(runtime_claim("a", one.uuid), runtime_claim("b", other.uuid))
    report_errors(node, 1, report(1), report(1, device=other.uuid))
    of_gpu, of_instance = node.snapshot().xids
    assert [(v.subject.pod, v.device) for v in of_gpu.victims] == [
        ("a", one.uuid),
        ("b", other.uuid),
    ]
    assert (of_instance.device, victims(of_instance)) == (other.uuid, [("b", True, False)])


def test_the_number_of_counted_codes_is_bounded() -> None:
    node = SampledCluster()
    set_holders(node, 0, "a")
    node.sample(0, use(A, 0, None))
    report_errors(node, 1, *(report(1, code) for code in range(MAX_XID_CODES + 9)))
    report_errors(node, 2, *(report(2, 5) for _ in range(1000)))
    assert error_counts(node, "a") == tuple(
        (n, 1001 if n == 5 else 1) for n in range(MAX_XID_CODES)
    )
    assert len(node.snapshot().xids) == MAX_ERRORS


# -- finding the device


@pytest.mark.parametrize(
    "text",
    ["00000000:01:00.0", "0000:01:00", "PCI:0000:01:00", "pci:0000:01:00.0", "01:00.0", "0:1:0"],
)
def test_a_gpu_is_found_by_its_pci_address(text: str) -> None:
    node = SampledCluster()
    assert report_errors(node, 1, report(1, bus=text))
    assert only_error(node).device == A


def test_an_error_of_an_unknown_device_is_counted_and_affects_no_container() -> None:
    node = SampledCluster()
    set_holders(node, 0, "a")
    strange = [report(1, bus="0001:01:00.0"), report(1, device="GPU-?"), report(1, device="GPU-?")]
    assert not report_errors(node, 1, *strange, report(1, bus="nonsense"))
    assert node.snapshot().xids == ()
    assert node.join.unknown_xid_devices == {"0001:01:00.0": 1, "GPU-?": 2, "nonsense": 1}
    report_errors(node, 2, *(report(2, device=f"GPU-{n}x") for n in range(2 * MAX_UNKNOWN_DEVICES)))
    assert len(node.join.unknown_xid_devices) == MAX_UNKNOWN_DEVICES + 1
    assert sum(node.join.unknown_xid_devices.values()) == 4 + 2 * MAX_UNKNOWN_DEVICES


# -- reports of two sources


def test_the_kernel_s_log_adds_the_process_and_its_container() -> None:
    node = SampledCluster()
    set_holders(node, 0, "a", "b")
    node.sample(0, use(A, 0, None))
    report_errors(node, 1, report(1))
    before = only_error(node)
    assert report_kernel_errors(
        node, 2, report(1.2, bus="0000:01:00", pid=42, owner=cgroup_owner("a", "1"))
    )
    after = only_error(node)
    assert (after.serial, after.revision, after.pid, after.process) == (1, 1, 42, "python3")
    assert [(v.subject.pod, v.caused) for v in after.victims] == [("a", True), ("b", False)]
    assert before.revision == 0
    assert error_counts(node, "a") == ((79, 1),)


@pytest.mark.parametrize(
    ("source", "apart", "code", "device", "one"),
    [
        ("kernel", 5, 79, A, True),
        ("kernel", -5, 79, A, True),
        ("kernel", 5.1, 79, A, False),
        ("kernel", 1, 31, A, False),
        ("kernel", 1, 79, B, False),
        # Two reports of one source are two errors.
        ("gpus", 0, 79, A, False),
    ],
)
def test_reports_of_two_sources_within_5_seconds_are_one_error(
    *, source: str, apart: float, code: int, device: str, one: bool
) -> None:
    node = SampledCluster()
    report_errors(node, 10, report(10))
    report_errors(node, 20, report(10 + apart, code, device=device), source=source)
    assert len(node.snapshot().xids) == (1 if one else 2)


def test_each_report_is_combined_with_the_nearest_in_time() -> None:
    node = SampledCluster()
    report_errors(node, 10, report(8), report(10))
    report_kernel_errors(node, 11, report(10.1, pid=2), report(8.1, pid=1))
    assert [error.pid for error in node.snapshot().xids] == [1, 2]


def test_the_kernel_may_report_first_and_a_repeated_report_changes_nothing() -> None:
    node = SampledCluster()
    report_kernel_errors(node, 1, report(1, bus="0000:01:00", pid=42))
    assert not report_errors(node, 2, report(1))
    assert (only_error(node).pid, only_error(node).revision) == (42, 0)
    assert not report_kernel_errors(node, 3)


def test_a_report_on_the_instance_has_priority_over_one_on_its_gpu() -> None:
    one = mig(GPUS[0], 1)
    for first, second in ((one.uuid, A), (A, one.uuid)):
        node = SampledCluster([*GPUS, one])
        report_errors(node, 1, report(1, device=first))
        report_kernel_errors(node, 1, report(1, device=second))
        assert only_error(node).device == one.uuid


def test_the_container_of_the_process_is_affected_though_it_was_not_sampled() -> None:
    node = SampledCluster()
    set_holders(node, 0, "a")
    report_kernel_errors(node, 1, report(1, pid=7, owner=cgroup_owner("z", "9")))
    found = [(one.subject.uid, one.holds, one.caused) for one in only_error(node).victims]
    assert found == [("uid-z", False, True), ("uid-a", True, False)]
    report_kernel_errors(node, 20, report(20, pid=8, owner=PartialRef()))
    assert not any(one.caused for one in node.snapshot().xids[1].victims)


# -- retention


def test_errors_are_kept_for_some_time_as_the_same_objects() -> None:
    node = SampledCluster()
    report_errors(node, 1, report(1))
    before = node.snapshot().xids
    report_errors(node, 200, report(99, 31))
    assert [one.serial for one in node.snapshot().xids] == [1, 2]
    assert node.snapshot().xids is node.snapshot().xids
    assert node.snapshot().xids[0] is before[0]
    node.tick(1.1 + RETENTION_NS / NS)
    assert [one.serial for one in node.snapshot().xids] == [2]


def test_an_error_from_the_future_gets_the_present_time() -> None:
    node = SampledCluster()
    report_errors(node, 5, report(50))
    assert only_error(node).at == Instant(at(5).mono_ns, at(5).wall_ns)
