"""The outcome of each HTTP and gRPC status. No servers; those are in the other modules here."""

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceResponse,
)

from pipeline.delivery.contract import Acked, Outcome, Rejected, Retry, TooLarge
from sinks.otlp.signals import LOGS, METRICS, Signal
from sinks.otlp.transport.grpc_transport import grpc_outcome
from sinks.otlp.transport.http_status import accepted_response, http_outcome, read_status
from tests.sinks.otlp.transport.receivers import status

NOW = 1_800_000_000.0  # Fri, 15 Jan 2027 08:00:00 GMT
PLACE = "http://c:4318/v1/metrics"


def http(code: int, body: bytes = b"", fault: str = "", **headers: str) -> Outcome:
    lowered = {name.replace("_", "-"): value for name, value in headers.items()}
    return http_outcome(PLACE, code, lowered, body, fault=fault, now_s=NOW)


def partial(rejected: int, message: str) -> bytes:
    answer = ExportMetricsServiceResponse()
    answer.partial_success.rejected_data_points = rejected
    answer.partial_success.error_message = message
    return answer.SerializeToString()


PROTOBUF = "application/x-protobuf"


@pytest.mark.parametrize("code", [429, 502, 503, 504])
@pytest.mark.parametrize(
    ("header", "after"),
    [
        ("120", 120.0),
        ("0", 0.0),
        (" 7 ", 7.0),
        ("Fri, 15 Jan 2027 08:01:30 GMT", 90.0),
        ("Friday, 15-Jan-27 08:01:30 GMT", 90.0),
        ("Fri, 15 Jan 2027 07:00:00 GMT", 0.0),
        ("1000000000", 1e9),
        ("1e9", None),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("", None),
        ("9" * 5000, None),
        ("٣", None),
        ("Fri, 99 Jan 2027 08:00:00 GMT", None),
    ],
)
def test_o1_retry_after_is_parsed(code: int, header: str, after: float | None) -> None:
    found = http(code, retry_after=header)
    assert isinstance(found, Retry)
    assert (found.reason, found.after) == (f"http_{code}", after)


def test_o1_without_retry_after_there_is_no_delay() -> None:
    assert http(503) == Retry("http_503", f"{PLACE}: answered 503 Service Unavailable")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (400, "answered 400 Bad Request; see the log of the receiver"),
        (401, "answered 401 Unauthorized; check that the receiver accepts the headers, token"),
        (403, "answered 403 Forbidden; check that the receiver accepts the headers, token"),
        (404, "answered 404 Not Found; check that the path ends with /v1/metrics"),
        (405, "check that the path ends with /v1/metrics"),
        (407, "HTTPS_PROXY"),
        (408, "answered 408 Request Timeout; see the log of the receiver"),
        (415, "try compression: none"),
        (418, "see the log"),
        (499, "answered 499; see the log"),
        (500, "answered 500 Internal Server Error; see the log of the receiver"),
        (501, "see the log"),
        (599, "see the log"),
    ],
)
def test_o3_a_rejected_request_has_its_status_code_as_reason(code: int, expected: str) -> None:
    found = http(code)
    assert isinstance(found, Rejected)
    assert found.reason == f"http_{code}"
    assert found.message.startswith(f"{PLACE}: answered {code}")
    assert expected in found.message


@pytest.mark.parametrize("code", [400, 503, 413])
def test_o3_the_message_of_the_receiver_is_shown(code: int) -> None:
    found = http(code, status(3, "points\nare too old"))
    assert not isinstance(found, Acked)
    assert ": points are too old" in found.message


@pytest.mark.parametrize("body", [b"<html>no</html>", b"\xff" * 9, b"", b"\x12\x02\xff\xfe"])
def test_o3_a_body_that_is_not_a_status_is_ignored(body: bytes) -> None:
    assert http(400, body) == http(400)


TEXT = "text/plain; charset=utf-8"


