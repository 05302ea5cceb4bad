"""Responses of the extender, and that they are never late."""

import asyncio
import gc
import json
import logging
import threading
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from pipeline.base.clock import SystemClock
from pipeline.base.telemetry import FAMILIES, Telemetry
from pipeline.component.contracts import HttpRequest, HttpResponse
from pipeline.model import Instant
from pipeline.model.topology_tree import Topology
from pipeline.topology.node_annotation import KEY
from podgpu.extender.node_cache import Nodes, node_record
from podgpu.extender.node_selection.node_filter import filter_node
from podgpu.extender.node_selection.pod_demand import Requirement
from podgpu.extender.scheduler_messages import prioritized
from podgpu.extender.server import EXTENDER_FAMILIES
from podgpu.extender.service import THREADS, WAITING, FitCache, Service, StoppedError
from tests.pipeline.topology.layouts import hgx, islands, pcie
from tests.podgpu.extender.cluster import GPU, NOW, annotation_with, node, pod, question

LOG = logging.getLogger("podgpu.test.extender")


class Now(SystemClock):
    """The system clock, moved to the date of the tests."""

    def now(self) -> Instant:
        return Instant(super().now().mono_ns, round(NOW * 1e9))


class BlockedFit:
    """Blocks every call of `FitCache.fit` until `go` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go = threading.Event()
        self.started = threading.Semaphore(0)
        self.calls = 0
        self._of = FitCache().fit
        monkeypatch.setattr(FitCache, "fit", self._blocked)

    def _blocked(self, *args: Any, **options: Any) -> Any:
        self.calls += 1
        self.started.release()
        self.go.wait(10)
        return self._of(*args, **options)


class Served:
    """A service with its node cache and telemetry."""

    def __init__(self, timeout: float) -> None:
        self.telemetry = Telemetry(families=(*FAMILIES, *EXTENDER_FAMILIES))
        self.nodes = Nodes(LOG)
        self.service = Service(
            self.nodes, [GPU], timeout, clock=Now(), telemetry=self.telemetry, log=LOG
        )

    async def filter(self, body: bytes) -> Any:
        return json.loads((await self.service.filter(http_request(body))).body)

    async def prioritize(self, body: bytes) -> dict[str, int]:
        answer = await self.service.prioritize(http_request(body))
        assert answer.status == 200, answer.body
        return {entry["Host"]: entry["Score"] for entry in json.loads(answer.body)}

    def counted(self, verb: str) -> dict[str, float]:
        """Return how often each result occurred, without those that never occurred."""
        families = {family.name: points for family, points in self.telemetry.collect({})}
        found: dict[str, float] = {}
        for point in families["podgpu_extender_requests_total"]:
            labels = dict(point.labels)
            if labels["verb"] == verb and point.value:
                found[labels["result"]] = point.value
        return found


def http_request(body: bytes, source: str = "") -> HttpRequest:
    return HttpRequest("POST", "/", {}, {}, body, source=source)


@asynccontextmanager
async def served(timeout: float = 20) -> AsyncIterator[Served]:
    made = Served(timeout)
    mapper = partial(node_record, KEY, [GPU])
    raws = [
        node("switched", annotation_with(hgx(), 0b1111)),
        node("plain", annotation_with(pcie(), 0xFF)),
        node("silent"),
    ]
    await made.nodes.replaced([found for raw in raws if (found := mapper(raw)) is not None])
    yield made
    made.service.close()


NAMES = ["switched", "plain", "silent", "unheard-of"]


async def test_filter_and_scores_for_a_pod_without_a_requirement() -> None:
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


async def test_filter_and_scores_for_a_pod_with_a_requirement() -> None:
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
async def test_a_pod_without_gpus_passes_all_nodes(made: dict[str, Any]) -> None:
    async with served() as one:
        body = question(made, names=NAMES)
        assert (await one.filter(body))["NodeNames"] == NAMES
        assert set((await one.prioritize(body)).values()) == {0}


async def test_a_pod_with_an_unknown_requirement_passes_no_node() -> None:
    async with served() as one:
        body = question(pod(gpus="1", require="nvlnik"), names=NAMES)
        answer = await one.filter(body)
        assert answer["NodeNames"] == []
        assert set(answer["FailedAndUnresolvableNodes"]) == set(NAMES)
        assert set((await one.prioritize(body)).values()) == {0}


async def test_a_malformed_request_is_reported_once_for_each_kind(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with served() as one:
        for body in (b"nonsense", b"more of it", question(pod(gpus="many"), names=[])):
            answer = await one.filter(body)
            assert answer["Error"].startswith("podgpu: ")
            assert answer["NodeNames"] is None
            refused = await one.service.prioritize(http_request(body))
            assert (refused.status, refused.content_type) == (400, "text/plain; charset=utf-8")
        assert one.counted("filter") == one.counted("prioritize") == {"malformed": 3}
    assert len(caplog.records) == 2


@pytest.mark.parametrize(("required", "passing"), [(None, NAMES), ("nvlink", []), ("nonsense", [])])
async def test_a_late_filter_passes_nodes_only_without_a_requirement(
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


async def test_late_scores_are_all_0_and_their_calculation_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    blocked = BlockedFit(monkeypatch)
    async with served(timeout=0.1) as one:
        names = ["switched", "plain"] * 5
        body = question(pod(gpus="2"), names=names)
        assert await one.prioritize(body) == {"switched": 0, "plain": 0}
        assert one.counted("prioritize") == {"timeout": 1}
        blocked.go.set()
        # The next request does not wait for a calculation whose client got its response.
        await asyncio.sleep(0.05)
        assert blocked.calls == 1
        one.service._timeout = 20
        assert (await one.prioritize(body))["switched"] == 9


async def test_a_slow_request_does_not_delay_others(monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = BlockedFit(monkeypatch)
    async with served() as one:
        slow = asyncio.create_task(one.prioritize(question(pod(gpus="2"), names=NAMES)))
        await asyncio.to_thread(blocked.started.acquire)
        answer = await one.filter(question(pod(gpus="5"), names=NAMES))
        assert answer["NodeNames"] == NAMES[1:]
        blocked.go.set()
        assert (await slow)["switched"] == 9


async def test_requests_above_the_limit_get_503(monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = BlockedFit(monkeypatch)
    async with served() as one:
        body = question(pod(gpus="2"), names=NAMES)
        waiting = [asyncio.create_task(one.prioritize(body)) for _ in range(THREADS + WAITING)]
        await asyncio.sleep(0)
        refused: HttpResponse = await one.service.prioritize(http_request(body))
        assert refused.status == 503
        assert (await one.service.filter(http_request(body))).status == 503
        blocked.go.set()
        answers = await asyncio.gather(*waiting)
        assert all(answer["switched"] == 9 for answer in answers)
        assert one.counted("prioritize") == {"ok": THREADS + WAITING, "busy": 1}
        assert one.counted("filter") == {"busy": 1}
        assert (await one.prioritize(body))["switched"] == 9


async def test_r14_a_client_with_many_requests_does_not_displace_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A scheduler's request waits for those that are running, not for hundreds that wait."""
    blocked = BlockedFit(monkeypatch)
    async with served() as one:
        body = question(pod(gpus="2"), names=NAMES)
        crowd = [
            asyncio.create_task(one.service.prioritize(http_request(body, f"10.0.0.{at % 4}")))
            for at in range(200)
        ]
        await asyncio.sleep(0)
        requests = [
            asyncio.create_task(one.service.prioritize(http_request(body, "10.0.1.1")))
            for _ in range(3)
        ]
        await asyncio.sleep(0)
        blocked.go.set()
        assert [(await answer).status for answer in requests] == [200] * 3
        statuses = [(await answer).status for answer in crowd]
        assert statuses.count(200) == THREADS + WAITING - 3


