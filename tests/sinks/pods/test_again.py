"""What is looked at again without a change, and what is said where nothing can be written."""

import logging
from itertools import pairwise

import pytest

from pipeline.allocations.own_annotations import MARK
from tests.sinks.pods.support import KEY, MIG, Bench, asking, held, known, path_of, pod_of, uuids

pytestmark = pytest.mark.looptime(start=1000)


# -- a pod that is done


async def test_a_pod_is_looked_at_again_each_ten_minutes_one_after_the_other() -> None:
    bench = Bench()
    names = [f"p{number}" for number in range(25)]
    bench.has(*(pod_of(name, asking(gpu=1)) for name in names))
    async with bench.keeping():
        shared = [held(name, 0) for name in names]
        bench.holds(*(type(c)(c.subject, c.devices, 0.01, None, c.origin, KEY) for c in shared))
        await bench.rests(590)
        assert len(bench.api.requests) == 50
        for _ in range(6):
            await bench.rests(600)
    later = [(at, method) for at, method, _, _ in bench.api.requests[50:]]
    assert {method for _, method in later} == {"GET"}
    assert len(later) == 6 * 25
    assert all(after[0] - before[0] >= 0.099 for before, after in pairwise(later))


async def test_what_was_taken_away_comes_again() -> None:
    bench = Bench()
    bench.has(pod_of())
    async with bench.keeping():
        bench.holds(held("a", 0))
        await bench.rests()
        bench.api.annotate(path_of("a"), **{KEY: None, MARK: None})
        await bench.rests(595)
        assert bench.written() == {}
        await bench.rests(10)
    assert bench.written() == {KEY: uuids(0)}


# -- where the API server says another thing than the kubelet


async def test_where_no_uids_are_known_a_pod_made_again_gets_its_own_in_the_end() -> None:
    """It has the name and the GPUs of the one before: nothing changes for podgpu."""
    bench = Bench()
    bench.has(pod_of(uid="first"))
    async with bench.keeping():
        bench.holds(held("a", 0))
        await bench.rests()
        bench.has(pod_of(uid="second"))
        bench.holds(held("a", 0))
        await bench.rests(595)
        assert bench.written() == {}
        await bench.rests(10)
    assert bench.written() == {KEY: uuids(0)}


async def test_where_uids_are_known_it_gets_its_own_at_once() -> None:
    bench = Bench()
    bench.has(pod_of(uid="first"))
    async with bench.keeping():
        bench.reports(known("a", "first"))
        bench.holds(held("a", 0))
        await bench.rests()
        bench.has(pod_of(uid="second"))
        bench.reports(known("a", "second"))
        bench.node.seconds += 5
        bench.holds(held("a", 0))
        await bench.rests()
    assert bench.written() == {KEY: uuids(0)}


@pytest.mark.parametrize("after", [5, 25, 100, 3000])
async def test_a_mirror_that_comes_later_is_found(after: float) -> None:
    bench = Bench()
    async with bench.keeping():
        bench.holds(held("a", 0))
        await bench.rests(after)
        bench.has(pod_of(annotations={"kubernetes.io/config.mirror": "0123abcd"}))
        await bench.rests(min(after, 600) + 11)
    assert bench.written() == {KEY: uuids(0)}
    assert bench.counted()["get 404"] <= 1 + after / 10
    assert bench.counted()["get 404"] <= 12
    assert bench.failed == {}


# -- where nothing can be written


async def silent(bench: Bench, seconds: float, caplog: pytest.LogCaptureFixture) -> list[str]:
    async with bench.keeping():
        bench.show()
        await bench.rests(seconds)
    return [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]


async def test_where_the_kubelet_names_no_resource_of_gpus_it_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    bench.node.podlist()
    assert await silent(bench, 14, caplog) == []
    await silent(bench, 3600, caplog)
    [given_out] = await silent(bench, 3600, caplog)
    assert given_out == (
        "no annotations are written: no extended resource that matches * is known to have GPUs; "
        "this needs the source podresources or checkpoint, a device plugin that is registered with "
        "the kubelet, and `resources` that match its resources"
    )


async def test_the_same_where_resources_lets_none_through(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(resources=("amd.com/*", "example.com/gpu"))
    bench.holds(held("a", 0))
    [given_out] = await silent(bench, 60, caplog)
    assert "matches amd.com/*, example.com/gpu is known" in given_out


async def test_nothing_is_said_where_one_is_known(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.has(pod_of())
    bench.holds(held("a", 0))
    assert await silent(bench, 3600, caplog) == []


async def test_each_pod_is_counted_once_however_many_they_are(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """And what is said for all of them, once."""
    bench = Bench()
    names = [f"p{number}" for number in range(1300)]
    bench.has(*(pod_of(name, asking(gpu=1, mig=1)) for name in names))
    async with bench.keeping():
        shared = [held(name, 0) for name in names]
        both = held("p0", 3, resource=MIG)
        bench.holds(
            *(type(c)(c.subject, c.devices, 1e-4, None, c.origin, KEY) for c in shared), both
        )
        await bench.rests(740)
    assert bench.failed == {"annotate unclear": 1300}
    assert len([r for r in caplog.records if "requests several" in r.getMessage()]) == 1
