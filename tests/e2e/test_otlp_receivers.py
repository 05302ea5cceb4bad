"""The Collector and Prometheus 3 of the OTLP tests behave as those tests expect.

Messages are created with OpenTelemetry's package and sent without podgpu.
"""

import gzip
import time
from collections.abc import Mapping
from pathlib import Path

import aiohttp
import grpc
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import MetricsServiceStub
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE,
    Metric,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
)

from tests.e2e.certificates import Certificates
from tests.e2e.collector import Collector
from tests.e2e.conftest import Collect, Take
from tests.e2e.points import NO_RECORDED_VALUE, Point, count, requests
from tests.e2e.prometheus3 import Prometheus3, Taking

SECOND = 1_000_000_000
MILLISECOND = 1_000_000
RESOURCE = {"service.name": "podgpu", "k8s.node.name": "gpu-node", "k8s.pod.name": "train-0"}
GPU = {"hw.id": "GPU-0"}
PROTOBUF = {"Content-Type": "application/x-protobuf"}


def attributes(pairs: Mapping[str, str | int]) -> list[KeyValue]:
    return [
        KeyValue(
            key=key,
            value=AnyValue(string_value=value)
            if isinstance(value, str)
            else AnyValue(int_value=value),
        )
        for key, value in pairs.items()
    ]


def point(
    at: int, value: float | None, start: int = 0, of: Mapping[str, str | int] = GPU
) -> NumberDataPoint:
    """Return a point; without a value it ends its series."""
    made = NumberDataPoint(time_unix_nano=at, start_time_unix_nano=start, attributes=attributes(of))
    if value is None:
        made.flags = NO_RECORDED_VALUE
    elif isinstance(value, int):
        made.as_int = value
    else:
        made.as_double = value
    return made


def request(*metrics: Metric, of: Mapping[str, str] = RESOURCE) -> ExportMetricsServiceRequest:
    scoped = ScopeMetrics(metrics=metrics)
    scoped.scope.name = "podgpu"
    whole = ResourceMetrics(scope_metrics=[scoped])
    whole.resource.attributes.extend(attributes(of))
    return ExportMetricsServiceRequest(resource_metrics=[whole])


def temperature(*points: NumberDataPoint) -> Metric:
    made = Metric(name="hw.temperature", unit="Cel")
    made.gauge.data_points.extend(points)
    return made


def energy(*points: NumberDataPoint) -> Metric:
    made = Metric(name="hw.energy", unit="J")
    made.sum.is_monotonic = True
    made.sum.aggregation_temporality = AGGREGATION_TEMPORALITY_CUMULATIVE
    made.sum.data_points.extend(points)
    return made


async def by_grpc(
    message: ExportMetricsServiceRequest,
    target: str,
    credentials: grpc.ChannelCredentials | None = None,
) -> None:
    channel = (
        grpc.aio.insecure_channel(target)
        if credentials is None
        else grpc.aio.secure_channel(target, credentials)
    )
    async with channel:
        answer = await MetricsServiceStub(channel).Export(message, timeout=10)  # type: ignore[no-untyped-call]
        assert answer.partial_success.rejected_data_points == 0


async def by_http(message: ExportMetricsServiceRequest, url: str, *, packed: bool = False) -> None:
    body, headers = message.SerializeToString(), dict(PROTOBUF)
    if packed:
        body, headers = gzip.compress(body), {**headers, "Content-Encoding": "gzip"}
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, data=body, headers=headers) as answer,
    ):
        content = await answer.read()
        assert answer.status == 200, content
        response = ExportMetricsServiceResponse.FromString(content)
        assert response.partial_success.rejected_data_points == 0


async def send(collector: Collector, way: str, message: ExportMetricsServiceRequest) -> None:
    if way == "grpc":
        await by_grpc(message, f"127.0.0.1:{collector.grpc}")
    else:
        await by_http(message, f"{collector.http_url}/v1/metrics", packed=way == "http, packed")


@pytest.mark.parametrize("way", ["grpc", "http", "http, packed"])
async def test_the_collector_writes_received_points_to_a_file(
    collector: Collector, way: str
) -> None:
    at = time.time_ns()
    of: dict[str, str | int] = {"hw.id": "GPU-0", "index": 3}
    message = request(
        temperature(point(at, 41.5, of=of), point(at, None)),
        energy(point(at, 5_000_000_000_000_000_001, start=at - SECOND)),
    )
    await send(collector, way, message)
    gauge, ended, total = collector.points()
    assert gauge == Point(
        resource=RESOURCE, scope="podgpu", name="hw.temperature", unit="Cel", kind="gauge",
        monotonic=False, temporality=0, attributes=of, time_ns=at, start_ns=0, value=41.5, flags=0,
    )  # fmt: skip
    assert (ended.value, ended.flags, ended.ended, ended.attributes) == (None, 1, True, GPU)
    assert (total.kind, total.monotonic, total.temporality) == ("sum", True, 2)
    assert (total.value, total.start_ns) == (5_000_000_000_000_000_001, at - SECOND)
    assert gauge.series != ended.series
    assert gauge.identity != ended.identity


async def test_acknowledged_points_survive_a_kill_of_the_collector(collector: Collector) -> None:
    at = time.time_ns()
    for run in range(3):
        for number in range(20):
            await send(collector, "grpc", request(temperature(point(at + number, float(run)))))
        collector.kill()
        collector.start()
    assert [(p.value, p.time_ns - at) for p in collector.points()] == [
        (float(run), number) for run in range(3) for number in range(20)
    ]


