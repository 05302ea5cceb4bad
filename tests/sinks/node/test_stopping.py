"""How the sink ends: what it still writes, what it takes away, and how long that takes."""

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


# -- a change that waits


@pytest.mark.parametrize(
    ("changes", "stop", "patches"),
    [
        # Nothing was said yet.
        ([], 5, 0),
        # It has not settled: written at the stop.
        ([0], 0.5, 1),
        ([0, 20], 20.5, 2),
        # It keeps its distance from the patch before, and so isn't written.
        ([0, 5], 6, 1),
        ([0, 5], 10.9, 1),
        # Nothing waits.
        ([0], 50, 1),
        ([0, 20], 50, 2),
    ],
)
async def test_a_change_that_waits_is_written_if_it_may_be(
    changes: list[float], stop: float, patches: int
) -> None:
    async with Bench().running() as bench:
        for turn, when in enumerate(changes):
            await asyncio.sleep(when - now())
            bench.holds(turn)
        await asyncio.sleep(stop - now())
    assert now() - stop < 0.1
    assert len(bench.api.patches()) == patches
    if patches and patches == len(changes):
        assert bench.said().free == 0b1111 & ~(1 << (patches - 1))


async def test_the_last_snapshot_counts() -> None:
    async with Bench().running() as bench:
        bench.holds(0)
        await asyncio.sleep(20)
        bench.holds(1)
    assert bench.said().free == 0b1101


async def test_what_was_refused_is_not_tried_once_more_at_the_stop() -> None:
    bench = Bench()
    async with bench.running():
        bench.holds(0)
        await asyncio.sleep(20)
        bench.api.answers.extend([FORBIDDEN] * 100)
        bench.holds(1)
        await asyncio.sleep(1.5)
        tried = len(bench.api.requests)
    assert len(bench.api.requests) == tried
    assert bench.said().free == 0b1110


async def test_a_last_write_that_fails_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    async with Bench().running() as bench:
        bench.holds(0)
        await asyncio.sleep(20)
        bench.holds(1)
        bench.api.answers.append(FORBIDDEN)
    [given_out] = warnings(caplog)
    assert "does not have the last change: podgpu may not" in given_out


@pytest.mark.parametrize("remove", ["never", "at_stop"])
async def test_before_the_sources_have_spoken_nothing_is_written(remove: str) -> None:
    bench = Bench(remove=remove)
    bench.waits_for("kubelet")
    async with bench.running():
        bench.show()
        await asyncio.sleep(5)
    assert bench.value() is None


# -- a request under way


