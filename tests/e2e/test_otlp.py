"""OTLP metrics arrive correctly in a Collector and in a Prometheus 3."""

import os
import re
import signal
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.collector import Collector
from tests.e2e.conftest import Take
from tests.e2e.node import FAST, SLOW, hold
from tests.e2e.otlp_podgpu import Pusher, push, pushing
from tests.e2e.points import Point
from tests.e2e.processes import wait_until
from tests.e2e.prometheus3 import Prometheus3, Taking
from tests.e2e.promql import Series
from tests.e2e.received_points import arrived
from tests.e2e.scenes import ALL, WATTS, distinct
from tests.fakes.nvml import FakeNvml
from tests.fakes.nvml.profiles import MIB

SECOND = 1_000_000_000
DOCS = Path(__file__).parents[2] / "docs" / "sinks" / "otlp.md"
UUIDS = [gpu.uuid for gpu in distinct().gpus]
WAYS = [
    ("grpc", "none"),
    ("grpc", "gzip"),
    ("http/protobuf", "none"),
    ("http/protobuf", "gzip"),
]

# Name, attributes besides the GPU's, unit, and the readings of GPUs 0 to 3.
GAUGES: list[tuple[str, dict[str, str], str, list[float]]] = [
    ("hw.temperature", {"hw.sensor_location": "gpu"}, "Cel", [41, 42, 43, 44]),
    ("hw.power", {}, "W", [100.5, 101.5, 102.5, 103.5]),
    ("hw.gpu.utilization", {"hw.gpu.task": "general"}, "1", [0.1, 0.2, 0.3, 0.4]),
    ("hw.gpu.utilization", {"hw.gpu.task": "decoder"}, "1", [0, 0.03, 0.06, 0.09]),
    ("hw.gpu.memory.usage", {}, "By", [(1024 + at) * MIB for at in range(4)]),
]
DCGM: dict[str, list[float]] = {
    "DCGM_FI_DEV_GPU_TEMP": [41, 42, 43, 44],
    "DCGM_FI_DEV_POWER_USAGE": [100.5, 101.5, 102.5, 103.5],
    "DCGM_FI_DEV_GPU_UTIL": [10, 20, 30, 40],
    "DCGM_FI_DEV_FB_USED": [1024, 1025, 1026, 1027],
}


class Place:
    """A node with four GPUs with different readings, and its podlist.json."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.fake = FakeNvml(distinct(), folder)
        self._podlist = folder / "podlist.json"
        self.hold({})

    def hold(self, held: Mapping[str, Iterable[str]]) -> None:
        hold(self._podlist, held)

    def pushing(self, sink: dict[str, Any]) -> Any:
        often = {"interval": f"{FAST * 1000:g}ms", "slow_interval": f"{SLOW:g}s"}
        sources = {
            "gpus": {"kind": "nvml", **often},
            "podlist": {"kind": "podlist", "path": str(self._podlist)},
        }
        return pushing(self.folder, {"otlp": sink}, sources=sources, env=self.fake.env())


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "place")


def newest(
    points: Iterable[Point], name: str, attributes: Mapping[str, str] | None = None
) -> dict[str, Point]:
    """Return the newest point of each GPU with this metric name and these attributes."""
    wanted = (attributes or {}).items()
    return {
        point.attributes["hw.id"]: point
        for point in points
        if point.name == name and point.attributes.items() >= wanted
    }


def wait_rounds(pusher: Pusher, collector: Collector, rounds: int) -> list[Point]:
    """Wait until each GPU has this many temperatures, and return all points."""

    def enough() -> list[Point] | None:
        points = collector.points()
        for uuid in UUIDS:
            times = {
                point.time_ns
                for point in points
                if point.name == "hw.temperature" and point.attributes["hw.id"] == uuid
            }
            if len(times) < rounds:
                return None
        return points

    return wait_until(enough, f"{rounds} rounds", every=0.2)


@pytest.mark.parametrize(("protocol", "compression"), WAYS, ids=map(" ".join, WAYS))
def test_a_collector_receives_the_values(
    place: Place, collector: Collector, protocol: str, compression: str
) -> None:
    began = time.time_ns()
    sink = push(collector.url(protocol), protocol, compression=compression)
    with place.pushing(sink) as pusher:
        points = wait_rounds(pusher, collector, 6)
    ended = time.time_ns()
    for name, attributes, unit, values in GAUGES:
        found = newest(points, name, attributes)
        assert found.keys() == set(UUIDS), name
        for uuid, value in zip(UUIDS, values, strict=True):
            point = found[uuid]
            assert point.value == pytest.approx(value), (name, point)
            assert (point.unit, point.flags) == (unit, 0)
            assert began <= point.time_ns <= ended
    totals = newest(points, "hw.energy")
    assert totals.keys() == set(UUIDS)
    for point in totals.values():
        assert (point.kind, point.monotonic, point.temporality, point.unit) == ("sum", True, 2, "J")
    for point in points:
        assert point.resource["k8s.node.name"] == "gpu-node"
        assert point.resource["service.name"] == "podgpu"
    whole = arrived(collector.requests())
    whole.check_order()
    assert not whole.duplicates


def test_c3_a_paused_podgpu_leaves_a_gap_in_the_readings(
    place: Place, collector: Collector
) -> None:
    with place.pushing(push(collector.grpc_url)) as pusher:
        wait_rounds(pusher, collector, 3)
        assert pusher.process is not None
        os.kill(pusher.process.pid, signal.SIGSTOP)
        stopped = time.time_ns()
        time.sleep(3)
        resumed = time.time_ns()
        os.kill(pusher.process.pid, signal.SIGCONT)
        wait_rounds(pusher, collector, 3 + len(times_of(collector.points())))
    times = times_of(collector.points())
    assert times == sorted(set(times))
    within = [at for at in times if stopped + SECOND // 10 < at < resumed]
    assert within == [], "no readings while stopped"
    after = [at for at in times if resumed <= at < resumed + SECOND]
    assert 1 <= len(after) <= 1 / FAST + 2, "missed rounds are not repeated"


def times_of(points: Iterable[Point]) -> list[int]:
    """Return the times of the first GPU's power readings, in the order of arrival."""
    return [p.time_ns for p in points if p.name == "hw.power" and p.attributes["hw.id"] == UUIDS[0]]


