"""How the sink stops: its last write, the removal of the annotation, and how long it takes."""

import asyncio
import logging

import pytest

from pipeline.base.errors import ApiError
from pipeline.topology.node_annotation import KEY
from tests.sinks.node.support import GPUS, PATH, Bench, now
from tests.support.nodes import Node

pytestmark = pytest.mark.looptime

FORBIDDEN = ApiError("podgpu may not get, patch nodes", status=403, reason="Forbidden")
COMMAND = "kubectl annotate node node-1 podgpu.io/topology-"


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


# -- a pending change


@pytest.mark.parametrize(
    ("changes", "stop", "patches"),
    [
        # No snapshot yet.
        ([], 5, 0),
        # A change that has not settled is written at the stop.
        ([0], 0.5, 1),
        ([0, 20], 20.5, 2),
        # A change within min_interval after the last patch is not written.
        ([0, 5], 6, 1),
        ([0, 5], 10.9, 1),
        # No pending change.
        ([0], 50, 1),
        ([0, 20], 50, 2),
    ],
)
async def test_a_pending_change_is_written_at_the_stop_if_min_interval_allows(
    changes: list[float], stop: float, patches: int
) -> None:
    async with Bench().running() as bench:
        for turn, when in enumerate(changes):
            await asyncio.sleep(when - now())
            bench.set_held(turn)
        await asyncio.sleep(stop - now())
    assert now() - stop < 0.1
    assert len(bench.api.patches()) == patches
    if patches and patches == len(changes):
        assert bench.published().free == 0b1111 & ~(1 << (patches - 1))


async def test_the_last_snapshot_is_written_at_the_stop() -> None:
    async with Bench().running() as bench:
        bench.set_held(0)
        await asyncio.sleep(20)
        bench.set_held(1)
    assert bench.published().free == 0b1101


async def test_a_refused_change_is_not_retried_at_the_stop() -> None:
    bench = Bench()
    async with bench.running():
        bench.set_held(0)
        await asyncio.sleep(20)
        bench.api.answers.extend([FORBIDDEN] * 100)
        bench.set_held(1)
        await asyncio.sleep(1.5)
        requests_before = len(bench.api.requests)
    assert len(bench.api.requests) == requests_before
    assert bench.published().free == 0b1110


async def test_a_failed_last_write_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with Bench().running() as bench:
        bench.set_held(0)
        await asyncio.sleep(20)
        bench.set_held(1)
        bench.api.answers.append(FORBIDDEN)
    [message] = warnings(caplog)
    assert "the last change could not be written before the sink stopped: podgpu may not" in message


@pytest.mark.parametrize("remove", ["never", "at_stop"])
async def test_nothing_is_written_at_the_stop_before_all_sources_have_reported(remove: str) -> None:
    bench = Bench(remove=remove)
    bench.add_source("kubelet")
    async with bench.running():
        bench.send_snapshot()
        await asyncio.sleep(5)
    assert bench.value() is None


# -- a request in progress