@pytest.mark.parametrize(
    ("body", "content_type", "expected"),
    [
        (b"no such tenant\nmore of it\n", TEXT, "no such tenant"),
        (b"\r\n  no\tone \r\nmore", "TEXT/PLAIN", "no one"),
        (b'{"code": 3, "message": "no"}', "application/json", '{"code": 3, "message": "no"}'),
        (b"x" * 100_000, TEXT, "x" * 300 + "..."),
        (b"a\xffb", TEXT, "a\N{REPLACEMENT CHARACTER}b"),
        # Without a content type.
        (b"Client sent it.\n", "", "Client sent it."),
    ],
)
@pytest.mark.parametrize("code", [400, 500, 503, 429, 413])
def test_o3_the_first_line_of_a_text_body_is_shown(
    code: int, body: bytes, content_type: str, expected: str
) -> None:
    found = http(code, body, content_type=content_type)
    assert not isinstance(found, Acked)
    assert f": {expected}" in found.message
    assert "more" not in found.message.replace("take more", "")
    assert found.message.isprintable()


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"<html>no</html>", "text/html"),
        (b"<!doctype html>no", TEXT),
        (b"\x00\x01no", ""),
        (b"no", "image/png"),
        (b"", TEXT),
        (b"\n\n", TEXT),
    ],
)
def test_o3_html_and_binary_bodies_are_not_shown(body: bytes, content_type: str) -> None:
    assert http(400, body, content_type=content_type) == http(400)


LATE = [
    "out of order sample",
    "duplicate sample for timestamp 1; overrides not allowed: existing 1, new value 2",
    "too old sample",
    "Out of bounds",
]


@pytest.mark.parametrize("expected", LATE)
@pytest.mark.parametrize("content_type", [TEXT, PROTOBUF])
def test_o3_late_samples_in_prometheus_have_a_fix(expected: str, content_type: str) -> None:
    body = expected.encode() if content_type == TEXT else status(3, expected)
    fix = "set out_of_order_time_window in Prometheus"

    def at(place: str, code: int = 400) -> str:
        found = http_outcome(place, code, {"content-type": content_type}, body, now_s=NOW)
        assert isinstance(found, Rejected)
        assert expected in found.message
        return found.message

    for place in ("http://p:9090/api/v1/otlp/v1/metrics", "https://p/x/api/v1/otlp/v1/metrics/"):
        assert f"{expected}; {fix}" in at(place)
        assert fix not in at(place, 500)
    assert fix not in at("http://collector:4318/v1/metrics")


def test_o3_other_errors_of_prometheus_refer_to_its_log() -> None:
    place = "http://p:9090/api/v1/otlp/v1/metrics"
    found = http_outcome(place, 400, {"content-type": TEXT}, b"invalid label", now_s=NOW)
    assert isinstance(found, Rejected)
    assert found.message.endswith("invalid label; see the log of the receiver")


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"Client sent an HTTP request to an HTTPS server.\n", ""),
        (b"<html><center>The plain HTTP request was sent to HTTPS port</center>", "text/html"),
    ],
)
def test_o3_http_to_a_tls_server_is_reported(body: bytes, content_type: str) -> None:
    found = http(400, body, content_type=content_type)
    assert isinstance(found, Rejected)
    assert found.message.endswith("; use https")


def test_a_redirect_is_retried() -> None:
    found = http(302, location="http://d/v1/metrics")
    assert isinstance(found, Retry)
    assert found.reason == "http_302"
    assert "set the endpoint to the redirect target: http://d/v1/metrics" in found.message


@pytest.mark.parametrize(
    ("body", "rejected", "expected"),
    [
        (b"", 0, ""),
        (partial(0, ""), 0, ""),
        (partial(5, "too old"), 5, f"{PLACE}: rejected 5 points: too old"),
        (partial(5, ""), 5, f"{PLACE}: rejected 5 points"),
        (
            partial(0, "mind\nthe gap"),
            0,
            f"{PLACE}: accepted the message, with a warning: mind the gap",
        ),
        (partial(-1, ""), 0, ""),
    ],
)
def test_o4_rejected_points_are_counted(body: bytes, rejected: int, expected: str) -> None:
    assert http(200, body, content_type=PROTOBUF) == Acked(rejected, expected)
    assert accepted_response(PLACE, body) == Acked(rejected, expected)