@pytest.mark.parametrize("method", ["GET", "PATCH"])
@pytest.mark.parametrize("remove", ["never", "at_stop", "now"])
async def test_a_request_without_an_answer_holds_no_one_up(
    method: str, remove: str, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(remove=remove)
    bench.api.annotate(PATH, **{KEY: "{}"})

    def before(asked: str, _path: str) -> None:
        if asked == method:
            bench.api.takes = 3600

    bench.api.before = before
    async with bench.running():
        bench.holds(0)
        await asyncio.sleep(2)
        stopped = now()
    assert now() - stopped < 6.5
    assert "was not written: no response in time" in warnings(caplog)[-1 - (remove == "at_stop")]


async def test_a_request_that_is_answered_in_time_is_waited_for() -> None:
    bench = Bench()
    bench.api.takes = 1.5
    async with bench.running():
        bench.holds(0)
        await asyncio.sleep(1.1)
    assert bench.said().free == 0b1110
    assert bench.ctx.counted("podgpu_sink_requests_total") == {"get ok": 1, "patch ok": 1}


@pytest.mark.parametrize("remove", ["never", "at_stop"])
async def test_a_request_that_fails_while_the_sink_stops_is_reported(
    remove: str, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(remove=remove)
    bench.api.takes, bench.api.losing = 0.5, 1
    async with bench.running():
        bench.holds(0)
        await asyncio.sleep(1.6)
        assert bench.methods() == ["GET", "PATCH"]
    first, *more = [given_out.partition(" was ")[2] for given_out in warnings(caplog)]
    assert first == "not written: connection lost"
    # It may be made yet, for all that anybody knows.
    assert [given_out.partition(";")[0] for given_out in more] == (
        ["removed, but an earlier patch got no response and may still be applied"]
        if remove == "at_stop"
        else []
    )
    assert (bench.value() is None) is (remove == "at_stop")


async def test_a_new_attempt_holds_no_one_up_either() -> None:
    bench = Bench()
    bench.api.answers.append(FORBIDDEN)
    async with bench.running():
        bench.holds(0)
        await asyncio.sleep(1.5)
        bench.api.takes = 3600
        await asyncio.sleep(2)
        stopped = now()
    assert now() - stopped < 8


async def test_a_sink_that_is_cancelled_goes_at_once() -> None:
    bench = Bench(remove="at_stop")
    bench.api.takes = 3600

    async def work() -> None:
        async with bench.sink:
            await bench.sink.run(bench.inbox)

    bench.holds(0)
    task = asyncio.create_task(work())
    await asyncio.sleep(2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert now() == 2
    assert bench.ctx.counted("podgpu_sink_requests_total") == {"get error": 1}
    assert len(asyncio.all_tasks()) == 1


# -- taken away at the stop


async def test_it_is_left_unless_asked_otherwise() -> None:
    async with Bench().running() as bench:
        bench.holds(0)
        await asyncio.sleep(2)
    assert bench.said().free == 0b1110


@pytest.mark.parametrize("held", [1, 3, 20])
async def test_it_is_taken_away_at_the_stop(held: float, caplog: pytest.LogCaptureFixture) -> None:
    """Even within the interval: it isn't written again."""
    async with Bench(remove="at_stop").running() as bench:
        bench.holds(0)
        await asyncio.sleep(2)
        assert bench.value() is not None
        await asyncio.sleep(held)
        bench.holds(1)
    assert bench.api.annotations(PATH) == {"theirs": "1"}
    assert warnings(caplog) == []


async def test_what_an_earlier_run_left_goes_too() -> None:
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
async def test_where_that_fails_a_command_is_reported(
    error: ApiError, caplog: pytest.LogCaptureFixture
) -> None:
    async with Bench(remove="at_stop").running() as bench:
        bench.holds(0)
        await asyncio.sleep(20)
        bench.api.answers.append(error)
        stopped = now()
    assert now() - stopped < 0.1
    assert len(bench.api.patches()) == 2
    [given_out] = warnings(caplog)
    assert f"could not be removed: {error}; remove it: {COMMAND}" in given_out


async def test_where_no_answer_comes_a_command_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Bench(remove="at_stop").running() as bench:
        bench.holds(0)
        await asyncio.sleep(20)
        bench.api.takes = 3600
        stopped = now()
    assert now() - stopped < 3.1
    [given_out] = warnings(caplog)
    assert f"could not be removed: no response in time; remove it: {COMMAND}" in given_out


async def test_where_the_node_has_gone_there_is_nothing_to_take_away(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Bench(remove="at_stop").running() as bench:
        bench.holds(0)
        await asyncio.sleep(20)
        del bench.api.objects[PATH]
    assert warnings(caplog) == []


async def test_a_sink_that_waits_to_try_again_takes_nothing_away() -> None:
    """It has just been refused: nobody is asked again only because podgpu stops."""
    bench = Bench(remove="at_stop")
    bench.api.answers.append(FORBIDDEN)
    async with bench.running():
        bench.holds(0)
        await asyncio.sleep(1.5)
    assert bench.methods() == ["GET"]


# -- reloads


async def test_with_another_key_the_old_one_goes() -> None:
    bench = Bench(remove="at_stop")
    async with bench.running():
        bench.holds(0)
        await asyncio.sleep(5)
    async with bench.running(bench.made(annotation="example.com/gpus", remove="at_stop")):
        # The Node was changed at 5 s.
        await asyncio.sleep(9.9)
        assert bench.api.annotations(PATH).keys() == {"theirs"}
        await asyncio.sleep(0.2)
        assert bench.api.annotations(PATH).keys() == {"theirs", "example.com/gpus"}
    assert bench.api.annotations(PATH) == {"theirs": "1"}


async def test_with_other_times_it_is_taken_over_without_a_word(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    async with bench.running():
        bench.holds(0)
        await asyncio.sleep(5)
    async with bench.running(bench.made(refresh="1m")):
        await asyncio.sleep(7)
        assert bench.said().refresh == 60
    assert warnings(caplog) == []
    assert bench.overwritten() == 0


async def test_reloads_make_no_patch_within_the_interval() -> None:
    bench = Bench(min_interval="1m")
    for turn in range(30):
        async with bench.running(bench.made(min_interval="1m", refresh=f"{turn + 2}m")):
            bench.holds(turn % 4)
            await asyncio.sleep(5)
    assert len(bench.patched_at()) == 3
    assert min(bench.distances()) >= 60


async def test_another_node_was_not_changed() -> None:
    bench = Bench()
    bench.api.put("/api/v1/nodes/node-2", {"kind": "Node", "metadata": {}})
    bench.holds(0)
    for sink in (bench.made(), bench.made(node="node-2")):
        async with bench.running(sink):
            await asyncio.sleep(1.1)
    assert len(bench.api.patches()) == 2


@pytest.mark.parametrize("remove", ["never", "at_stop"])
async def test_a_sink_that_runs_again_after_its_end_keeps_the_annotation(remove: str) -> None:
    """As it does where its successor can't be had."""
    bench = Bench(remove=remove)
    async with bench.running():
        bench.holds(0)
        await asyncio.sleep(20)
    asked = len(bench.api.requests)
    async with bench.running():
        await asyncio.sleep(11)
        assert bench.said().free == 0b1110
        # What was taken away is looked for anew; what was left is known.
        assert bench.methods()[asked:] == (["GET", "PATCH"] if remove == "at_stop" else [])
        bench.holds(1)
        await asyncio.sleep(11)
        assert bench.said().free == 0b1101
        assert bench.overwritten() == 0


# -- taken away now


async def test_what_is_there_is_taken_away_and_none_is_written(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    bench = Bench(remove="now", refresh="1m")
    bench.api.annotate(PATH, **{KEY: "whatever"})
    async with bench.running():
        # Neither a snapshot nor a topology is waited for.
        await asyncio.sleep(1.1)
        assert bench.api.annotations(PATH) == {"theirs": "1"}
        for turn in range(4):
            bench.holds(turn)
            await asyncio.sleep(10)
        assert bench.methods() == ["GET", "PATCH"]
        assert bench.overwritten() == 0
    assert bench.methods() == ["GET", "PATCH"]
    assert [r.message for r in caplog.records if "was removed" in r.message] == [
        "the annotation podgpu.io/topology of the Node node-1 was removed"
    ]


async def test_where_there_is_none_nothing_is_changed() -> None:
    bench = Bench(remove="now", refresh="1m")
    bench.node = Node()
    bench.node.has(*GPUS)
    async with bench.running():
        await asyncio.sleep(200)
        assert bench.methods() == ["GET"] * 4


async def test_what_comes_back_is_taken_away_at_the_next_refresh() -> None:
    async with Bench(remove="now", refresh="1m").running() as bench:
        await asyncio.sleep(10)
        bench.api.annotate(PATH, **{KEY: "again"})
        await asyncio.sleep(55)
        assert bench.value() is None
        assert bench.methods() == ["GET", "GET", "PATCH"]


async def test_a_removal_that_fails_is_tried_again() -> None:
    bench = Bench(remove="now")
    bench.api.annotate(PATH, **{KEY: "whatever"})
    bench.api.answers.extend([None, FORBIDDEN])
    async with bench.running():
        await asyncio.sleep(5)
        assert bench.value() is None
