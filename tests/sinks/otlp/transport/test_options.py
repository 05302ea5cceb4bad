"""Errors in the options of the sink `otlp` that do not depend on environment variables."""

import re

import pytest

from config.errors import ConfigError
from config.loader import parse
from pipeline.component.registry import RegisteredKinds


def check(*options: str) -> list[str]:
    lines = "".join(f"    {option}\n" for option in options)
    text = f"sources: {{gpus: {{kind: nvml}}}}\nsinks:\n  push:\n    kind: otlp\n{lines}"
    try:
        parse(text, RegisteredKinds(), env={}, origin="x.yaml")
    except ConfigError as error:
        return [f"{problem.path}: {problem.message}" for problem in error.problems]
    return []


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["endpoint: http://collector:4317"],
        ["endpoint: collector:4317"],
        ["endpoint: unix:/run/otel.sock"],
        # Environment variables may set the protocol.
        ["endpoint: http://collector:4318/v1/metrics"],
        ["endpoint: https://c/v1/metrics", "protocol: http/protobuf", "tls: {ca_file: /ca}"],
        ["endpoint: https://c", "tls: {cert_file: /c, key_file: /k, server_name: x}"],
        ["headers: {X-Scope-OrgID: tenant}", "bearer_token_file: /token"],
        ["queue: {path: /var/lib/podgpu/queue}", "retry: {initial: 1s, max: 1s}"],
        ["telemetry_interval: 1s"],
        ["telemetry_interval: 0s"],
        ["max_message_size: 4MiB", "queue: {max_size: 4MiB}"],
        ["endpoint: DNS:///collector:4317"],
    ],
)
def test_valid_options_are_accepted(options: list[str]) -> None:
    assert check(*options) == []


@pytest.mark.parametrize(
    ("options", "place", "expected"),
    [
        (["endpoint: ftp://c"], "endpoint", "has the scheme ftp: over gRPC it must be http://"),
        (["endpoint: ftp://c", "protocol: http/protobuf"], "endpoint", "scheme ftp: over HTTP it"),
        (["endpoint: grpc://c:4317", "protocol: grpc"], "endpoint", "has the scheme grpc: over"),
        (['endpoint: ""'], "endpoint", "is empty: use for example http://collector:4317"),
        (['endpoint: ""', "protocol: http/protobuf"], "endpoint", "is empty"),
        (['endpoint: "http://c:4317#f"'], "endpoint", "contains a #"),
        (['endpoint: "http://c:"'], "endpoint", "has a colon without a port"),
        (["endpoint: 'c:99999'"], "endpoint", "is not an address"),
        ([f"endpoint: http://{64 * 'a'}/v1/metrics"], "endpoint", "more than 63 characters"),
        (["endpoint: http://u:secret@c:1"], "endpoint", "contains a user"),
        (["endpoint: 'http://c:1 '", "protocol: grpc"], "endpoint", "is not an address"),
        (["endpoint: http://c/v1/metrics", "protocol: grpc"], "endpoint", "gRPC has no paths"),
        (["endpoint: c:4318", "protocol: http/protobuf"], "endpoint", "has no scheme"),
        (["protocol: http/json"], "protocol", ""),
        (["headers: {content-type: secret}"], "headers.content-type", "set by podgpu itself"),
        (["headers: {'a b': secret}"], 'headers."a b"', "not a valid header name"),
        (['headers: {a: "secret\\n"}'], "headers.a", "an invalid value"),
        (["headers: {a: secret, A: secret}"], "headers", "occurs twice"),
        (
            ["headers: {Authorization: secret}", "bearer_token_file: /token"],
            "bearer_token_file",
            "headers sets authorization too",
        ),
        (["resource: {' ': a}"], "resource", "not a valid attribute name"),
        (["endpoint: https://c", "tls: {key_file: /k}"], "tls.cert_file", "belong together"),
        (["endpoint: https://c", "tls: {cert_file: /k}"], "tls.key_file", "belong together"),
        (["endpoint: http://c", "tls: {ca_file: /ca}"], "tls", "does not use TLS, .* use https"),
        (["queue: {path: queue}"], "queue.path", "write the absolute path"),
        (["retry: {initial: 10s, max: 1s}"], "retry.max", "is less than retry.initial"),
        (["timeout: 50ms"], "timeout", ""),
        (
            ["telemetry_interval: 999ms"],
            "telemetry_interval",
            "999ms: it must be at least 1s, or",
        ),
        (
            ["max_message_size: 8MiB", "queue: {max_size: 4MiB}"],
            "max_message_size",
            r"more than queue.max_size \(4MiB\).* raise queue.max_size",
        ),
    ],
)
def test_invalid_options_are_rejected(options: list[str], place: str, expected: str) -> None:

    found = check(*options)
    assert len(found) == 1
    assert found[0].startswith(f"sinks.push.{place}")
    assert re.search(expected, found[0])
    assert "secret" not in found[0]


def test_several_otlp_sinks_with_their_own_queues_are_accepted() -> None:
    text = """
        sources: {gpus: {kind: nvml}}
        sinks:
          a: {kind: otlp, endpoint: "http://a:4317", queue: {path: /q/a}}
          b: {kind: otlp, endpoint: "http://a:4317", queue: {path: /q/b}}
          c: {kind: otlp}
          d: {kind: otlp}
    """
    assert parse(text, RegisteredKinds(), env={}, origin="x.yaml").sinks.keys() == {
        "a",
        "b",
        "c",
        "d",
    }


def test_two_sinks_cannot_use_the_same_queue_folder() -> None:
    text = """
        sources: {gpus: {kind: nvml}}
        sinks:
          a: {kind: otlp, queue: {path: /q/a}}
          b: {kind: otlp, queue: {path: /q//b/../a/}}
    """
    with pytest.raises(ConfigError, match="the folder /q/a"):
        parse(text, RegisteredKinds(), env={}, origin="x.yaml")
