"""When a fault of a GPU is a problem, since when, and when it is over."""

import pytest

from pipeline.model import (
    NS,
    Claim,
    Instant,
    PartialRef,
    Reading,
    SamplesTaken,
    XidReport,
    XidsReported,
)
from pipeline.status_page.daemon_state import StatusInput
from pipeline.status_page.document_builder import status_of
from pipeline.status_page.fault_memory import MOST_VICTIMS, MOST_XIDS, FaultMemory
from pipeline.status_page.problem_text import problem_text
from pipeline.status_page.recent_past import RecentPast
from pipeline.status_page.use_format import ProblemStatus
from tests.pipeline.status_page.scenes import report_claims, started_node, status_input
from tests.support.nodes import at, gpu, kubelet_claim, mig, reading, uuid_of

GONE = "look for its XID errors"
RESET = "when no pod uses it, reset the GPU or reboot the node"
VENDOR = "drain the node and contact the vendor"


class Watched:
    """A node whose status page remembers each snapshot."""

    def __init__(self, *pods: Claim) -> None:
        self.node = started_node()
        self.past = RecentPast()
        self.node.has(gpu(0), gpu(1), mig(gpu(1), 7))
        report_claims(self.node, *pods)

    def reads(self, seconds: float, *readings: tuple[str, float] | tuple[str, float, str]) -> None:
        """Take readings of GPU 0 at a time. They are valid for a day."""
        self.node.seconds = seconds
        self.node.say(SamplesTaken(tuple(_made(each, seconds) for each in readings), ()))
        self.past.add(self.node.snapshot())

    def fails(self, seconds: float, code: int, device: str = uuid_of(0)) -> None:
        self.node.seconds = seconds
        self.node.say(XidsReported((XidReport(device, "", code, at(seconds)),)))
        self.past.add(self.node.snapshot())

    def state(self, seconds: float, now: Instant | None = None) -> StatusInput:
        return status_input(self.node, now=now or at(seconds), past=self.past.known())

    def problems(self, seconds: float, now: Instant | None = None) -> tuple[ProblemStatus, ...]:
        found = status_of(self.state(seconds, now)).problems
        assert found is not None
        return tuple(one for one in found if one.device is not None)


def _made(found: tuple[str, float] | tuple[str, float, str], seconds: float) -> Reading:
    field, value, *reason = found
    attrs = tuple(("reason", each) for each in reason)
    return reading(gpu(0), field, value, attrs=attrs, when=at(seconds), good_for=86_400)


TABLE = [
    ("gpu_up", (1, 0), "gpu_lost", "critical", GONE),
    ("ecc_uncorrected_volatile", (0, 3), "ecc_uncorrected", "critical", "restart the programs"),
    ("row_remap_failed", (0, 1), "row_remap_failed", "critical", VENDOR),
    ("row_remap_pending", (0, 1), "row_remap_pending", "warning", RESET),
    ("retired_pages_pending", (0, 1), "retired_pages_pending", "warning", RESET),
    ("sram_errors_exceeded", (0, 1), "sram_errors_exceeded", "critical", VENDOR),
    ("recovery_action", (0, 1), "recovery_action", "critical", "drain the GPU and reset it"),
    ("recovery_action", (0, 2), "recovery_action", "critical", "drain the node and reboot it"),
    ("recovery_action", (0, 9), "recovery_action", "critical", "look up the action"),
    ("clock_throttle_reasons", (0, 0x20), "slowdown", "warning", "check fans"),
    ("clock_throttle_reasons", (0x4, 0x48), "slowdown", "warning", "check fans"),
    ("clock_throttle_reasons", (0x1, 0x80), "slowdown", "warning", "check the power supplies"),
    ("clock_throttle_reasons", (0, 0x8), "slowdown", "warning", "check its cooling"),
]


@pytest.mark.parametrize(("field", "values", "kind", "severity", "advice"), TABLE)
def test_a_fault_begins_and_ends(
    field: str, values: tuple[float, float], kind: str, severity: str, advice: str
) -> None:
    well, bad = values
    watched = Watched(kubelet_claim("train-0", uuid_of(0)))
    watched.reads(10, (field, well))
    assert watched.problems(10) == ()
    watched.reads(20, (field, bad))
    watched.reads(50, (field, bad))
    [found] = watched.problems(60)
    assert (found.kind, found.severity, found.where) == (kind, severity, "GPU 0")
    assert found.device == uuid_of(0)
    assert found.advice is not None
    assert found.advice.startswith(advice)
    assert found.text.startswith("GPU 0")
    assert found.since is not None
    assert (found.since.timestamp(), found.since_known) == (at(20).wall_ns / NS, True)
    watched.reads(120, (field, well))
    assert watched.problems(120) == ()


