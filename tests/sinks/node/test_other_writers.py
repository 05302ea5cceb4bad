"""Other writers of the annotation: found at start and refresh, reported once, overwritten."""

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


async def other_podgpu_value(**options: str) -> str:
    """Return the value that another podgpu writes for the same node."""
    async with Bench(**options).running() as bench:
        bench.set_held(1, 2)
        await asyncio.sleep(2)
        return bench.value() or ""


async def test_a_value_of_an_earlier_run_is_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = await other_podgpu_value()
    bench = Bench()
    bench.api.annotate(PATH, **{KEY: before})
    async with bench.running():
        bench.set_held(0)
        await asyncio.sleep(2)
        assert bench.published().free == 0b1110
    assert warnings(caplog) == []
    assert bench.overwritten() == 0


async def test_a_value_of_a_newer_podgpu_is_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    bench.api.annotate(PATH, **{KEY: '{"version":2,"cards":[],"at":1,"refresh":300}'})
    async with bench.running():
        bench.set_held(0)
        await asyncio.sleep(2)
        assert bench.published().free == 0b1110
    assert warnings(caplog) == []
    assert bench.overwritten() == 0


async def test_a_value_that_takes_long_to_parse_does_not_delay_the_sink() -> None:
    """Values of the largest possible size that take long to parse."""
    hostile = json.loads(await other_podgpu_value())
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
            bench.set_held(0)
            start = time.perf_counter()
            await asyncio.sleep(2)
            assert time.perf_counter() - start < 1
            assert bench.published().free == 0b1110


@pytest.mark.parametrize("value", ["", "mine", "[]", '["version"]', '{"at": "x"}'])
async def test_another_program_s_value_at_the_start_is_logged_and_overwritten(
    value: str, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench()
    bench.api.annotate(PATH, **{KEY: value})
    async with bench.running():
        bench.set_held(0)
        await asyncio.sleep(2)
        assert bench.published().free == 0b1110
        assert bench.overwritten() == 1
    [message] = warnings(caplog)
    assert message.startswith("the annotation podgpu.io/topology of the Node node-1 has the value ")
    assert "set another `annotation`" in message


async def test_another_program_s_value_is_found_at_the_refresh_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Bench().running() as bench:
        bench.set_held(0)
        await asyncio.sleep(2)
        for count, value in enumerate(["mine", "mine", "other", "mine"], 1):
            bench.api.annotate(PATH, **{KEY: value})
            await asyncio.sleep(300)
            assert bench.published().free == 0b1110
            assert bench.overwritten() == count
    first, second = warnings(caplog)
    assert "'mine'" in first
    assert "'other'" in second


async def test_another_running_podgpu_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    theirs = json.loads(await other_podgpu_value(refresh="1m"))
    async with Bench().running() as bench:
        bench.set_held(0)
        await asyncio.sleep(2)
        for turn in range(4):
            bench.api.annotate(PATH, **{KEY: json.dumps(theirs | {"at": 1e9 + turn})})
            await asyncio.sleep(300)
        assert bench.overwritten() == 4
    assert len(warnings(caplog)) == 1


async def test_the_number_of_logged_values_is_limited(caplog: pytest.LogCaptureFixture) -> None:
    async with Bench().running() as bench:
        bench.set_held(0)
        await asyncio.sleep(2)
        for turn in range(40):
            bench.api.annotate(PATH, **{KEY: f"value {turn} {'x' * 100_000}"})
            await asyncio.sleep(300)
        assert bench.overwritten() == 40
        # The sink's problem shows the last value, whether it was logged or not.
        [problem] = bench.ctx.own.problems.values()
        assert "'value 39 " in problem.text
        assert problem.at.seconds_until(bench.ctx.clock.now()) <= 300
    messages = warnings(caplog)
    assert len(messages) == 16
    assert max(map(len, messages)) < 400
    assert ["further values" in text for text in messages] == [False] * 15 + [True]


async def test_a_deleted_annotation_is_written_again_at_the_refresh(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with Bench().running() as bench:
        bench.set_held(0)
        await asyncio.sleep(2)
        bench.api.annotate(PATH, **{KEY: None})
        await asyncio.sleep(298)
        assert bench.value() is None
        await asyncio.sleep(2)
        assert bench.published().free == 0b1110
        assert bench.overwritten() == 0
    [record] = [r for r in caplog.records if "was deleted" in r.message]
    assert record.levelno == logging.INFO


async def test_a_deleted_annotation_is_written_again_with_the_next_change() -> None:
    async with Bench().running() as bench:
        bench.set_held(0)
        await asyncio.sleep(20)
        bench.api.annotate(PATH, **{KEY: None})
        bench.set_held(1)
        await asyncio.sleep(2)
        assert bench.published().free == 0b1101


async def test_a_value_is_counted_as_overwritten_when_the_patch_succeeds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    refused = ApiError("podgpu may not get, patch nodes", status=403)
    bench = Bench()
    bench.api.annotate(PATH, **{KEY: "mine"})
    bench.api.answers.extend([None, refused] * 5)
    async with bench.running():
        bench.set_held(0)
        await asyncio.sleep(5)
        assert bench.value() == "mine"
        assert bench.overwritten() == 0
        await asyncio.sleep(60)
        assert bench.overwritten() == 1
    assert [("'mine'" in message) for message in warnings(caplog)] == [True, False]


async def test_a_deletion_is_logged_once_while_the_patch_is_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with Bench().running() as bench:
        for turn in range(2):
            bench.set_held(0)
            await asyncio.sleep(2)
            bench.api.annotate(PATH, **{KEY: None})
            bench.api.answers.extend([None, ApiError("forbidden", status=403)] * 4)
            await asyncio.sleep(400)
            assert bench.value() is not None
            assert (
                sum("was deleted; it is written" in r.message for r in caplog.records) == turn + 1
            )


async def test_writers_of_other_annotations_do_not_disturb_the_sink(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The kubelet and controllers change a Node frequently."""
    bench = Bench(refresh="10s")
    bench.api.before = lambda _method, path: bench.api.annotate(path, theirs=str(id(object())))
    async with bench.running():
        for turn in range(20):
            bench.set_held(turn % 4)
            await asyncio.sleep(12)
            assert bench.published().free == 0b1111 & ~(1 << turn % 4)
        assert bench.ctx.counted("podgpu_sink_requests_total").keys() == {"get ok", "patch ok"}
        assert bench.overwritten() == 0
    assert warnings(caplog) == []


async def test_the_counter_of_overwritten_values_starts_at_0() -> None:
    assert Bench().overwritten() == 0