def test_a_counter_has_one_start_time_and_never_decreases(
    place: Place, collector: Collector
) -> None:
    with place.pushing(push(collector.grpc_url)) as pusher:
        wait_rounds(pusher, collector, 10)
    for points in arrived(collector.requests()).series().values():
        counters = [point for point in points if point.monotonic]
        if not counters:
            continue
        (start,) = {point.start_ns for point in counters}
        assert counters[0].start_ns == start <= counters[0].time_ns
        values = [point.value for point in counters if point.value is not None]
        assert values == sorted(values), counters[0]
        if counters[0].name == "hw.energy":
            # Its value before the first reading is unknown, so it starts with it.
            assert counters[0].time_ns == start
            seconds = (counters[-1].time_ns - start) / SECOND
            assert values[-1] - values[0] == pytest.approx(WATTS * seconds, rel=0.1)


def test_readings_have_the_resource_of_their_pod_and_end_with_it(
    place: Place, collector: Collector
) -> None:
    def newest_of(uuid: str) -> Point | None:
        return newest(collector.points(), "hw.temperature").get(uuid)

    def held_by(pod: str | None) -> bool:
        point = newest_of(UUIDS[1])
        return point is not None and point.resource.get("k8s.pod.name") == pod

    place.hold({"train-0": [UUIDS[1]]})
    with place.pushing(push(collector.grpc_url)):
        wait_until(lambda: held_by("train-0"), "the pod")
        point = newest_of(UUIDS[1])
        assert point is not None
        assert point.resource.items() >= {
            ("k8s.namespace.name", "ml"),
            ("k8s.container.name", "main"),
            ("k8s.node.name", "gpu-node"),
        }
        other = newest_of(UUIDS[0])
        assert other is not None
        assert "k8s.pod.name" not in other.resource
        place.hold({})
        wait_until(lambda: held_by(None), "no pod")
    found = arrived(collector.requests())
    found.check_order()
    for series in found.series().values():
        ends = [point.ended for point in series]
        assert not any(ends[:-1]), series[0]
        if series[0].name.startswith("podgpu.container."):
            continue  # accounts of ended containers are sent for five more minutes
        if series[0].resource.get("k8s.pod.name") == "train-0":
            assert ends[-1], series[-1]
        elif series[0].attributes.get("hw.id") == UUIDS[0]:
            assert not ends[-1], series[-1]


def test_names_dcgm_sends_dcgm_metric_names(place: Place, collector: Collector) -> None:
    def complete() -> bool:
        points = collector.points()
        return all(len(labelled(points, name)) == len(ALL) for name in DCGM)

    def labelled(points: Iterable[Point], name: str) -> dict[str, Point]:
        return {point.attributes["gpu"]: point for point in points if point.name == name}

    with place.pushing(push(collector.grpc_url, names="dcgm")):
        wait_until(complete, "all readings", every=0.2)
    points = collector.points()
    for name, values in DCGM.items():
        found = labelled(points, name)
        assert [found[gpu].value for gpu in ALL] == pytest.approx(values), name
        assert [found[gpu].attributes["UUID"] for gpu in ALL] == UUIDS


def gpus(found: Iterable[Series]) -> dict[str, float]:
    return {series.labels["hw_id"]: series.value for series in found}


