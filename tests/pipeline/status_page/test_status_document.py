"""The contents of `/status` for a node."""

from dataclasses import replace

import msgspec
import pytest

from pipeline.model import NS, Claim, Evidence, Pod, PodInfo, PodsReplaced, Reading
from pipeline.status_page.device_status import MOST_HOLDERS
from pipeline.status_page.display_text import access_text, summary
from pipeline.status_page.document_builder import status_of
from pipeline.status_page.problem_text import problems
from pipeline.status_page.status_document import VERSION, GpuStatus, StatusDocument
from tests.pipeline.status_page.scenes import (
    GIB,
    SCENES,
    report_claims,
    started_node,
    status,
    status_input,
)
from tests.support.nodes import Node, at, claim, claims, gpu, kubelet_claim, mig, reading, uuid_of


def gpus(found: StatusDocument) -> tuple[GpuStatus, ...]:
    assert found.gpus is not None
    return found.gpus


def only(*readings: Reading, node: Node | None = None) -> GpuStatus:
    """Return the status of the first GPU of a node, after these readings."""
    example = node or started_node()
    example.has(gpu(0))
    example.reads(*readings)
    [found] = gpus(status_of(status_input(example, now=at(1))))
    return found


def test_a_node_without_problems() -> None:
    found = status("two-gpus")
    assert (found.version, found.node, found.podgpu) == (VERSION, "node-1", "0.1.0")
    assert (found.driver, found.ready, found.waiting_for) == ("580.159.04", True, None)
    assert found.time.isoformat() == "2027-01-15T08:10:00+00:00"
    assert found.started is not None
    assert (found.time - found.started).total_seconds() == 7800
    busy, free = gpus(found)
    assert (busy.index, busy.uuid, busy.name) == (0, uuid_of(0), "NVIDIA H100 80GB HBM3")
    assert (busy.state, busy.utilization_percent, busy.temperature_celsius) == ("up", 93, 50)
    assert (busy.memory_used_bytes, busy.memory_total_bytes) == (40 * GIB, 80 * GIB)
    assert (busy.power_watts, busy.power_limit_watts) == (385, 700)
    assert busy.holders is not None
    [holder] = busy.holders
    assert (holder.namespace, holder.pod, holder.container) == ("ml", "train-0", "main")
    assert (holder.source, holder.evidence, holder.age_seconds) == ("kubelet", "kubelet_ids", 10)
    assert (found.time - holder.since).total_seconds() == 600
    assert (free.holders, free.utilization_percent) == ((), 0)
    assert problems(found) == []
    assert summary(found) == "2 GPUs: 2 up"


@pytest.mark.parametrize("name", SCENES)
def test_the_document_is_read_back_unchanged(name: str) -> None:
    found = status(name)
    assert msgspec.json.decode(msgspec.json.encode(found), type=StatusDocument) == found


UP, LOST = reading(gpu(0), "gpu_up", 1), reading(gpu(0), "gpu_up", 0)
BUSY = reading(gpu(0), "gpu_utilization_percent", 5)


@pytest.mark.parametrize(
    ("readings", "state"),
    [
        ((UP,), "up"),
        ((LOST,), "lost"),
        ((LOST, BUSY), "lost"),
        # The page of another exporter does not have this metric.
        ((BUSY,), "up"),
        ((reading(gpu(0), "memory_used_bytes", 0),), "up"),
        # A reading that is taken seldom can be valid longer than the driver responds.
        ((reading(gpu(0), "memory_total_bytes", 80 * GIB),), "unknown"),
        ((), "unknown"),
    ],
)
def test_the_state_of_a_gpu(readings: tuple[Reading, ...], state: str) -> None:
    assert only(*readings).state == state


def test_a_gpu_that_is_no_longer_enumerated_is_lost() -> None:
    node = started_node()
    node.has(gpu(0), gpu(1))
    node.has(gpu(1))
    found = status_of(status_input(node, now=at(1)))
    assert [card.state for card in gpus(found)] == ["lost", "unknown"]
    assert "GPU 0 is lost" in problems(found)[0]
    assert summary(found) == "2 GPUs: 1 lost, 1 unknown"


