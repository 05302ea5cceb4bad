"""Periodic checks of pods without a change, and warnings if nothing can be written."""

import logging
from itertools import pairwise

import pytest

from pipeline.allocations.own_annotations import MARK
from tests.sinks.pods.support import (
    KEY,
    MIG,
    Bench,
    claim,
    container,
    path_of,
    pod_of,
    reported_pod,
    uuids,
)

pytestmark = pytest.mark.looptime(start=1000)


# -- a pod with the right annotation


async def test_each_pod_is_checked_every_ten_minutes_one_at_a_time() -> None:
    bench = Bench()
    names = [f"p{number}" for number in range(25)]
    bench.add_pods(*(pod_of(name, container(gpu=1)) for name in names))
    async with bench.run_sink():
        shared = [claim(name, 0) for name in names]
        bench.set_claims(
            *(type(c)(c.subject, c.devices, 0.01, None, c.origin, KEY) for c in shared)
        )
        await bench.wait(590)
        assert len(bench.api.requests) == 50
        for _ in range(6):
            await bench.wait(600)
    later = [(at, method) for at, method, _, _ in bench.api.requests[50:]]
    assert {method for _, method in later} == {"GET"}
    assert len(later) == 6 * 25
    assert all(after[0] - before[0] >= 0.099 for before, after in pairwise(later))


async def test_a_removed_annotation_is_written_again() -> None:
    bench = Bench()
    bench.add_pods(pod_of())
    async with bench.run_sink():
        bench.set_claims(claim("a", 0))
        await bench.wait()
        bench.api.annotate(path_of("a"), **{KEY: None, MARK: None})
        await bench.wait(595)
        assert bench.written() == {}
        await bench.wait(10)
    assert bench.written() == {KEY: uuids(0)}


# -- the API server and the kubelet differ


async def test_a_recreated_pod_is_annotated_at_the_next_check_without_known_uids() -> None:
    """It has the same name and GPUs as the previous pod, so podgpu sees no change."""
    bench = Bench()
    bench.add_pods(pod_of(uid="first"))
    async with bench.run_sink():
        bench.set_claims(claim("a", 0))
        await bench.wait()
        bench.add_pods(pod_of(uid="second"))
        bench.set_claims(claim("a", 0))
        await bench.wait(595)
        assert bench.written() == {}
        await bench.wait(10)
    assert bench.written() == {KEY: uuids(0)}


async def test_a_recreated_pod_is_annotated_immediately_with_known_uids() -> None:
    bench = Bench()
    bench.add_pods(pod_of(uid="first"))
    async with bench.run_sink():
        bench.report_pods(reported_pod("a", "first"))
        bench.set_claims(claim("a", 0))
        await bench.wait()
        bench.add_pods(pod_of(uid="second"))
        bench.report_pods(reported_pod("a", "second"))
        bench.node.seconds += 5
        bench.set_claims(claim("a", 0))
        await bench.wait()
    assert bench.written() == {KEY: uuids(0)}


@pytest.mark.parametrize("after", [5, 25, 100, 3000])
async def test_a_mirror_pod_that_is_created_later_is_found(after: float) -> None:
    bench = Bench()
    async with bench.run_sink():
        bench.set_claims(claim("a", 0))
        await bench.wait(after)
        bench.add_pods(pod_of(annotations={"kubernetes.io/config.mirror": "0123abcd"}))
        await bench.wait(min(after, 600) + 11)
    assert bench.written() == {KEY: uuids(0)}
    assert bench.request_counts()["get 404"] <= 1 + after / 10
    assert bench.request_counts()["get 404"] <= 12
    assert bench.failed == {}


# -- nothing can be written


async def warnings_while_idle(
    bench: Bench, seconds: float, caplog: pytest.LogCaptureFixture
) -> list[str]:
    async with bench.run_sink():
        bench.send_snapshot()
        await bench.wait(seconds)
    return [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]


async def test_missing_gpu_resources_of_the_kubelet_are_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    bench.node.podlist()
    assert await warnings_while_idle(bench, 14, caplog) == []
    await warnings_while_idle(bench, 3600, caplog)
    [message] = await warnings_while_idle(bench, 3600, caplog)
    assert message == (
        "no annotations are written: no extended resource that matches * is known to have GPUs; "
        "this needs the source podresources or checkpoint, a device plugin that is registered with "
        "the kubelet, and `resources` that match its resources"
    )


async def test_resource_patterns_that_match_nothing_are_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(resources=("amd.com/*", "example.com/gpu"))
    bench.set_claims(claim("a", 0))
    [message] = await warnings_while_idle(bench, 60, caplog)
    assert "matches amd.com/*, example.com/gpu is known" in message


async def test_nothing_is_logged_if_a_resource_is_known(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.add_pods(pod_of())
    bench.set_claims(claim("a", 0))
    assert await warnings_while_idle(bench, 3600, caplog) == []


@pytest.mark.slow
async def test_each_unclear_pod_is_counted_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The message about all of them is logged once."""
    bench = Bench()
    names = [f"p{number}" for number in range(300)]
    bench.add_pods(*(pod_of(name, container(gpu=1, mig=1)) for name in names))
    async with bench.run_sink():
        shared = [claim(name, 0) for name in names]
        both = claim("p0", 3, resource=MIG)
        bench.set_claims(
            *(type(c)(c.subject, c.devices, 1e-4, None, c.origin, KEY) for c in shared), both
        )
        await bench.wait(740)
    assert bench.failed == {"annotate unclear": 300}
    assert len([r for r in caplog.records if "requests several" in r.getMessage()]) == 1