@pytest.mark.parametrize("mask", [0x0, 0x1, 0x2, 0x4, 0x5, 0x10, 0x100, 0x117])
def test_reasons_of_every_busy_or_idle_card_are_no_problem(mask: int) -> None:
    watched = Watched()
    watched.reads(10, ("clock_throttle_reasons", mask))
    assert watched.problems(10) == ()


@pytest.mark.parametrize("reason", ["sw_thermal", "hw_thermal", "hw_power_brake", "hw_slowdown"])
def test_a_slowdown_is_known_from_one_reason_alone(reason: str) -> None:
    watched = Watched()
    watched.reads(
        10, ("clock_throttle_active", 1, reason), ("clock_throttle_active", 1, "power_cap")
    )
    [found] = watched.problems(10)
    assert (found.kind, found.severity) == ("slowdown", "warning")


IMPOSSIBLE = [float("inf"), float("nan"), 10**400, -1]


@pytest.mark.parametrize("value", IMPOSSIBLE)
@pytest.mark.parametrize("field", ["recovery_action", "ecc_uncorrected_volatile"])
def test_an_impossible_value_is_no_fault(field: str, value: float) -> None:
    watched = Watched()
    watched.reads(10, (field, value))
    assert watched.problems(10) == ()


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_an_impossible_mask_is_no_slowdown(value: float) -> None:
    watched = Watched()
    watched.reads(10, ("clock_throttle_reasons", value))
    assert watched.problems(10) == ()


def test_a_slowdown_that_comes_and_goes_does_not_flicker() -> None:
    watched = Watched()
    for seconds, mask in ((0, 0), (10, 0x20), (20, 0), (69, 0)):
        watched.reads(seconds, ("clock_throttle_reasons", mask))
    [found] = watched.problems(69)
    assert found.since is not None
    assert found.since.timestamp() == at(10).wall_ns / NS
    watched.reads(70, ("clock_throttle_reasons", 0))
    assert watched.problems(70) == ()


def test_a_fault_that_podgpu_did_not_see_begin() -> None:
    watched = Watched()
    watched.reads(10, ("row_remap_pending", 1))
    [found] = watched.problems(10)
    assert not found.since_known


def test_old_ecc_errors_are_less_severe_until_there_are_more() -> None:
    watched = Watched()
    watched.reads(10, ("ecc_uncorrected_volatile", 3))
    [old] = watched.problems(10)
    assert (old.severity, old.since_known) == ("warning", False)
    watched.reads(20, ("ecc_uncorrected_volatile", 4))
    [new] = watched.problems(3619)
    assert (new.severity, new.since_known) == ("critical", True)
    assert "could not correct 4 errors" in new.text
    [later] = watched.problems(3621)
    assert later.severity == "warning"


def test_a_lost_gpu_names_its_holders_and_comes_back() -> None:
    watched = Watched(kubelet_claim("train-0", uuid_of(0)))
    watched.reads(10, ("gpu_up", 1))
    watched.node.has(gpu(1), mig(gpu(1), 7))
    watched.reads(20)
    [found] = watched.problems(20)
    assert [(one.pod, one.part) for one in found.containers] == [("train-0", "held")]
    assert "affected: ml/train-0 (main); advice: look" in problem_text(found)
    watched.node.has(gpu(0), gpu(1), mig(gpu(1), 7))
    watched.reads(30)
    assert watched.problems(30) == ()


def test_a_conflict_on_an_instance_names_the_pods() -> None:
    instance = mig(gpu(1), 7).uuid
    watched = Watched(kubelet_claim("a", instance), kubelet_claim("b", instance))
    watched.reads(10)
    [found] = watched.problems(10)
    assert (found.kind, found.where) == ("conflict", "GPU 1 1g.10gb GI 7, CI 0")
    assert [(one.namespace, one.pod, one.part) for one in found.containers] == [
        ("ml", "a", "claims"),
        ("ml", "b", "claims"),
    ]


# XID errors.

XIDS = [
    (79, "critical", 3600, "reboot the node"),
    (94, "warning", 3600, "restart the program"),
    (74, "warning", 3600, "follow NVIDIA's procedure"),
    (31, "info", 600, "restart the program"),
    (58, "warning", 3600, "contact the vendor"),
    (45, "info", 600, "follow NVIDIA's procedure"),
    (4711, "info", 3600, "look for the line with this code"),
]


