"""Others who write the annotation: found at the start and at refreshes, told once, written over."""

import asyncio
import json
import logging
import time

import pytest

from pipeline.base.errors import ApiError
from pipeline.topology.node_annotation import KEY
from tests.sinks.node.support import PATH, Bench

pytestmark = pytest.mark.looptime


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


async def written(**options: str) -> str:
    """Return what another podgpu writes of the same node."""
    async with Bench(**options).running() as bench:
        bench.holds(1, 2)
        await asyncio.sleep(2)
        return bench.value() or ""


async def test_a_value_of_an_earlier_run_is_nothing_to_complain_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = await written()
    bench = Bench()
    bench.api.annotate(PATH, **{KEY: before})
    async with bench.running():
        bench.holds(0)
        await asyncio.sleep(2)
        assert bench.said().free == 0b1110
    assert warnings(caplog) == []
    assert bench.overwritten() == 0


async def test_a_value_of_a_newer_podgpu_is_nothing_to_complain_of_either(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    bench.api.annotate(PATH, **{KEY: '{"version":2,"cards":[],"at":1,"refresh":300}'})
    async with bench.running():
        bench.holds(0)
        await asyncio.sleep(2)
        assert bench.said().free == 0b1110
    assert warnings(caplog) == []
    assert bench.overwritten() == 0


async def test_a_value_made_to_be_hard_to_read_holds_no_one_up() -> None:
    """As long as a Node's annotations may be in all, and what a reader would work on for long."""
    hostile = json.loads(await written())
    count = 150
    hostile["gpus"] = [hostile["gpus"][0] | {"uuid": str(n), "index": n} for n in range(count)]
    rows = [
        [(10, 20, 30, 40, 50)[i * j % 5] for j in range(i + 1, count)] for i in range(count - 1)
    ]
    hostile["pairs"] = {"level": rows, "nvlinks": rows}
    for value in (json.dumps(hostile), "[" * 250_000, '{"version":' * 20_000):
        bench = Bench()
        bench.api.annotate(PATH, **{KEY: value})
        async with bench.running():
            bench.holds(0)
            began = time.perf_counter()
            await asyncio.sleep(2)
            assert time.perf_counter() - began < 1
            assert bench.said().free == 0b1110


@pytest.mark.parametrize("value", ["", "mine", "[]", '["version"]', '{"at": "x"}'])
async def test_what_is_no_podgpu_s_at_the_start_is_someone_else_s(
    value: str, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench()
    bench.api.annotate(PATH, **{KEY: value})
    async with bench.running():
        bench.holds(0)
        await asyncio.sleep(2)
        assert bench.said().free == 0b1110
        assert bench.overwritten() == 1
    [given_out] = warnings(caplog)
    assert given_out.startswith(
        "the annotation podgpu.io/topology of the Node node-1 has the value "
    )
    assert "set another `annotation`" in given_out


async def test_a_value_of_others_is_found_at_the_refresh_and_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Bench().running() as bench:
        bench.holds(0)
        await asyncio.sleep(2)
        for count, value in enumerate(["mine", "mine", "other", "mine"], 1):
            bench.api.annotate(PATH, **{KEY: value})
            await asyncio.sleep(300)
            assert bench.said().free == 0b1110
            assert bench.overwritten() == count
    first, second = warnings(caplog)
    assert "'mine'" in first
    assert "'other'" in second


async def test_another_podgpu_at_work_is_reported_once_however_its_time_varies(
    caplog: pytest.LogCaptureFixture,
) -> None:
    theirs = json.loads(await written(refresh="1m"))
    async with Bench().running() as bench:
        bench.holds(0)
        await asyncio.sleep(2)
        for turn in range(4):
            bench.api.annotate(PATH, **{KEY: json.dumps(theirs | {"at": 1e9 + turn})})
            await asyncio.sleep(300)
        assert bench.overwritten() == 4
    assert len(warnings(caplog)) == 1


async def test_not_more_than_so_many_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    async with Bench().running() as bench:
        bench.holds(0)
        await asyncio.sleep(2)
        for turn in range(40):
            bench.api.annotate(PATH, **{KEY: f"value {turn} {'x' * 100_000}"})
            await asyncio.sleep(300)
        assert bench.overwritten() == 40
        # Who looks at the sink sees the last one, told in the log or not.
        [trouble] = bench.ctx.own.problems.values()
        assert "'value 39 " in trouble.text
        assert trouble.at.seconds_until(bench.ctx.clock.now()) <= 300
    given_out = warnings(caplog)
    assert len(given_out) == 16
    assert max(map(len, given_out)) < 400
    assert ["further values" in text for text in given_out] == [False] * 15 + [True]


async def test_what_was_deleted_comes_back_at_the_refresh(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with Bench().running() as bench:
        bench.holds(0)
        await asyncio.sleep(2)
        bench.api.annotate(PATH, **{KEY: None})
        await asyncio.sleep(298)
        assert bench.value() is None
        await asyncio.sleep(2)
        assert bench.said().free == 0b1110
        assert bench.overwritten() == 0
    [given_out] = [r for r in caplog.records if "was deleted" in r.message]
    assert given_out.levelno == logging.INFO


async def test_what_was_deleted_comes_back_with_the_next_change_too() -> None:
    async with Bench().running() as bench:
        bench.holds(0)
        await asyncio.sleep(20)
        bench.api.annotate(PATH, **{KEY: None})
        bench.holds(1)
        await asyncio.sleep(2)
        assert bench.said().free == 0b1101


async def test_what_cannot_be_written_over_is_counted_once_it_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    refused = ApiError("podgpu may not get, patch nodes", status=403)
    bench = Bench()
    bench.api.annotate(PATH, **{KEY: "mine"})
    bench.api.answers.extend([None, refused] * 5)
    async with bench.running():
        bench.holds(0)
        await asyncio.sleep(5)
        assert bench.value() == "mine"
        assert bench.overwritten() == 0
        await asyncio.sleep(60)
        assert bench.overwritten() == 1
    assert [("'mine'" in given_out) for given_out in warnings(caplog)] == [True, False]


async def test_a_deletion_is_reported_once_though_it_cannot_be_fixed_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with Bench().running() as bench:
        for turn in range(2):
            bench.holds(0)
            await asyncio.sleep(2)
            bench.api.annotate(PATH, **{KEY: None})
            bench.api.answers.extend([None, ApiError("forbidden", status=403)] * 4)
            await asyncio.sleep(400)
            assert bench.value() is not None
            assert (
                sum("was deleted; it is written" in r.message for r in caplog.records) == turn + 1
            )


async def test_other_writers_of_the_node_disturb_no_one(caplog: pytest.LogCaptureFixture) -> None:
    """Kubelet and controllers change a Node all the time."""
    bench = Bench(refresh="10s")
    bench.api.before = lambda _method, path: bench.api.annotate(path, theirs=str(id(object())))
    async with bench.running():
        for turn in range(20):
            bench.holds(turn % 4)
            await asyncio.sleep(12)
            assert bench.said().free == 0b1111 & ~(1 << turn % 4)
        assert bench.ctx.counted("podgpu_sink_requests_total").keys() == {"get ok", "patch ok"}
        assert bench.overwritten() == 0
    assert warnings(caplog) == []


async def test_the_series_is_there_before_the_first() -> None:
    assert Bench().overwritten() == 0
