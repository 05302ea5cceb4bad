"""Answers, and that they are never late."""

import asyncio
import gc
import json
import logging
import threading
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pipeline.base.clock import SystemClock
from pipeline.base.telemetry import Telemetry
from pipeline.component.contracts import HttpRequest, HttpResponse
from pipeline.model import Instant
from pipeline.model.topology_tree import Topology
from pipeline.topology.node_annotation import KEY
from podgpu.extender.fit_cache import FitCache, StoppedError
from podgpu.extender.node_cache import NodeMapper, Nodes
from podgpu.extender.node_selection.gpu_requirement import Requirement
from podgpu.extender.node_selection.node_filter import filter_node
from podgpu.extender.scheduler_messages import prioritized
from podgpu.extender.service import THREADS, WAITING, Service
from tests.pipeline.topology.layouts import hgx, islands, pcie
from tests.podgpu.extender.cluster import GPU, NOW, given_out, node, pod, question

LOG = logging.getLogger("podgpu.test.extender")


class Now(SystemClock):
    """The machine's clock, at a date of the tests."""

    def now(self) -> Instant:
        return Instant(super().now().mono_ns, round(NOW * 1e9))


class Stuck:
    """Stands in the way of every choice until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go = threading.Event()
        self.begun = threading.Semaphore(0)
        self.calls = 0
        self._of = FitCache().fit
        monkeypatch.setattr(FitCache, "fit", self._stuck)

    def _stuck(self, *args: Any, **options: Any) -> Any:
        self.calls += 1
        self.begun.release()
        self.go.wait(10)
        return self._of(*args, **options)


class Served:
    """A service that knows three nodes: `switched`, `plain` and `silent`."""

    def __init__(self, timeout: float) -> None:
        self.telemetry = Telemetry()
        self.nodes = Nodes(LOG)
        self.service = Service(
            self.nodes, [GPU], timeout, clock=Now(), telemetry=self.telemetry, log=LOG
        )

    async def filter(self, body: bytes) -> Any:
        return json.loads((await self.service.filter(asking(body))).body)

    async def prioritize(self, body: bytes) -> dict[str, int]:
        answer = await self.service.prioritize(asking(body))
        assert answer.status == 200, answer.body
        return {entry["Host"]: entry["Score"] for entry in json.loads(answer.body)}

    def counted(self, verb: str) -> dict[str, float]:
        """How often there was each result, but for those that never were."""
        families = {family.name: points for family, points in self.telemetry.collect({})}
        found: dict[str, float] = {}
        for point in families["podgpu_extender_requests_total"]:
            labels = dict(point.labels)
            if labels["verb"] == verb and point.value:
                found[labels["result"]] = point.value
        return found


def asking(body: bytes, source: str = "") -> HttpRequest:
    return HttpRequest("POST", "/", {}, {}, body, source=source)


@asynccontextmanager
async def served(timeout: float = 20) -> AsyncIterator[Served]:
    made = Served(timeout)
    distil = NodeMapper(KEY, [GPU])
    raws = [
        node("switched", given_out(hgx(), 0b1111)),
        node("plain", given_out(pcie(), 0xFF)),
        node("silent"),
    ]
    await made.nodes.replaced([found for raw in raws if (found := distil(raw)) is not None])
    yield made
    made.service.close()


NAMES = ["switched", "plain", "silent", "unheard-of"]


async def test_a_pod_without_a_requirement() -> None:
    async with served() as one:
        body = question(pod(gpus="5"), names=NAMES)
        answer = await one.filter(body)
        assert answer["NodeNames"] == ["plain", "silent", "unheard-of"]
        assert answer["FailedNodes"] == {
            "switched": "podgpu: 4 of 8 GPUs are free, the pod requests 5"
        }
        assert await one.prioritize(question(pod(gpus="2"), names=NAMES)) == {
            "switched": 9,
            "plain": 0,
            "silent": 0,
            "unheard-of": 0,
        }
        assert one.counted("filter") == one.counted("prioritize") == {"ok": 1}


async def test_a_pod_with_a_requirement() -> None:
    async with served() as one:
        body = question(pod(gpus="2", require="nvlink"), nodes=[node(name) for name in NAMES])
        answer = await one.filter(body)
        assert [item["metadata"]["name"] for item in answer["Nodes"]["items"]] == ["switched"]
        assert set(answer["FailedNodes"]) == {"silent", "unheard-of"}
        assert set(answer["FailedAndUnresolvableNodes"]) == {"plain"}
        points = await one.prioritize(body)
        assert points.pop("switched") == 8
        assert set(points.values()) == {0}


@pytest.mark.parametrize("made", [pod(), pod(gpus="0"), pod(gpus="0", require="nonsense")])
async def test_a_pod_without_gpus(made: dict[str, Any]) -> None:
    async with served() as one:
        body = question(made, names=NAMES)
        assert (await one.filter(body))["NodeNames"] == NAMES
        assert set((await one.prioritize(body)).values()) == {0}


async def test_a_requirement_that_means_nothing() -> None:
    async with served() as one:
        body = question(pod(gpus="1", require="nvlnik"), names=NAMES)
        answer = await one.filter(body)
        assert answer["NodeNames"] == []
        assert set(answer["FailedAndUnresolvableNodes"]) == set(NAMES)
        assert set((await one.prioritize(body)).values()) == {0}


async def test_what_is_no_question_is_reported_once_for_each_kind(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with served() as one:
        for body in (b"nonsense", b"more of it", question(pod(gpus="many"), names=[])):
            answer = await one.filter(body)
            assert answer["Error"].startswith("podgpu: ")
            assert answer["NodeNames"] is None
            refused = await one.service.prioritize(asking(body))
            assert (refused.status, refused.content_type) == (400, "text/plain; charset=utf-8")
        assert one.counted("filter") == one.counted("prioritize") == {"malformed": 3}
    assert len(caplog.records) == 2


@pytest.mark.parametrize(("required", "passing"), [(None, NAMES), ("nvlink", []), ("nonsense", [])])
async def test_a_filter_that_is_late_takes_nothing_for_granted(
    required: str | None, passing: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()

    def slow(*args: Any) -> Any:
        gate.wait(10)
        return filter_node(*args)

    monkeypatch.setattr("podgpu.extender.service.filter_node", slow)
    async with served(timeout=0.1) as one:
        answer = await one.filter(question(pod(gpus="5", require=required), names=NAMES))
        gate.set()
        assert answer["NodeNames"] == passing
        late = dict.fromkeys(NAMES, "podgpu: the node was not checked in time")
        assert answer["FailedNodes"] == ({} if passing else late)
        assert one.counted("filter") == {"timeout": 1}


async def test_scores_that_are_late_are_all_0_and_the_work_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stuck = Stuck(monkeypatch)
    async with served(timeout=0.1) as one:
        names = ["switched", "plain"] * 5
        body = question(pod(gpus="2"), names=names)
        assert await one.prioritize(body) == {"switched": 0, "plain": 0}
        assert one.counted("prioritize") == {"timeout": 1}
        stuck.go.set()
        # Whoever comes next doesn't wait for what nobody wants any more.
        await asyncio.sleep(0.05)
        assert stuck.calls == 1
        one.service._timeout = 20
        assert (await one.prioritize(body))["switched"] == 9


async def test_one_who_is_late_keeps_no_one_else(monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = Stuck(monkeypatch)
    async with served() as one:
        slow = asyncio.create_task(one.prioritize(question(pod(gpus="2"), names=NAMES)))
        await asyncio.to_thread(stuck.begun.acquire)
        answer = await one.filter(question(pod(gpus="5"), names=NAMES))
        assert answer["NodeNames"] == NAMES[1:]
        stuck.go.set()
        assert (await slow)["switched"] == 9


async def test_no_more_than_so_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = Stuck(monkeypatch)
    async with served() as one:
        body = question(pod(gpus="2"), names=NAMES)
        waiting = [asyncio.create_task(one.prioritize(body)) for _ in range(THREADS + WAITING)]
        await asyncio.sleep(0)
        refused: HttpResponse = await one.service.prioritize(asking(body))
        assert refused.status == 503
        assert (await one.service.filter(asking(body))).status == 503
        stuck.go.set()
        answers = await asyncio.gather(*waiting)
        assert all(answer["switched"] == 9 for answer in answers)
        assert one.counted("prioritize") == {"ok": THREADS + WAITING, "busy": 1}
        assert one.counted("filter") == {"busy": 1}
        assert (await one.prioritize(body))["switched"] == 9


async def test_r14_who_asks_much_crowds_no_other_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler's question waits for those under way, not for the hundreds that wait."""
    stuck = Stuck(monkeypatch)
    async with served() as one:
        body = question(pod(gpus="2"), names=NAMES)
        crowd = [
            asyncio.create_task(one.service.prioritize(asking(body, f"10.0.0.{at % 4}")))
            for at in range(200)
        ]
        await asyncio.sleep(0)
        asked = [
            asyncio.create_task(one.service.prioritize(asking(body, "10.0.1.1"))) for _ in range(3)
        ]
        await asyncio.sleep(0)
        stuck.go.set()
        assert [(await answer).status for answer in asked] == [200] * 3
        statuses = [(await answer).status for answer in crowd]
        assert statuses.count(200) == THREADS + WAITING - 3


