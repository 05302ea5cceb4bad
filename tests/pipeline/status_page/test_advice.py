"""What a problem advises depends on who uses the GPU, and on the GPU's other problems."""

from dataclasses import replace

import pytest

from pipeline.model import (
    NS,
    DeviceUsage,
    GpuProcess,
    Instant,
    ProcessList,
    SamplesTaken,
    Usage,
)
from pipeline.model.usage import ContainerUsage, Holding
from pipeline.status_page.daemon_state import date
from pipeline.status_page.document_builder import status_of
from pipeline.status_page.problem_text import affected_text, problem_text
from pipeline.status_page.use_format import ProblemStatus
from tests.pipeline.status_page.scenes import GIB
from tests.pipeline.status_page.test_problems import Watched
from tests.support.nodes import START, at, claim, claims, gpu, kubelet_claim, mig, reading, uuid_of
from tests.support.usage import used

FREE = "no pod uses it now: reset the GPU"


def problems(
    watched: Watched, seconds: float, *containers: ContainerUsage, device: str = uuid_of(0)
) -> list[ProblemStatus]:
    """Return the problems of devices with these containers in the account of a device."""
    known = (START, at(seconds), containers, None, None, None, None, None, 0, 0, None, None)
    usage = Usage({device: DeviceUsage(device, *known)})
    state = watched.state(seconds)
    assert state.snapshot is not None
    found = status_of(replace(state, snapshot=replace(state.snapshot, usage=usage))).problems
    return [one for one in found or () if one.device is not None]


def user(name: str, start: Instant = START) -> ContainerUsage:
    return replace(used(name, uid="", memory=GIB), start=start)


@pytest.mark.parametrize("field", ["recovery_action", "row_remap_pending", "retired_pages_pending"])
def test_the_advice_for_a_free_gpu_is_no_drain(field: str) -> None:
    watched = Watched()
    watched.reads(10, (field, 1))
    [found] = problems(watched, 10)
    assert found.advice == FREE
    [found] = [one for one in problems(watched, 10, user("stray")) if one.kind != "unclaimed_use"]
    assert found.advice != FREE


def test_a_gpu_with_a_process_of_an_unknown_container_is_not_free() -> None:
    watched = Watched()
    running = ProcessList(uuid_of(0), (GpuProcess(4711, "compute", GIB),), at(10), 10**12)
    watched.node.say(SamplesTaken((), (running,)))
    watched.reads(10, ("recovery_action", 1))
    [found] = problems(watched, 10)
    assert found.advice == "drain the GPU and reset it"


def test_the_instances_of_a_gpu_count_as_the_gpu() -> None:
    watched = Watched(kubelet_claim("lab-0", mig(gpu(1), 7).uuid))
    watched.node.reads(reading(gpu(1), "recovery_action", 1, when=at(10)))
    watched.past.add(watched.node.snapshot())
    [found] = problems(watched, 10)
    assert found.advice == "drain the GPU and reset it"
    assert affected_text(found) == "affected: ml/lab-0 (main)"


@pytest.mark.parametrize("pending", ["row_remap_pending", "retired_pages_pending"])
@pytest.mark.parametrize("action", [1, 2, 4])
def test_a_reset_for_which_the_driver_asks_is_advised_once(pending: str, action: int) -> None:
    watched = Watched()
    watched.reads(10, (pending, 1), ("recovery_action", action))
    asked, waits = problems(watched, 10)
    assert asked.advice is not None
    assert waits.advice is None
    assert waits.text.endswith("at the next reset, for which the driver asks")


def test_a_fault_affects_those_who_use_the_gpu_without_holding_it() -> None:
    watched = Watched(kubelet_claim("render-0", uuid_of(0)))
    watched.reads(10, ("clock_throttle_reasons", 0x20))
    [found] = problems(watched, 10, user("encode-0"))
    assert affected_text(found) == "affected: ml/render-0 (main), ml/encode-0 (main)"


def test_use_without_a_claim_is_a_problem_after_a_minute() -> None:
    watched = Watched(kubelet_claim("train-0", uuid_of(0)))
    watched.reads(100)
    assert problems(watched, 100, user("stray", at(41)), user("train-0")) == []
    [found] = problems(watched, 100, user("stray", at(40)))
    assert (found.kind, found.severity, found.where) == ("unclaimed_use", "info", "GPU 0")
    assert problem_text(found).startswith(
        "GPU 0: containers use it without holding it; used by: ml/stray (main); advice: let"
    )


def test_a_container_that_has_lost_its_claim_has_a_minute_from_then() -> None:
    watched = Watched()
    watched.reads(200)
    lost = user("train-0")
    holding = Holding(uuid_of(0), lost.subject, None, "", None, at(0), held_ns=100 * NS)
    lost = replace(lost, holding=holding)
    assert problems(watched, 150, lost) == []
    [found] = problems(watched, 161, lost)
    assert found.since == date(at(100).wall_ns)


def test_use_is_no_problem_while_claims_are_unknown() -> None:
    """Without the kubelet's list, every container seems to have no claim."""
    watched = Watched(kubelet_claim("train-0", uuid_of(0)))
    watched.reads(800)
    assert problems(watched, 800, user("stray")) == [], "not confirmed for five minutes"


def test_a_pod_of_a_conflict_is_not_named_twice() -> None:
    watched = Watched(kubelet_claim("render-0", uuid_of(0)))
    watched.node.say(claims(claim("encode-0", uuid_of(0)), good_for=900), "podlist", "podlist")
    watched.reads(100)
    [found] = problems(watched, 100, user("encode-0"))
    assert (found.kind, affected_text(found)) == (
        "conflict",
        "claimed by: ml/encode-0; held by: ml/render-0 (main)",
    )


def test_an_xid_of_a_lost_gpu_says_when_the_gpu_responds_again() -> None:
    watched = Watched()
    watched.reads(10, ("gpu_up", 1))
    watched.fails(20, 79)
    assert "responds again" not in problems(watched, 20)[0].text
    watched.reads(30, ("gpu_up", 0))
    assert not any("responds again" in one.text for one in problems(watched, 30))
    watched.reads(40, ("gpu_up", 1))
    [found] = problems(watched, 40)
    assert found.text.endswith("; the GPU responds again, and can fail again")
    watched.fails(50, 79)
    assert "responds again" not in problems(watched, 50)[0].text, "a later error"