async def test_a_stopped_collector_restarts_on_the_same_ports(collector: Collector) -> None:
    before = (collector.grpc, collector.http)
    collector.stop()
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await send(collector, "grpc", request(temperature(point(1, 1.0))))
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
    with pytest.raises(aiohttp.ClientConnectorError):
        await send(collector, "http", request(temperature(point(1, 1.0))))
    collector.start()
    assert (collector.grpc, collector.http) == before
    await send(collector, "http", request(temperature(point(1, 1.0))))
    assert len(collector.points()) == 1


def test_an_incomplete_last_line_is_not_a_request(tmp_path: Path) -> None:
    whole = '{"resourceMetrics":[]}'
    cases = {
        "": 0,
        f"{whole}\n": 1,
        f"{whole}\n{whole}\n": 2,
        f"{whole}\n{whole}": 2,  # only the newline is missing
        f"{whole}\n{whole[:-2]}": 1,
    }
    taken = tmp_path / "taken"
    assert (list(requests(taken)), count(taken)) == ([], 0)
    for text, expected in cases.items():
        taken.write_text(text)
        assert len(list(requests(taken))) == count(taken) == expected, text
    taken.write_text(f"{whole[:-2]}\n{whole}\n")
    with pytest.raises(ValueError, match="line 1"):
        list(requests(taken))


async def test_a_collector_with_mutual_tls_requires_a_certificate(
    collect: Collect, tmp_path: Path
) -> None:
    certificates = Certificates(tmp_path / "tls")
    collector = collect(tls=certificates.receiver)
    assert collector.grpc_url.startswith("https://")
    root, chain, key = (
        Path(certificates.sender[name]).read_bytes()
        for name in ("ca_file", "cert_file", "key_file")
    )
    message = request(temperature(point(1, 1.0)))
    target = f"127.0.0.1:{collector.grpc}"
    with pytest.raises(grpc.aio.AioRpcError):
        await by_grpc(message, target, grpc.ssl_channel_credentials(root))
    assert collector.points() == []
    await by_grpc(message, target, grpc.ssl_channel_credentials(root, key, chain))
    assert len(collector.points()) == 1


async def test_prometheus_translates_otlp_names_and_labels(prometheus3: Prometheus3) -> None:
    at = time.time_ns()
    message = request(temperature(point(at, 41.5)), energy(point(at, 5000, start=at)), of=RESOURCE)
    await by_http(message, prometheus3.url)
    (gauge,) = prometheus3.query("hw_temperature_celsius")
    assert gauge.value == 41.5
    assert gauge.labels == {
        "hw_id": "GPU-0",
        "job": "podgpu",
        "k8s_node_name": "gpu-node",
        "k8s_pod_name": "train-0",
        **{key: gauge.labels[key] for key in gauge.labels if key.startswith("otel_scope")},
    }
    (total,) = prometheus3.query("hw_energy_joules_total")
    assert total.value == 5000
    assert prometheus3.problems() == []


async def test_prometheus_ends_a_series_at_a_point_without_value(
    prometheus3: Prometheus3,
) -> None:
    at = time.time_ns() - 5 * SECOND
    await by_http(request(temperature(point(at, 41.0))), prometheus3.url)
    await by_http(request(temperature(point(at + 2 * SECOND, None))), prometheus3.url)
    name = "hw_temperature_celsius"
    (before,) = prometheus3.query(name, at=at / SECOND + 1)
    assert before.value == 41.0
    # The marker ends the series, and is not a sample.
    assert prometheus3.query(name, at=at / SECOND + 3) == []
    (series,) = prometheus3.query(f"{name}[1m]")
    assert [value for _, value in series.points] == [41.0]


async def test_a_counter_that_starts_at_its_first_point_adds_no_increase(
    prometheus3: Prometheus3,
) -> None:
    at = time.time_ns() - 20 * SECOND
    for second in range(0, 20, 2):
        sent = point(at + second * SECOND, 5_000_000 + 700 * second, start=at)
        await by_http(request(energy(sent)), prometheus3.url)
    now = at / SECOND + 18
    (rate,) = prometheus3.query("rate(hw_energy_joules_total[18s])", at=now)
    assert rate.value == pytest.approx(700)
    (whole,) = prometheus3.query("increase(hw_energy_joules_total[1h])", at=now)
    assert whole.value < 2 * 18 * 700


async def test_prometheus_accepts_points_out_of_order(prometheus3: Prometheus3) -> None:
    at = time.time_ns()
    for age in (0, 600, 300):
        await by_http(request(temperature(point(at - age * SECOND, float(age)))), prometheus3.url)
    (series,) = prometheus3.query("hw_temperature_celsius[15m]", at=at / SECOND + 1)
    assert [value for _, value in series.points] == [600, 300, 0]
    assert prometheus3.problems() == []


async def test_prometheus_can_keep_otlp_names(take: Take) -> None:
    server = take(Taking(promoted=["k8s.pod.name"], strategy="NoTranslation"))
    at = time.time_ns() - 2 * SECOND
    await by_http(request(temperature(point(at, 41.5))), server.url)
    (gauge,) = server.query('{"hw.temperature","k8s.pod.name"="train-0"}')
    assert gauge.labels["hw.id"] == "GPU-0"
    assert "k8s.node.name" not in gauge.labels
    (series,) = server.range('{"hw.temperature"}', at / SECOND - 5, at / SECOND + 2)
    assert {value for _, value in series.points} == {41.5}
    assert min(when for when, _ in series.points) >= at // MILLISECOND / 1000