def test_o4_rejected_log_records_are_counted() -> None:
    answer = ExportLogsServiceResponse()
    answer.partial_success.rejected_log_records = 3
    answer.partial_success.error_message = "too large"
    body = answer.SerializeToString()
    expected = Acked(3, f"{PLACE}: rejected 3 log records: too large")
    assert accepted_response(PLACE, body, signal=LOGS) == expected
    assert (
        http_outcome(PLACE, 200, {"content-type": PROTOBUF}, body, now_s=NOW, signal=LOGS)
        == expected
    )


@pytest.mark.parametrize(
    ("signal", "path", "name"),
    [(METRICS, "/v1/metrics", "metrics"), (LOGS, "/v1/logs", "log records")],
)
def test_the_fix_names_the_path_of_the_signal(signal: Signal, path: str, name: str) -> None:
    found = http_outcome(PLACE, 404, {}, b"", now_s=NOW, signal=signal)
    assert found.message.endswith(f"ends with {path}, and that the receiver accepts {name} there")
    found = grpc_outcome(
        "c:4317", "UNIMPLEMENTED", "unknown service", timeout=TIMEOUT, signal=signal
    )
    assert f"check that the receiver accepts {name};" in found.message


@pytest.mark.parametrize("code", [200, 202, 204, 299])
def test_every_2xx_status_is_accepted(code: int) -> None:
    assert http(code) == Acked()


def test_a_json_response_is_accepted() -> None:
    assert http(200, b"{}\n", content_type="application/json; charset=utf-8") == Acked()


@pytest.mark.parametrize(
    ("body", "content_type"),
    [(b"<html>hello</html>", "text/html"), (b"\xff\xff", PROTOBUF), (b'{"a": 1}', "text/plain")],
)
def test_a_response_that_is_not_otlp_is_accepted_with_a_warning(
    body: bytes, content_type: str
) -> None:
    found = http(200, body, content_type=content_type)
    assert isinstance(found, Acked)
    assert found.rejected == 0
    assert f"{content_type} that is not OTLP; check that the endpoint" in found.message


def test_o5_a_too_large_response_still_has_its_status() -> None:
    fault = "an answer of more than 4194304 bytes"
    assert http(200, fault=fault) == Acked(
        message=f"{PLACE}: accepted the message, but sent {fault}"
    )
    assert isinstance(http(400, fault=fault), Rejected)
    assert isinstance(http(503, fault=fault), Retry)


TIMEOUT = 10.0
RETRIED = ("CANCELLED", "DEADLINE_EXCEEDED", "ABORTED", "OUT_OF_RANGE", "UNAVAILABLE", "DATA_LOSS")
REFUSED = (
    *("UNKNOWN", "INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED"),
    *("FAILED_PRECONDITION", "UNIMPLEMENTED", "INTERNAL", "UNAUTHENTICATED"),
)


def grpc(code: str, details: str = "", trailer: bytes = b"") -> Outcome:
    return grpc_outcome("c:4317", code, details, status=trailer, timeout=TIMEOUT)


@pytest.mark.parametrize("code", RETRIED)
@pytest.mark.parametrize(("retry", "after"), [(None, None), (0.0, 0.0), (1.5, 1.5), (1e9, 1e9)])
def test_o2_retryable_grpc_codes(code: str, retry: float | None, after: float | None) -> None:
    found = grpc(code, "busy", status(14, "busy", retry))
    assert isinstance(found, Retry)
    assert found.reason == ("timeout" if code == "DEADLINE_EXCEEDED" else code.lower())
    assert found.after == after


@pytest.mark.parametrize("code", REFUSED)
@pytest.mark.parametrize("retry", [None, 1.0])
def test_o2_grpc_codes_that_are_not_retried(code: str, retry: float | None) -> None:
    found = grpc(code, "no", status(3, "no", retry))
    assert isinstance(found, Rejected)
    assert found.reason == code.lower()
    assert found.message.startswith(f"c:4317: answered {code}: no; ")