@pytest.mark.parametrize(("code", "severity", "seconds", "advice"), XIDS)
def test_an_xid_error_is_a_problem_for_a_while(
    code: int, severity: str, seconds: int, advice: str
) -> None:
    watched = Watched(kubelet_claim("train-0", uuid_of(0)))
    watched.fails(10, code)
    for now in (10, 10 + seconds):
        [found] = watched.problems(now)
        assert (found.kind, found.severity, found.where) == ("xid", severity, "GPU 0")
        assert f"XID {code}, " in found.text
        assert found.advice is not None
        assert found.advice.startswith(advice)
        assert [(one.pod, one.part) for one in found.containers] == [("train-0", "held")]
    assert watched.problems(11 + seconds) == ()


@pytest.mark.parametrize("code", [14, 44, 63, 106, 162])
def test_a_code_that_needs_no_action_is_no_problem(code: int) -> None:
    watched = Watched()
    watched.fails(10, code)
    assert watched.problems(10) == ()


def test_victims_are_known_after_the_snapshots_forget_the_error() -> None:
    watched = Watched(kubelet_claim("train-0", uuid_of(0)))
    watched.fails(10, 79)
    watched.reads(1000)
    assert watched.node.snapshot().xids == ()
    [found] = watched.problems(1000)
    assert [one.pod for one in found.containers] == ["train-0"]


def test_an_error_that_only_a_counter_reports() -> None:
    watched = Watched()
    node, seen = watched.node, at(5).wall_ns / NS
    attrs = (("xid", "79"),)
    node.reads(
        reading(gpu(0), "xid_errors", 2, attrs=attrs),
        reading(gpu(0), "xid_last_seen_timestamp_seconds", seen, attrs=attrs),
    )
    watched.past.add(node.snapshot())
    [found] = watched.problems(10)
    assert found.text == "GPU 0: XID 79, GPU has fallen off the bus, 2 times since podgpu started"
    assert found.containers == ()


def test_an_error_of_an_instance_is_shown_at_its_gpu() -> None:
    instance = mig(gpu(1), 7).uuid
    watched = Watched(kubelet_claim("a", instance))
    watched.fails(10, 94, device=instance)
    [found] = watched.problems(10)
    assert (found.where, [one.pod for one in found.containers]) == ("GPU 1", ["a"])


def test_the_most_severe_problems_come_first() -> None:
    watched = Watched()
    watched.fails(10, 31)
    watched.reads(11, ("row_remap_pending", 1))
    watched.fails(12, 79)
    severities = [one.severity for one in watched.problems(12)]
    assert severities == ["critical", "warning", "info"]


def test_the_memory_of_errors_is_bounded() -> None:
    memory, watched = FaultMemory(), Watched()
    for code in range(1, MOST_XIDS + 20):
        watched.fails(code, 1000 + code)
        memory.add(watched.node.snapshot())
    codes = [one.code for one in memory.xids]
    assert len(codes) == MOST_XIDS
    assert codes[-1] == 1000 + MOST_XIDS + 19


def test_of_many_victims_some_are_named_and_the_rest_counted() -> None:
    pods = [kubelet_claim(f"p{n:02}", f"{uuid_of(0)}::{n}") for n in range(MOST_VICTIMS + 4)]
    watched = Watched(*pods)
    watched.fails(10, 79)
    [found] = watched.problems(10)
    assert (len(found.containers), found.containers_left_out) == (MOST_VICTIMS, 4)
    assert problem_text(found).count("ml/p") == 4
    assert f"and {MOST_VICTIMS} more" in problem_text(found)


def test_a_change_of_the_wall_clock_moves_no_beginning() -> None:
    """Durations are those of the monotonic clock."""
    watched = Watched()
    watched.reads(10, ("row_remap_pending", 0))
    watched.reads(20, ("row_remap_pending", 1))
    later = at(80)
    moved = Instant(later.mono_ns, later.wall_ns + 86_400 * NS)
    [found] = watched.problems(80, moved)
    assert found.since is not None
    assert moved.wall_ns / NS - found.since.timestamp() == 60


def test_the_container_whose_process_the_kernel_log_names_caused_the_error() -> None:
    watched = Watched()
    watched.node.seconds = 10
    owner = PartialRef("ml", "stray", "main", "u-1")
    report = XidReport(uuid_of(0), "", 31, at(10), 4242, "python3", owner)
    watched.node.say(XidsReported((report,)))
    watched.past.add(watched.node.snapshot())
    [found] = watched.problems(10)
    assert [(one.uid, one.part) for one in found.containers] == [("u-1", "caused")]
