"""The endpoint of log records, from options and environment variables."""

import pytest

from pipeline.base.errors import PermanentError
from sinks.otlp.options import Options
from sinks.otlp.transport.settings import resolve_log_settings, resolve_settings

BASE = "OTEL_EXPORTER_OTLP_ENDPOINT"
EXACT = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"
LOGS = "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT"


@pytest.mark.parametrize(
    ("option", "env", "url"),
    [
        (None, {}, "http://localhost:4318/v1/logs"),
        ("http://c:4318", {}, "http://c:4318/v1/logs"),
        ("http://c:4318/", {LOGS: "http://no"}, "http://c:4318/v1/logs"),
        ("https://c/otlp/v1/metrics", {}, "https://c/otlp/v1/logs"),
        ("https://c/api/v1/otlp/v1/metrics", {}, None),
        (None, {BASE: "http://prometheus:9090/api/v1/otlp"}, None),
        ("https://c/v1/metrics/?key=a/v1/metrics", {}, "https://c/v1/logs/?key=a/v1/metrics"),
        ("https://c/mine", {LOGS: "http://no"}, None),
        ("https://c/v1/metrics/mine", {}, None),
        (None, {BASE: "http://c:4318/mine"}, "http://c:4318/mine/v1/logs"),
        (None, {BASE: "http://c:4318", LOGS: "http://d/l"}, "http://d/l"),
        (None, {EXACT: "http://c/v1/metrics", LOGS: "http://d/v1/logs"}, "http://d/v1/logs"),
        (None, {EXACT: "http://c/v1/metrics", BASE: "http://d"}, "http://d/v1/logs"),
        (None, {EXACT: "http://c/v1/metrics"}, None),
    ],
)
def test_endpoint_of_log_records_over_http(
    option: str | None, env: dict[str, str], url: str | None
) -> None:
    found = resolve_log_settings(Options(endpoint=option, protocol="http/protobuf"), env)
    assert (None if found is None else found.endpoint.address) == url


@pytest.mark.parametrize(
    ("option", "env", "target"),
    [
        (None, {}, "dns:///localhost:4317"),
        ("http://c:4317", {LOGS: "http://no"}, "dns:///c:4317"),
        (None, {BASE: "http://c:4317", LOGS: "http://d:4317"}, "dns:///d:4317"),
        (None, {EXACT: "http://c:4317"}, None),
    ],
)
def test_endpoint_of_log_records_over_grpc(
    option: str | None, env: dict[str, str], target: str | None
) -> None:
    found = resolve_log_settings(Options(endpoint=option), env)
    assert (None if found is None else found.endpoint.address) == target


def test_variables_for_logs_override_those_for_all_signals() -> None:
    names = ("METRICS", "LOGS")
    env = {
        f"OTEL_EXPORTER_OTLP_{signal}_{name}": value.format(signal=signal.lower())
        for signal in names
        for name, value in (
            ("HEADERS", "for={signal}"),
            ("TIMEOUT", "3000" if signal == "LOGS" else "2000"),
            ("COMPRESSION", "none" if signal == "LOGS" else "gzip"),
            ("PROTOCOL", "http/protobuf" if signal == "LOGS" else "grpc"),
        )
    }
    logs, metrics = resolve_log_settings(Options(), env), resolve_settings(Options(), env)
    assert logs is not None
    assert (logs.headers, logs.timeout, logs.compression) == ({"for": "logs"}, 3.0, "none")
    assert (logs.protocol, metrics.protocol) == ("http/protobuf", "grpc")
    assert (metrics.headers, metrics.timeout) == ({"for": "metrics"}, 2.0)
    with pytest.raises(PermanentError, match="OTEL_EXPORTER_OTLP_LOGS_TIMEOUT"):
        resolve_log_settings(Options(), {"OTEL_EXPORTER_OTLP_LOGS_TIMEOUT": "soon"})