def test_instances_are_lost_with_their_gpu() -> None:
    node = started_node()
    node.has(gpu(0), mig(gpu(0), 7))
    node.reads(LOST)
    [found] = gpus(status_of(status_input(node, now=at(1))))
    assert (found.state, [each.state for each in found.instances]) == ("lost", ["lost"])


def test_a_field_without_readings_is_null_and_not_0() -> None:
    found = only()
    nothing = (
        found.utilization_percent,
        found.memory_used_bytes,
        found.memory_total_bytes,
        found.power_watts,
        found.power_limit_watts,
        found.temperature_celsius,
    )
    assert set(nothing) == {None}
    text = msgspec.json.encode(found).decode()
    assert '"power_watts":null' in text
    lists = ("holders", "access", "users", "processes", "xids")
    for counted in ("index", "conflicts", *(f"{each}_left_out" for each in lists)):
        text = text.replace(f'"{counted}":0,', "")
    assert ":0," not in text


def test_the_enforced_power_limit_takes_precedence_over_the_configured_one() -> None:
    set_limit = reading(gpu(0), "power_limit_watts", 700)
    assert only(set_limit).power_limit_watts == 700
    assert (
        only(set_limit, reading(gpu(0), "power_limit_enforced_watts", 500)).power_limit_watts == 500
    )


def test_utilization_is_that_of_the_graphics_engine_if_there_is_no_other() -> None:
    engine = reading(gpu(0), "graphics_engine_active_ratio", 0.4321)
    assert only(engine).utilization_percent == 43.2
    assert only(engine, BUSY).utilization_percent == 5


def test_a_number_beyond_double_precision_is_unknown() -> None:
    assert only(reading(gpu(0), "memory_used_bytes", 10**400)).memory_used_bytes is None


def test_instances_are_listed_with_their_gpu() -> None:
    found = status("mig")
    assert [len(card.instances) for card in gpus(found)] == [7] * 8
    instance = gpus(found)[2].instances[1]
    assert (instance.profile, instance.gpu_instance_id, instance.compute_instance_id) == (
        "1g.10gb",
        8,
        0,
    )
    assert (instance.state, instance.utilization_percent) == ("up", 39)
    assert instance.memory_total_bytes == 10 * GIB
    assert instance.holders is not None
    assert instance.holders[0].pod == "notebook-2-1-7c9d5f6b4"
    assert summary(found) == "8 GPUs: 8 up; 56 MIG instances"


def test_instances_of_a_gpu_that_no_source_reports_are_shown() -> None:
    node = started_node()
    node.has(mig(gpu(3), 7), mig(gpu(3), 8))
    [found] = gpus(status_of(status_input(node)))
    assert (found.index, found.uuid, found.state) == (3, uuid_of(3), "unknown")
    assert len(found.instances) == 2


def test_a_gpu_with_three_replicas_has_three_holders() -> None:
    shared = gpus(status("troubled"))[2]
    assert shared.holders is not None

    holders = [(one.pod, one.replicas, one.share) for one in shared.holders]
    assert holders == [(f"serve-{name}", 1, None) for name in range(3)]


def test_a_holder_of_a_part_has_its_share() -> None:
    part = gpus(status("troubled"))[3]
    assert part.holders is not None
    assert [(one.share, one.source) for one in part.holders] == [(0.5, "podlist")]


def test_conflicts_are_counted_and_reported() -> None:
    found = status("troubled")
    assert gpus(found)[1].conflicts == 2
    assert (
        "GPU 1: claims of pods contradict each other; claimed by: ml/new, ml/old; advice: compare "
        "them with the processes on it, and delete the pod whose claim is wrong"
    ) in problems(found)