@pytest.mark.parametrize("method", ["GET", "PATCH"])
@pytest.mark.parametrize("remove", ["never", "at_stop", "now"])
async def test_a_request_without_a_response_does_not_delay_the_stop(
    method: str, remove: str, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(remove=remove)
    bench.api.annotate(PATH, **{KEY: "{}"})

    def before(sent: str, _path: str) -> None:
        if sent == method:
            bench.api.takes = 3600

    bench.api.before = before
    async with bench.running():
        bench.set_held(0)
        await asyncio.sleep(2)
        stopped = now()
    assert now() - stopped < 6.5
    assert "was not written: no response in time" in warnings(caplog)[-1 - (remove == "at_stop")]


async def test_the_stop_waits_for_a_response_that_arrives_in_time() -> None:
    bench = Bench()
    bench.api.takes = 1.5
    async with bench.running():
        bench.set_held(0)
        await asyncio.sleep(1.1)
    assert bench.published().free == 0b1110
    assert bench.ctx.counted("podgpu_sink_requests_total") == {"get ok": 1, "patch ok": 1}


@pytest.mark.parametrize("remove", ["never", "at_stop"])
async def test_a_request_that_fails_during_the_stop_is_logged(
    remove: str, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(remove=remove)
    bench.api.takes, bench.api.losing = 0.5, 1
    async with bench.running():
        bench.set_held(0)
        await asyncio.sleep(1.6)
        assert bench.methods() == ["GET", "PATCH"]
    first, *more = [message.partition(" was ")[2] for message in warnings(caplog)]
    assert first == "not written: connection lost"
    # The patch without a response may still be applied.
    assert [message.partition(";")[0] for message in more] == (
        ["removed, but an earlier patch got no response and may still be applied"]
        if remove == "at_stop"
        else []
    )
    assert (bench.value() is None) is (remove == "at_stop")


async def test_a_retry_without_a_response_does_not_delay_the_stop() -> None:
    bench = Bench()
    bench.api.answers.append(FORBIDDEN)
    async with bench.running():
        bench.set_held(0)
        await asyncio.sleep(1.5)
        bench.api.takes = 3600
        await asyncio.sleep(2)
        stopped = now()
    assert now() - stopped < 8


async def test_a_cancelled_sink_ends_immediately() -> None:
    bench = Bench(remove="at_stop")
    bench.api.takes = 3600

    async def work() -> None:
        async with bench.sink:
            await bench.sink.run(bench.inbox)

    bench.set_held(0)
    task = asyncio.create_task(work())
    await asyncio.sleep(2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert now() == 2
    assert bench.ctx.counted("podgpu_sink_requests_total") == {"get error": 1}
    assert len(asyncio.all_tasks()) == 1


# -- removal at the stop


async def test_the_annotation_stays_by_default() -> None:
    async with Bench().running() as bench:
        bench.set_held(0)
        await asyncio.sleep(2)
    assert bench.published().free == 0b1110


@pytest.mark.parametrize("held", [1, 3, 20])
async def test_the_annotation_is_removed_at_the_stop(
    held: float, caplog: pytest.LogCaptureFixture
) -> None:
    """Also within min_interval, because it is not written again."""
    async with Bench(remove="at_stop").running() as bench:
        bench.set_held(0)
        await asyncio.sleep(2)
        assert bench.value() is not None
        await asyncio.sleep(held)
        bench.set_held(1)
    assert bench.api.annotations(PATH) == {"theirs": "1"}
    assert warnings(caplog) == []


async def test_the_annotation_of_an_earlier_run_is_removed_too() -> None:
    bench = Bench(remove="at_stop")
    bench.api.annotate(PATH, **{KEY: "{}"})
    async with bench.running():
        await asyncio.sleep(1)
    assert bench.value() is None


@pytest.mark.parametrize(
    "error",
    [
        FORBIDDEN,
        ApiError("connection refused"),
        ApiError("busy", status=429, retry_after=30),
        ApiError("sick", status=503),
    ],
)
async def test_a_failed_removal_is_logged_with_a_command(
    error: ApiError, caplog: pytest.LogCaptureFixture
) -> None:
    async with Bench(remove="at_stop").running() as bench:
        bench.set_held(0)
        await asyncio.sleep(20)
        bench.api.answers.append(error)
        stopped = now()
    assert now() - stopped < 0.1
    assert len(bench.api.patches()) == 2
    [message] = warnings(caplog)
    assert f"could not be removed: {error}; remove it: {COMMAND}" in message


async def test_a_removal_without_a_response_is_logged_with_a_command(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Bench(remove="at_stop").running() as bench:
        bench.set_held(0)
        await asyncio.sleep(20)
        bench.api.takes = 3600
        stopped = now()
    assert now() - stopped < 3.1
    [message] = warnings(caplog)
    assert f"could not be removed: no response in time; remove it: {COMMAND}" in message


async def test_a_deleted_node_needs_no_removal(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Bench(remove="at_stop").running() as bench:
        bench.set_held(0)
        await asyncio.sleep(20)
        del bench.api.objects[PATH]
    assert warnings(caplog) == []


async def test_a_sink_that_waits_for_a_retry_removes_nothing() -> None:
    """The API server has just refused a request, so the sink sends no other at the stop."""
    bench = Bench(remove="at_stop")
    bench.api.answers.append(FORBIDDEN)
    async with bench.running():
        bench.set_held(0)
        await asyncio.sleep(1.5)
    assert bench.methods() == ["GET"]


# -- reload


async def test_the_old_annotation_is_removed_when_the_key_changes() -> None:
    bench = Bench(remove="at_stop")
    async with bench.running():
        bench.set_held(0)
        await asyncio.sleep(5)
    async with bench.running(bench.make_sink(annotation="example.com/gpus", remove="at_stop")):
        # The Node was changed at 5 s.
        await asyncio.sleep(9.9)
        assert bench.api.annotations(PATH).keys() == {"theirs"}
        await asyncio.sleep(0.2)
        assert bench.api.annotations(PATH).keys() == {"theirs", "example.com/gpus"}
    assert bench.api.annotations(PATH) == {"theirs": "1"}


async def test_a_reload_with_another_refresh_takes_over_the_annotation(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    async with bench.running():
        bench.set_held(0)
        await asyncio.sleep(5)
    async with bench.running(bench.make_sink(refresh="1m")):
        await asyncio.sleep(7)
        assert bench.published().refresh == 60
    assert warnings(caplog) == []
    assert bench.overwritten() == 0


async def test_reloads_make_no_patch_within_min_interval() -> None:
    bench = Bench(min_interval="1m")
    for turn in range(30):
        async with bench.running(bench.make_sink(min_interval="1m", refresh=f"{turn + 2}m")):
            bench.set_held(turn % 4)
            await asyncio.sleep(5)
    assert len(bench.patched_at()) == 3
    assert min(bench.distances()) >= 60


async def test_min_interval_applies_to_each_node_separately() -> None:
    bench = Bench()
    bench.api.put("/api/v1/nodes/node-2", {"kind": "Node", "metadata": {}})
    bench.set_held(0)
    for sink in (bench.make_sink(), bench.make_sink(node="node-2")):
        async with bench.running(sink):
            await asyncio.sleep(1.1)
    assert len(bench.api.patches()) == 2


@pytest.mark.parametrize("remove", ["never", "at_stop"])
async def test_a_sink_that_is_started_again_keeps_the_annotation(remove: str) -> None:
    """The daemon does so if a reload cannot create the new sink."""
    bench = Bench(remove=remove)
    async with bench.running():
        bench.set_held(0)
        await asyncio.sleep(20)
    requests_before = len(bench.api.requests)
    async with bench.running():
        await asyncio.sleep(11)
        assert bench.published().free == 0b1110
        # After a removal the Node is read again; otherwise its value is known.
        assert bench.methods()[requests_before:] == (
            ["GET", "PATCH"] if remove == "at_stop" else []
        )
        bench.set_held(1)
        await asyncio.sleep(11)
        assert bench.published().free == 0b1101
        assert bench.overwritten() == 0


# -- immediate removal


async def test_an_annotation_is_removed_and_none_is_written(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    bench = Bench(remove="now", refresh="1m")
    bench.api.annotate(PATH, **{KEY: "whatever"})
    async with bench.running():
        # The removal waits neither for a snapshot nor for a topology.
        await asyncio.sleep(1.1)
        assert bench.api.annotations(PATH) == {"theirs": "1"}
        for turn in range(4):
            bench.set_held(turn)
            await asyncio.sleep(10)
        assert bench.methods() == ["GET", "PATCH"]
        assert bench.overwritten() == 0
    assert bench.methods() == ["GET", "PATCH"]
    assert [r.message for r in caplog.records if "was removed" in r.message] == [
        "the annotation podgpu.io/topology of the Node node-1 was removed"
    ]


async def test_a_node_without_the_annotation_is_not_changed() -> None:
    bench = Bench(remove="now", refresh="1m")
    bench.node = Node()
    bench.node.has(*GPUS)
    async with bench.running():
        await asyncio.sleep(200)
        assert bench.methods() == ["GET"] * 4


async def test_an_annotation_that_returns_is_removed_at_the_next_refresh() -> None:
    async with Bench(remove="now", refresh="1m").running() as bench:
        await asyncio.sleep(10)
        bench.api.annotate(PATH, **{KEY: "again"})
        await asyncio.sleep(55)
        assert bench.value() is None
        assert bench.methods() == ["GET", "GET", "PATCH"]


async def test_a_failed_removal_is_retried() -> None:
    bench = Bench(remove="now")
    bench.api.annotate(PATH, **{KEY: "whatever"})
    bench.api.answers.extend([None, FORBIDDEN])
    async with bench.running():
        await asyncio.sleep(5)
        assert bench.value() is None
