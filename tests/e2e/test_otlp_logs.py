"""OTLP log records arrive in a Collector."""

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.collector import Collector
from tests.e2e.conftest import Collect
from tests.e2e.logs import Log
from tests.e2e.node import FAST, SLOW, hold
from tests.e2e.otlp_podgpu import push, pushing
from tests.e2e.processes import wait_until
from tests.e2e.scenes import distinct
from tests.fakes.nvml import FakeNvml

UUIDS = [gpu.uuid for gpu in distinct().gpus]
PROTOCOLS = ["grpc", "http/protobuf"]
SECOND = 1_000_000_000


class Place:
    """A node with four GPUs with a usage sample each second, and its podlist.json."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._fake = FakeNvml(distinct(), folder)
        self._podlist = folder / "podlist.json"
        self.hold({})

    def hold(self, held: Mapping[str, Iterable[str]]) -> None:
        hold(self._podlist, held)

    def pushing(self, sinks: Mapping[str, dict[str, Any]]) -> Any:
        gpus = {
            "kind": "nvml",
            "interval": f"{FAST * 1000:g}ms",
            "slow_interval": f"{SLOW:g}s",
            "usage_interval": "1s",
        }
        sources = {"gpus": gpus, "podlist": {"kind": "podlist", "path": str(self._podlist)}}
        return pushing(self._folder, sinks, sources=sources, env=self._fake.env())


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "place")


def ended(collector: Collector) -> list[Log]:
    return [log for log in collector.logs() if log.name == "podgpu.holding.ended"]


def held_by(collector: Collector, pod: str) -> bool:
    """Return whether there is an account of a pod."""
    return any(
        point.name == "podgpu.container.held" and point.resource.get("k8s.pod.name") == pod
        for point in collector.points()
    )


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_log_record_of_an_ended_holding_has_the_resource_of_its_metrics(
    place: Place, collector: Collector, protocol: str
) -> None:
    with place.pushing({"otlp": push(collector.url(protocol), protocol, logs=True)}) as pusher:
        for pod in ("train-0", "train-1"):
            place.hold({pod: [UUIDS[1]]})
            wait_until(partial(held_by, collector, pod), "the account", every=0.2)
        place.hold({})
        wait_until(lambda: len(ended(collector)) >= 2, "the ended holdings", every=0.2)
        account = pusher.wait_drained()
    assert (account.rejected, account.dropped) == ({}, {})
    found = ended(collector)
    assert [log.resource["k8s.pod.name"] for log in found] == ["train-0", "train-1"]
    metrics = {
        point.resource["k8s.pod.name"]: point.resource
        for point in collector.points()
        if point.name == "podgpu.container.held"
    }
    for log in found:
        assert log.resource == metrics[log.resource["k8s.pod.name"]]
        assert (log.scope, log.severity) == ("podgpu", "INFO")
        assert log.attributes["hw.id"] == UUIDS[1]
        assert log.body.startswith(f"ml/{log.resource['k8s.pod.name']}/main held {UUIDS[1]} for ")
        start = int(log.attributes["podgpu.holding.start_unix_nanoseconds"])
        counted, gap = (
            int(log.attributes[f"podgpu.holding.{name}_nanoseconds"]) for name in ("counted", "gap")
        )
        assert start < log.time_ns <= log.observed_ns
        # The wall clock may be adjusted meanwhile.
        assert counted + gap == pytest.approx(log.time_ns - start, abs=SECOND // 20)
        assert int(log.attributes["podgpu.holding.held_nanoseconds"]) == counted


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_collector_without_a_log_pipeline_receives_all_metrics(
    place: Place, collect: Collect, protocol: str
) -> None:
    collector = collect("metrics-alone", logs=False)
    with place.pushing({"otlp": push(collector.url(protocol), protocol, logs=True)}) as pusher:
        for pod in ("train-0", "train-1"):
            place.hold({pod: [UUIDS[1]]})
            wait_until(partial(held_by, collector, pod), "the account", every=0.2)
        place.hold({})
        wait_until(lambda: pusher.wait_account().rejected == {"no_logs": 2}, "refusals", every=0.2)
        account = pusher.wait_drained()
        assert account.delivering
        output = pusher.output()
    assert account.dropped == {}
    assert output.count("set logs: false, or enable log records in the receiver") == 1, output[
        -3000:
    ]
    assert collector.logs() == []