def test_o2_resource_exhausted_is_retried_only_with_a_delay() -> None:
    assert grpc("RESOURCE_EXHAUSTED", "quota", status(8, "quota", 2.0)) == Retry(
        "resource_exhausted", "c:4317: answered RESOURCE_EXHAUSTED: quota", 2.0
    )
    rate = grpc("RESOURCE_EXHAUSTED", "request rate is too large", status(8, "", 2.0))
    assert isinstance(rate, Retry)
    for trailer in (b"", status(8, "quota"), b"\xff\xff"):
        found = grpc("RESOURCE_EXHAUSTED", "quota", trailer)
        assert isinstance(found, Rejected)
        assert found.reason == "resource_exhausted"


@pytest.mark.parametrize(
    "details",
    [
        "grpc: received message larger than max (5242880 vs. 4194304)",
        "grpc: received message after decompression larger than max 4194304",
        "SERVER: Received message larger than max (5242880 vs. 4194304)",
        "CLIENT: Sent message larger than max (70000000 vs. 67108864)",
        "gRPC message exceeds maximum size 4194304: 5242880",
        "Received message exceeds the maximum configured message size",
        "request too large",
    ],
)
def test_o9_a_message_over_the_limit_of_the_receiver_is_too_large(details: str) -> None:
    for trailer in (b"", status(8, details, 1.0)):
        assert isinstance(grpc("RESOURCE_EXHAUSTED", details, trailer), TooLarge)


def test_o5_a_too_large_grpc_response_is_accepted_with_a_warning() -> None:
    found = grpc(
        "RESOURCE_EXHAUSTED", "Stream removed (CLIENT: Received message larger than max (9 vs 4))"
    )
    assert isinstance(found, Acked)
    assert "its response is too large" in found.message


def test_a_delay_is_never_negative() -> None:
    assert read_status(status(8, "", -3.0))[1] == 0.0


def test_other_details_of_a_status_are_ignored() -> None:
    trailer = status(8, "x", 2.5, others=3)
    assert read_status(trailer) == ("x", 2.5)


CONNECT = "failed to connect to all addresses; last error: "


@pytest.mark.parametrize(
    ("details", "secure", "reason", "expected"),
    [
        ("UNAVAILABLE: ipv4:1: Unwrap failed (TSI_DATA_CORRUPTED)", True, "tls", "check cert_file"),
        ("UNAVAILABLE: ipv4:1: Unwrap failed (TSI_DATA_CORRUPTED)", False, "unreachable", "right"),
        ("UNAVAILABLE: ipv4:1: Socket closed", True, "tls", "check cert_file"),
        ("UNAVAILABLE: ipv4:1: Socket closed", False, "unreachable", "uses TLS, use https"),
        (
            "INTERNAL: ipv4:1: Failed parsing HTTP/2 (Trying to connect an http1.x server)",
            False,
            "unreachable",
            "not a gRPC port: set protocol: http/protobuf",
        ),
        (
            "UNKNOWN: ipv4:1: Cannot check peer: missing selected ALPN property.",
            True,
            "tls",
            "not a gRPC port: set protocol: http/protobuf",
        ),
        (
            "UNKNOWN: ipv4:1: Tls handshake failed: SSL_ERROR_SSL: WRONG_VERSION_NUMBER",
            True,
            "tls",
            "if it does not, use http",
        ),
        (
            "UNKNOWN: ipv4:1: Failed to connect to remote host: Connection refused",
            False,
            "unreachable",
            "check that the receiver runs and its address is right",
        ),
    ],
)
@pytest.mark.parametrize("proxy", ["", "https_proxy"])
def test_o8_connection_errors_of_grpc_are_reported_with_a_fix(
    details: str, secure: bool, reason: str, expected: str, proxy: str
) -> None:
    found = grpc_outcome(
        "c:4317", "UNAVAILABLE", CONNECT + details, timeout=TIMEOUT, secure=secure, proxy=proxy
    )
    assert isinstance(found, Retry)
    assert found.reason == reason
    assert expected in found.message
    if reason == "unreachable":
        assert ("check the proxy in https_proxy," in found.message) == bool(proxy)
