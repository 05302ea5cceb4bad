"""Map HTTP responses to outcomes, and read the warnings of receivers that accepted a message.

The rules are those of "OTLP/HTTP Response" in the OTLP specification 1.11.
"""

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from http.client import responses
from typing import Any, Final

from pipeline.base.safe_text import line
from pipeline.delivery.contract import Acked, Outcome, Rejected, Retry, TooLarge
from pipeline.model import NS
from pipeline.net.protobuf_schema import DecodeError, Schema
from sinks.otlp.messages import logs_service_pb2, metrics_service_pb2
from sinks.otlp.signals import LOGS, METRICS, Signal

_STATUS: Final = Schema.load_from_package("sinks.otlp.transport", "status.binpb")
_HTTP_RETRY: Final = frozenset((429, 502, 503, 504))
"""Too Many Requests, Bad Gateway, Service Unavailable, Gateway Timeout."""

_TEXTS: Final = ("text/plain", "application/json", "")
"""Media types to show in messages. Go servers omit the media type if a request lacks TLS."""
_WANTS_TLS: Final = re.compile(rb"HTTP request .{0,20}to .{0,6}HTTPS (server|port)")
"""Text of TLS servers (Go, nginx) that get a request without TLS."""
_TOO_LARGE: Final = re.compile(
    r"message larger than max|(message|request|body|payload) (is )?too large", re.IGNORECASE
)
"""Text of servers that refuse a message of this size with another status than 413.

The Collector answers 400 with `http: request body too large`. A gateway in front of a gRPC server
repeats `received message larger than max`.
"""
_TOO_OLD: Final = re.compile(r"out of order|out of bounds|too old|duplicate sample", re.IGNORECASE)
"""Text of Prometheus when it has newer samples of the series."""
_PROMETHEUS: Final = "/api/v1/otlp/v1/metrics"
_PROTOBUF: Final = ("application/x-protobuf", "application/protobuf", "")
_MAX_TEXT: Final = 4096
"""Maximum number of bytes of a response text to read."""
LOGIN: Final = "check that the receiver accepts the headers, token or certificate"
_HTTP_FIXES: Final[dict[int, str]] = {
    HTTPStatus.BAD_REQUEST: "see the log of the receiver",
    HTTPStatus.UNAUTHORIZED: LOGIN,
    HTTPStatus.FORBIDDEN: LOGIN,
    HTTPStatus.NOT_FOUND: (
        "check that the path ends with /{path}, and that the receiver accepts {name} there"
    ),
    HTTPStatus.METHOD_NOT_ALLOWED: "check that the path ends with /{path}",
    HTTPStatus.PROXY_AUTHENTICATION_REQUIRED: "set user and password in HTTPS_PROXY or HTTP_PROXY",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "check that this is an OTLP receiver; try compression: none",
}


def http_outcome(
    address: str,
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    fault: str = "",
    now_s: float,
    signal: Signal = METRICS,
) -> Outcome:
    """Return the outcome of an HTTP response.

    Args:
        address: address of the receiver, for messages.
        status: HTTP status.
        headers: headers of the response, with names in lower case.
        body: body of the response; empty if there is a fault.
        fault: why there is no body; empty if there is one.
        now_s: Unix time, for a date in Retry-After.
        signal: signal of the message.
    """
    if 200 <= status < 300:
        if fault:
            return Acked(message=f"{address}: accepted the message, but sent {fault}")
        return accepted_response(address, body, headers.get("content-type", ""), signal)
    message = _response_text(body, headers.get("content-type", ""))
    text = f"{address}: answered {status} {responses.get(status, '')}".rstrip() + (
        f": {message}" if message else ""
    )
    if status in _HTTP_RETRY:
        after = _retry_after(headers.get("retry-after", ""), now_s)
        return Retry(f"http_{status}", text, after)
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE or (
        status >= 400 and _TOO_LARGE.search(message)
    ):
        return TooLarge(f"{text}; lower max_message_size, or raise the limit of the receiver")
    if 300 <= status < 400:
        where = line(headers.get("location", "")) or "another address"
        # Not in the specification: nothing was accepted, and the receiver may only have moved.
        return Retry(f"http_{status}", f"{text}; set the endpoint to the redirect target: {where}")
    return Rejected(f"http_{status}", f"{text}; {_fix_for(address, status, message, body, signal)}")


