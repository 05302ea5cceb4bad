"""What an answer over HTTP comes to, and what a receiver says that has taken a message.

The rules are those of "OTLP/HTTP Response" in the OTLP specification 1.11.
"""

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final

from pipeline.base.safe_text import line
from pipeline.delivery.contract import Acked, Outcome, Rejected, Retry, TooLarge
from pipeline.net.protobuf import DecodeError
from sinks.otlp.messages import ExportLogsServiceResponse, ExportMetricsServiceResponse
from sinks.otlp.signals import LOGS, METRICS, Signal
from sinks.otlp.transport.rpc_status import read_status

_HTTP_RETRY: Final = frozenset(
    (
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    )
)
_TEXTS: Final = ("text/plain", "application/json", "")
"""What can be shown. Servers in Go that are asked without TLS don't say what their words are."""
_WANTS_TLS: Final = re.compile(rb"HTTP request .{0,20}to .{0,6}HTTPS (server|port)")
"""What servers with TLS say, those in Go and nginx, to one who comes without."""
_TOO_LARGE: Final = re.compile(
    r"message larger than max|(message|request|body|payload) (is )?too large", re.IGNORECASE
)
"""What servers say of the size of a message under another status than 413.

The Collector answers 400 with `http: request body too large`. A gateway in front of a server over
gRPC repeats `received message larger than max`.
"""
_LATE: Final = re.compile(r"out of order|out of bounds|too old|duplicate sample", re.IGNORECASE)
"""Prometheus's words for what it has newer data of."""
_PROMETHEUS: Final = "/api/v1/otlp/v1/metrics"
_PROTOBUF: Final = ("application/x-protobuf", "application/protobuf", "")
_MAX_MESSAGE: Final = 4096
"""Bytes of a text that are looked at."""
LOGIN: Final = "see that the headers, token or certificate are those that it takes"
_HTTP_FIXES: Final[dict[int, str]] = {
    HTTPStatus.BAD_REQUEST: "see the log of the receiver",
    HTTPStatus.UNAUTHORIZED: LOGIN,
    HTTPStatus.FORBIDDEN: LOGIN,
    HTTPStatus.NOT_FOUND: "does the path end with /{path}, and does it take {name} there?",
    HTTPStatus.METHOD_NOT_ALLOWED: "does the path end with /{path}?",
    HTTPStatus.PROXY_AUTHENTICATION_REQUIRED: "give user and password in HTTPS_PROXY or HTTP_PROXY",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "is that a receiver of OTLP? If so, try compression: none",
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
    """Return what an answer over HTTP comes to.

    Args:
        address: whose it is, for messages.
        status: of HTTP.
        headers: with names in lower case.
        body: of the answer; empty where there is a fault.
        fault: why there is no body.
        now_s: Unix time, for an answer that says until when to wait.
        signal: of the message.
    """
    if 200 <= status < 300:
        if fault:
            return Acked(message=f"{address}: took the message, but sent {fault}")
        return accepted_response(address, body, headers.get("content-type", ""), signal)
    said = _response_text(body, headers.get("content-type", ""))
    text = f"{address}: answered {status} {_phrase(status)}".rstrip() + (
        f": {said}" if said else ""
    )
    if status in _HTTP_RETRY:
        after = _retry_after(headers.get("retry-after", ""), now_s)
        return Retry(f"http_{status}", text, after)
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE or (status >= 400 and _TOO_LARGE.search(said)):
        return TooLarge(f"{text}; lower max_message_size, or let the receiver take more")
    if 300 <= status < 400:
        where = line(headers.get("location", "")) or "another place"
        # Not in the specification: nothing was taken, and the receiver may only have moved.
        return Retry(f"http_{status}", f"{text}; give the endpoint that it points to: {where}")
    return Rejected(f"http_{status}", f"{text}; {_fix_for(address, status, said, body, signal)}")


def _response_text(body: bytes, content_type: str) -> str:
    """Return what the receiver says of a refusal, on one line; empty where it is not for people."""
    form = _form(content_type)
    if form in _PROTOBUF and (message := read_status(body).message):
        return line(message)
    if form not in _TEXTS:
        return ""
    try:
        # Cut before it is read, so that a page of some MiB costs nothing.
        text = body[:_MAX_MESSAGE].decode("utf-8", "strict" if not form else "replace")
    except UnicodeDecodeError:
        return ""
    if not form and not text.replace("\n", "").replace("\r", "").isprintable():
        return ""
    text = text.strip()
    # A page, of whatever it says that it is.
    return "" if text.startswith("<") else line(text.partition("\n")[0].strip())


def _fix_for(endpoint: str, status: int, message: str, body: bytes, signal: Signal) -> str:
    if status == HTTPStatus.BAD_REQUEST:
        if _WANTS_TLS.search(body[:_MAX_MESSAGE]):
            return "write https"
        if endpoint.rstrip("/").endswith(_PROMETHEUS) and _LATE.search(message):
            return "set out_of_order_time_window in Prometheus (see docs/sinks/otlp.md)"
    mend = _HTTP_FIXES.get(status, "see the log of the receiver")
    return mend.format(path=signal.path, name=signal.name)


def accepted_response(
    address: str,
    body: bytes,
    content_type: str = "application/x-protobuf",
    signal: Signal = METRICS,
) -> Acked:
    """Return what an answer comes to that says the message was taken, or some of it.

    Args:
        address: whose it is, for messages.
        body: an encoded ExportMetricsServiceResponse, or ExportLogsServiceResponse.
        content_type: what the receiver calls it.
        signal: of the message.
    """
    form = _form(content_type)
    if not body or (form == "application/json" and body.strip() == b"{}"):
        return Acked()
    answer = _decoded(body, signal) if form in _PROTOBUF else None
    if answer is None:
        told = line(form, 60) or "something"
        return Acked(
            message=f"{address}: took the message, but answered with {told} that is not of OTLP; "
            "see that the endpoint is that of a receiver"
        )
    rejected, message = max(answer[0], 0), line(answer[1])
    if not rejected and not message:
        return Acked()
    what = f"refused {rejected} {signal.points}" if rejected else "took the message, and warns"
    return Acked(rejected, f"{address}: {what}: {message}" if message else f"{address}: {what}")


def _form(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _decoded(body: bytes, signal: Signal) -> tuple[int, str] | None:
    """Return how many of the message's points were refused, and what is said of it."""
    try:
        if signal is LOGS:
            logs = ExportLogsServiceResponse.FromString(body).partial_success
            return logs.rejected_log_records, logs.error_message
        metrics = ExportMetricsServiceResponse.FromString(body).partial_success
    except DecodeError:
        return None
    return metrics.rejected_data_points, metrics.error_message


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def _retry_after(text: str, now_s: float) -> float | None:
    """Return the seconds that Retry-After asks for: it has a number of them, or a date.

    What is neither says nothing; a date that is over says that there is nothing to wait for.
    """
    text = text.strip()
    if text.isascii() and text.isdecimal() and len(text) <= 12:
        return float(text)
    try:
        return max(parsedate_to_datetime(text).timestamp() - now_s, 0.0)
    except (ValueError, OverflowError, TypeError):
        return None