def test_a_container_with_access_that_is_no_holder_is_reported() -> None:
    node = started_node()
    node.has(gpu(0))
    node.say(claims(kubelet_claim("train-0", uuid_of(0))), "kubelet", "podresources")
    access_claims = [
        claim(f"p{n}", uuid_of(0), evidence=Evidence.RUNTIME_ENV) for n in range(MOST_HOLDERS + 3)
    ]
    node.say(claims(*access_claims), "runtime", "nri")
    [found] = gpus(status_of(status_input(node)))
    assert found.holders is not None
    assert [holder.pod for holder in found.holders] == ["train-0"]
    first = found.access[0]
    assert (first.namespace, first.pod, first.container) == ("ml", "p0", "main")
    assert (first.source, first.evidence) == ("runtime", "runtime_env")
    assert (len(found.access), found.access_left_out) == (MOST_HOLDERS, 3)
    assert (
        access_text(found) == f"{MOST_HOLDERS + 3} more containers have access without holding it"
    )


def test_without_a_source_of_holders_a_gpu_is_not_free() -> None:
    assert gpus(status("no-holders"))[0].holders is None


def test_a_gpu_is_not_free_once_the_reports_of_holders_are_too_old() -> None:
    node = started_node()
    node.has(gpu(0))
    node.say(claims(claim("train-0", uuid_of(0)), good_for=10), "kubelet", "podresources")
    node.seconds = 60
    node.reads(reading(gpu(0), "gpu_up", 1, when=at(60)))
    assert gpus(status_of(status_input(node)))[0].holders is None


def test_without_a_driver_gpus_are_unknown() -> None:
    found = status("no-driver")
    assert found.gpus is None
    [source] = found.sources
    assert (source.state, source.age_seconds) == ("down", None)
    assert source.error is not None
    assert source.error.text == "libnvidia-ml.so.1 can't be loaded; install the driver"
    assert problems(found) == [
        (
            "no source has reported GPUs (down: gpus); advice: the error of each source that is "
            "down says what to do; podgpu doctor says what the machine lacks"
        ),
        "source gpus is down: libnvidia-ml.so.1 can't be loaded; install the driver",
    ]


def test_a_driver_without_gpus_reports_an_empty_list() -> None:
    node = started_node()
    node.has()
    assert status_of(status_input(node)).gpus == ()


def test_before_the_first_snapshot_sources_are_waiting() -> None:
    found = status("nothing-yet")
    assert (found.gpus, found.driver, found.ready) == (None, None, False)
    assert found.waiting_for == "waiting for the first report of: gpus, kubelet"
    assert [source.state for source in found.sources] == ["waiting", "waiting"]
    assert problems(found) == ["no source has reported GPUs yet"]


# The start of a holding.


@pytest.mark.parametrize(
    ("reported", "began", "known"),
    [
        # Only a claim with a start knows it, from any source. podgpu itself started two hours
        # before this node's first second.
        (kubelet_claim("a", uuid_of(0)), 0.0, False),
        (replace(claim("a", uuid_of(0)), since=at(-7201)), -7201.0, True),
        (replace(claim("a", uuid_of(0)), since=at(-7199)), -7199.0, True),
        (claim("a", uuid_of(0), evidence=Evidence.RUNTIME_CDI), 0.0, False),
        (
            replace(claim("a", uuid_of(0), evidence=Evidence.RUNTIME_CDI), since=at(-5)),
            -5.0,
            True,
        ),
    ],
)
def test_the_start_is_from_the_claim_or_from_its_first_report(
    reported: Claim, began: float, known: bool
) -> None:
    node = started_node()
    node.has(gpu(0))
    report_claims(node, reported)
    [found] = gpus(status_of(status_input(node, now=at(120))))
    assert found.holders is not None
    [holder] = found.holders
    assert holder.since_known is known
    assert holder.since.timestamp() == at(began).wall_ns // 10**9


def test_the_start_is_from_the_api_server() -> None:
    node = started_node(("gpus", "nvml"), ("kubelet", "podresources"), ("pods", "pods"))
    node.has(gpu(0))
    started = Pod(PodInfo("u-1", "ml", "a"), started=at(-30))
    node.say(PodsReplaced((started,), 900 * NS), "pods", "pods")
    report_claims(node, kubelet_claim("a", uuid_of(0)))
    [found] = gpus(status_of(status_input(node, now=at(120))))
    assert found.holders is not None
    [holder] = found.holders
    assert (holder.since_known, holder.since.timestamp()) == (True, at(-30).wall_ns // 10**9)