def _response_text(body: bytes, content_type: str) -> str:
    """Return the error text of a response, on one line; empty if it is not readable text."""
    media_type = _media_type(content_type)
    if media_type in _PROTOBUF and (message := read_status(body)[0]):
        return line(message)
    if media_type not in _TEXTS:
        return ""
    try:
        # Cut the body before decoding, so that a page of some MiB costs nothing.
        text = body[:_MAX_TEXT].decode("utf-8", "strict" if not media_type else "replace")
    except UnicodeDecodeError:
        return ""
    if not media_type and not text.replace("\n", "").replace("\r", "").isprintable():
        return ""
    text = text.strip()
    # An HTML page, whatever its Content-Type.
    return "" if text.startswith("<") else line(text.partition("\n")[0].strip())


def _fix_for(endpoint: str, status: int, message: str, body: bytes, signal: Signal) -> str:
    if status == HTTPStatus.BAD_REQUEST:
        if _WANTS_TLS.search(body[:_MAX_TEXT]):
            return "use https"
        if endpoint.rstrip("/").endswith(_PROMETHEUS) and _TOO_OLD.search(message):
            return "set out_of_order_time_window in Prometheus (see docs/sinks/otlp.md)"
    fix = _HTTP_FIXES.get(status, "see the log of the receiver")
    return fix.format(path=signal.path, name=signal.name)


def accepted_response(
    address: str,
    body: bytes,
    content_type: str = "application/x-protobuf",
    signal: Signal = METRICS,
) -> Acked:
    """Return the outcome of a response that accepts the message or a part of it.

    Args:
        address: address of the receiver, for messages.
        body: an encoded ExportMetricsServiceResponse or ExportLogsServiceResponse.
        content_type: Content-Type of the response.
        signal: signal of the message.
    """
    media_type = _media_type(content_type)
    if not body or (media_type == "application/json" and body.strip() == b"{}"):
        return Acked()
    partial = _decode_partial_success(body, signal) if media_type in _PROTOBUF else None
    if partial is None:
        shown = line(media_type, 60) or "something"
        return Acked(
            message=f"{address}: accepted the message, but answered with {shown} that is not OTLP; "
            "check that the endpoint is an OTLP receiver"
        )
    rejected, message = max(partial[0], 0), line(partial[1])
    if not rejected and not message:
        return Acked()
    what = (
        f"rejected {rejected} {signal.points}"
        if rejected
        else "accepted the message, with a warning"
    )
    return Acked(rejected, f"{address}: {what}: {message}" if message else f"{address}: {what}")


def _media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _decode_partial_success(body: bytes, signal: Signal) -> tuple[int, str] | None:
    """Return the number of rejected points, and the receiver's message about them."""
    try:
        if signal is LOGS:
            logs = logs_service_pb2.ExportLogsServiceResponse.FromString(body).partial_success
            return logs.rejected_log_records, logs.error_message
        metrics = metrics_service_pb2.ExportMetricsServiceResponse.FromString(body).partial_success
    except DecodeError:
        return None
    return metrics.rejected_data_points, metrics.error_message


def _retry_after(text: str, now_s: float) -> float | None:
    """Return the seconds of Retry-After, which is a number of seconds or a date.

    A date in the past returns 0. Anything else returns None.
    """
    text = text.strip()
    if text.isascii() and text.isdecimal() and len(text) <= 12:
        return float(text)
    try:
        return max(parsedate_to_datetime(text).timestamp() - now_s, 0.0)
    except (ValueError, OverflowError, TypeError):
        return None


def read_status(data: bytes) -> tuple[str, float | None]:
    """Return message and retry delay of a google.rpc.Status, with which receivers explain errors.

    Returns:
        The message, and the seconds after which the receiver allows a retry. The seconds are None
        without RetryInfo. If the data is no such status: an empty message, and None.
    """
    retry = None
    try:
        status: Any = _STATUS.message("podgpu.otlp.Status").FromString(data)
        for detail in status.details:
            if detail.type_url.rpartition("/")[2] == "google.rpc.RetryInfo":
                info = _STATUS.message("podgpu.otlp.RetryInfo").FromString(detail.value)
                delay = info.retry_delay.seconds + info.retry_delay.nanos / NS
                retry = max(float(delay), 0.0)
    except DecodeError:
        return "", None
    return status.message, retry