def test_prometheus_receives_names_labels_and_values(
    place: Place, prometheus3: Prometheus3
) -> None:
    place.hold({"train-0": [UUIDS[1]]})
    temperature = "hw_temperature_celsius{hw_sensor_location='gpu'}"

    def temperatures() -> dict[str, Series]:
        return {series.labels["hw_id"]: series for series in prometheus3.query(temperature)}

    with place.pushing(push(prometheus3.url, "http/protobuf")):
        wait_until(lambda: len(temperatures()) == 4, "all GPUs")
        found = temperatures()
        assert [found[uuid].value for uuid in UUIDS] == [41, 42, 43, 44]
        held = found[UUIDS[1]].labels
        assert held["k8s_pod_name"] == "train-0"
        assert held["k8s_namespace_name"] == "ml"
        assert held["k8s_container_name"] == "main"
        assert {series.labels["k8s_node_name"] for series in found.values()} == {"gpu-node"}
        assert not any("k8s_pod_name" in found[uuid].labels for uuid in UUIDS if uuid != UUIDS[1])
        wait_until(lambda: len(prometheus3.query("hw_gpu_memory_usage_bytes")) == 4, "memory")
        used = gpus(prometheus3.query("hw_gpu_memory_usage_bytes"))
        assert used == {uuid: (1024 + at) * MIB for at, uuid in enumerate(UUIDS)}
        powers = gpus(prometheus3.query("hw_power_watts"))
        assert powers == {uuid: 100.5 + at for at, uuid in enumerate(UUIDS)}
    assert prometheus3.problems() == []


def test_a_new_counter_causes_no_spike_in_prometheus(
    place: Place, prometheus3: Prometheus3
) -> None:
    counted = "count_over_time(hw_energy_joules_total[1m])"
    with place.pushing(push(prometheus3.url, "http/protobuf")):
        wait_until(
            lambda: (
                len(found := prometheus3.query(counted)) == 4 and all(s.value >= 10 for s in found)
            ),
            "ten readings",
        )
        rates = gpus(prometheus3.query("rate(hw_energy_joules_total[10s])"))
    assert rates == {uuid: pytest.approx(WATTS, rel=0.2) for uuid in UUIDS}
    # The counter was 5 MJ at its first reading, which must not count as an increase.
    for series in prometheus3.query("increase(hw_energy_joules_total[5m])"):
        assert series.value < WATTS * 300
    assert prometheus3.problems() == []


def test_series_of_a_deleted_pod_are_stale_in_prometheus(
    place: Place, prometheus3: Prometheus3
) -> None:
    # `target_info` has no end, and accounts of ended containers are sent for a while: both stay for
    # five minutes.
    of_pod = "{k8s_pod_name='train-0',__name__!~'target_info|podgpu_container_.*'}"
    place.hold({"train-0": [UUIDS[1]]})
    with place.pushing(push(prometheus3.url, "http/protobuf")):
        wait_until(lambda: prometheus3.query(of_pod), "the pod")
        place.hold({})
        # Without an end marker, Prometheus would look back for five minutes.
        wait_until(lambda: not prometheus3.query(of_pod), "the end of the pod's series", seconds=20)
        of_gpu = f"hw_power_watts{{hw_id='{UUIDS[1]}'}}"
        (now,) = wait_until(lambda: prometheus3.query(of_gpu), "the GPU")
        assert "k8s_pod_name" not in now.labels
    assert prometheus3.problems() == []


def test_a_prometheus_without_out_of_order_window_accepts_all_points(
    place: Place, take: Take
) -> None:
    """It has a separate series for each resource, and refuses points out of order in each."""
    prometheus = take(Taking(late="0s"))
    sink = push(prometheus.url, "http/protobuf", telemetry_interval="1s")
    with place.pushing(sink) as pusher:
        for turn in range(30):
            held = UUIDS[turn % 4 : turn % 4 + 2]
            place.hold({f"train-{turn % 3}": held[:1], "serve-0": held} if turn % 5 else {})
            time.sleep(0.3)
        account = pusher.wait_drained()
        output = pusher.output()
    assert (account.rejected, account.dropped) == ({}, {}), output[-3000:]
    assert account.emitted > 1000
    assert prometheus.problems() == []
    print(f"\n{account.emitted} points while pods came and went, none refused")


def test_the_documented_prometheus_queries_return_the_described_results(
    place: Place, prometheus3: Prometheus3
) -> None:
    section = DOCS.read_text().partition("## Prometheus 3")[2].partition("\n## ")[0]
    queries = dict(re.findall(r"^\| ([^`|]+?) \| `([^`]+)`", section, re.MULTILINE))
    assert len(queries) >= 6
    place.hold({"train": [UUIDS[0]], "a": [UUIDS[1]], "b": [UUIDS[1]]})
    with place.pushing(push(prometheus3.url, "http/protobuf")):
        energy = "count_over_time(hw_energy_joules_total{k8s_pod_name='train'}[1m])"
        wait_until(
            lambda: any(found.value >= 4 for found in prometheus3.query(energy)),
            "energy",
            every=0.2,
        )
        answers = {what: prometheus3.query(query) for what, query in queries.items()}

    def label_values(what: str, label: str) -> set[str | None]:
        (found,) = (answer for name, answer in answers.items() if what in name)
        return {series.labels.get(label) for series in found}

    assert label_values("which pod holds which GPU", "k8s_pod_name") == {"train"}
    assert label_values("several pods share", "k8s_pod_name") == {"train", "a", "b"}
    assert label_values("for how long", "k8s_pod_name") == {"train", "a", "b"}
    assert label_values("according to which source", "source") == {"podlist"}
    assert label_values("energy of each pod", "k8s_pod_name") == {"train", None}
    assert label_values("GPUs without holders", "hw_id") == {UUIDS[2], UUIDS[3]}