async def test_a_client_that_disconnects_frees_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = BlockedFit(monkeypatch)
    async with served() as one:
        body = question(pod(gpus="2"), names=["switched", "plain"])
        request = asyncio.create_task(one.prioritize(body))
        await asyncio.to_thread(blocked.started.acquire)
        request.cancel()
        await asyncio.wait([request])
        blocked.go.set()
        await asyncio.sleep(0.05)
        assert blocked.calls == 1
        assert one.counted("prioritize") == {"failed": 1}


async def test_a_request_that_is_not_parsed_in_time_gets_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As when the threads are blocked: the nodes of the request are unknown then."""
    go = threading.Event()
    monkeypatch.setattr("podgpu.extender.service.parse_question", lambda _: go.wait(10))
    async with served(timeout=0.05) as one:
        body = question(pod(gpus="2"), names=NAMES)
        answer = await one.filter(body)
        assert answer["Error"] == "podgpu: the request was not parsed in time"
        assert (await one.service.prioritize(http_request(body))).status == 503
        assert one.counted("filter") == one.counted("prioritize") == {"timeout": 1}
        go.set()


async def test_a_late_response_is_built_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def recorded(*args: Any) -> bytes:
        made.append(threading.current_thread().name)
        return prioritized(*args)

    blocked = BlockedFit(monkeypatch)
    monkeypatch.setattr("podgpu.extender.service.prioritized", recorded)
    async with served(timeout=0.05) as one:
        await one.prioritize(question(pod(gpus="2"), names=NAMES))
        assert made == ["podgpu-extender-late"]
        blocked.go.set()


async def test_a_filter_ends_when_its_request_has_timed_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str] = []
    go = threading.Event()

    def slow(*args: Any) -> Any:
        calls.append("")
        go.wait(10)
        return filter_node(*args)

    monkeypatch.setattr("podgpu.extender.service.filter_node", slow)
    async with served(timeout=0.05) as one:
        await one.filter(question(pod(gpus="2"), names=NAMES * 10))
        go.set()
        await asyncio.sleep(0.05)
        assert len(calls) == 1


async def test_a_fit_that_is_stopped_ends_and_is_not_cached() -> None:
    """With 16 GPUs a fit is exact and slow."""
    topology, checks = hgx(16), 0

    def stop() -> bool:
        nonlocal checks
        checks += 1
        return checks > 3

    fits = FitCache()
    with pytest.raises(StoppedError):
        fits.fit(topology, topology.mask, 8, None, stop=stop)
    assert len(fits) == 0
    assert fits.fit(topology, topology.mask, 8, None) is not None


async def test_requests_refused_before_the_service_are_counted() -> None:
    async with served() as one:
        one.service.count("filter", "too_long")
        one.service.count("prioritize", "encoded")
        assert (one.counted("filter"), one.counted("prioritize")) == (
            {"too_long": 1},
            {"encoded": 1},
        )


# The cache of fits.


def test_cached_fits_are_released_with_their_topology() -> None:
    fits, kept = FitCache(), hgx()
    fits.fit(kept, 0b11, 2, None)
    for number in range(20):
        topology = islands()
        fits.fit(topology, 0b11, 2, None)
        reference = weakref.ref(topology)
        del topology
        gc.collect()
        assert reference() is None, number
    assert len(fits) == 1


def test_nodes_with_equal_topology_share_one_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    calculated: list[tuple[Topology, int]] = []
    monkeypatch.setattr(
        "podgpu.extender.service.fit",
        lambda topology, free, *_, **__: calculated.append((topology, free)),
    )
    fits, topology = FitCache(most=3), hgx()
    for _ in range(100):
        fits.fit(topology, 0b11, 2, None)
    assert len(calculated) == 1
    for key in (0b11, 2, Requirement.NVLINK), (0b11, 1, None), (0b110, 2, None):
        fits.fit(topology, *key)
    assert len(calculated) == 4
    assert len(fits) == 1, "a full cache is emptied"
    fits.fit(topology, 0b110, 2, None)
    assert len(calculated) == 4
    fits.fit(topology, 0b11, 2, None)
    assert len(calculated) == 5