async def test_who_hangs_up_frees_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = Stuck(monkeypatch)
    async with served() as one:
        body = question(pod(gpus="2"), names=["switched", "plain"])
        asked = asyncio.create_task(one.prioritize(body))
        await asyncio.to_thread(stuck.begun.acquire)
        asked.cancel()
        await asyncio.wait([asked])
        stuck.go.set()
        await asyncio.sleep(0.05)
        assert stuck.calls == 1
        assert one.counted("prioritize") == {"failed": 1}


async def test_a_question_that_is_not_read_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the threads are held up: what nodes there are, nobody knows then."""
    go = threading.Event()
    monkeypatch.setattr("podgpu.extender.service.parse_question", lambda _: go.wait(10))
    async with served(timeout=0.05) as one:
        body = question(pod(gpus="2"), names=NAMES)
        answer = await one.filter(body)
        assert answer["Error"] == "podgpu: the request was not parsed in time"
        assert (await one.service.prioritize(asking(body))).status == 503
        assert one.counted("filter") == one.counted("prioritize") == {"timeout": 1}
        go.set()


async def test_a_late_answer_is_made_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def noted(*args: Any) -> bytes:
        made.append(threading.current_thread().name)
        return prioritized(*args)

    stuck = Stuck(monkeypatch)
    monkeypatch.setattr("podgpu.extender.service.prioritized", noted)
    async with served(timeout=0.05) as one:
        await one.prioritize(question(pod(gpus="2"), names=NAMES))
        assert made == ["podgpu-extender-late"]
        stuck.go.set()


async def test_a_filter_that_no_one_waits_for_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    judgements: list[str] = []
    go = threading.Event()

    def slow(*args: Any) -> Any:
        judgements.append("")
        go.wait(10)
        return filter_node(*args)

    monkeypatch.setattr("podgpu.extender.service.filter_node", slow)
    async with served(timeout=0.05) as one:
        await one.filter(question(pod(gpus="2"), names=NAMES * 10))
        go.set()
        await asyncio.sleep(0.05)
        assert len(judgements) == 1


async def test_a_choice_that_no_one_waits_for_ends() -> None:
    """One of 16 GPUs is exact, however long it takes, and is never kept if it was stopped."""
    topology, asked_ = hgx(16), 0

    def stop() -> bool:
        nonlocal asked_
        asked_ += 1
        return asked_ > 3

    fits = FitCache()
    with pytest.raises(StoppedError):
        fits.fit(topology, topology.mask, 8, None, stop=stop)
    assert len(fits) == 0
    assert fits.fit(topology, topology.mask, 8, None) is not None


async def test_who_was_never_asked_is_counted() -> None:
    async with served() as one:
        one.service.refused("filter", "too_long")
        one.service.refused("prioritize", "encoded")
        assert (one.counted("filter"), one.counted("prioritize")) == (
            {"too_long": 1},
            {"encoded": 1},
        )


# Fits.


def test_fits_go_with_the_last_who_has_the_topology() -> None:
    fits, kept = FitCache(), hgx()
    fits.fit(kept, 0b11, 2, None)
    for number in range(20):
        gone = islands()
        fits.fit(gone, 0b11, 2, None)
        seen = weakref.ref(gone)
        del gone
        gc.collect()
        assert seen() is None, number
    assert len(fits) == 1


def test_nodes_that_are_alike_share_one_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Topology, int]] = []
    monkeypatch.setattr(
        "podgpu.extender.fit_cache.fit",
        lambda topology, free, *_, **__: asked.append((topology, free)),
    )
    fits, topology = FitCache(most=3), hgx()
    for _ in range(100):
        fits.fit(topology, 0b11, 2, None)
    assert len(asked) == 1
    for key in (0b11, 2, Requirement.NVLINK), (0b11, 1, None), (0b110, 2, None):
        fits.fit(topology, *key)
    assert len(asked) == 4
    assert len(fits) == 3, "no more are kept"
    # Gone is the one that was wanted longest ago, not the one that came first.
    fits.fit(topology, 0b11, 2, Requirement.NVLINK)
    fits.fit(topology, 0b111, 2, None)
    for key in (0b11, 2, Requirement.NVLINK), (0b110, 2, None):
        fits.fit(topology, *key)
    assert len(asked) == 5
    fits.fit(topology, 0b11, 1, None)
    assert len(asked) == 6
