"""Send OTLP messages over gRPC, and map gRPC errors to outcomes.

The rules are those of "OTLP/gRPC Response" in the OTLP specification 1.11.
"""

import os
import re
from collections.abc import Mapping
from typing import Any, Final

from pipeline.base.safe_text import line
from pipeline.delivery.contract import Acked, Outcome, Rejected, Retry, TooLarge
from pipeline.net.grpc_library import (
    AioRpcError,
    Channel,
    Compression,
    StatusCode,
    check_descriptors,
    insecure_channel,
    keep_library,
    secure_channel,
    ssl_channel_credentials,
)
from sinks.otlp.signals import METRICS, Signal
from sinks.otlp.transport.contract import (
    MAX_MESSAGE_BYTES,
    MAX_RESPONSE_BYTES,
    USER_AGENT,
    Transport,
)
from sinks.otlp.transport.credentials import RequestCredentials, Tls
from sinks.otlp.transport.http_status import LOGIN, accepted_response, read_status
from sinks.otlp.transport.settings import Settings

_DETAILS: Final = "grpc-status-details-bin"
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MAX_RESPONSE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # The queue does the retries.
    ("grpc.enable_retries", 0),
    # A new channel opens its own connection, without the backoff of an earlier one.
    ("grpc.use_local_subchannel_pool", 1),
    # Go servers allow one ping every five minutes. Keepalive lets the kernel close a connection
    # whose peer has acknowledged nothing for 20 s.
    ("grpc.keepalive_time_ms", 300_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.primary_user_agent", USER_AGENT),
)
_DESCRIPTOR_FIX: Final = "allow podgpu more open files (ulimit -n)"
_SOCKET_AUTHORITY: Final = ("grpc.default_authority", "localhost")
"""Without it the authority is the path of the socket, which strict servers refuse."""
_PROXIES: Final = ("grpc_proxy", "https_proxy", "http_proxy")
"""The library uses the first one that is set, for any scheme."""


_RETRY: Final = frozenset(
    ("CANCELLED", "DEADLINE_EXCEEDED", "ABORTED", "OUT_OF_RANGE", "UNAVAILABLE", "DATA_LOSS")
)
_FIXES: Final = {
    "UNAUTHENTICATED": LOGIN,
    "PERMISSION_DENIED": LOGIN,
    "UNIMPLEMENTED": "check that the receiver accepts {name}; for HTTP set protocol: http/protobuf",
    "UNKNOWN": "check that this is a gRPC receiver and not an HTTP receiver; see its log",
}
_TOO_LARGE: Final = re.compile(
    r"larger than max|message exceeds|message (size|length)|(message|request|body) (is )?too large",
    re.IGNORECASE,
)
"""Error texts of servers (in Go, C, Java and others) that refuse a message of this size."""

_TLS: Final = re.compile(r"handshake failed|SSL_ERROR|Verification Check failed", re.IGNORECASE)
_CONNECTION_ENDED: Final = re.compile(
    r"failed to connect.*(Socket closed|reset by peer|Broken pipe|EOF|Unwrap failed|DATA_CORRUPTED)"
)
"""Errors of a server that closes the connection because it requires another client certificate.

With TLS 1.3 it does so after the handshake, and the library can't read its alert. A server with TLS
closes a connection without TLS in the same way.
"""
_ALPN: Final = "missing selected ALPN"
_NOT_GRPC: Final = "this is not a gRPC port: set protocol: http/protobuf, or use the gRPC port"

_RESPONSE_TOO_LARGE: Final = "CLIENT: Received"
"""Error text of the library when the response is too large.

If only the decompressed response is too large, the library uses the same text as a server does for
a message. Then the message counts as too large: sending halves is better than losing all of it.
"""


class GrpcTransport(Transport):
    """Sends messages over one gRPC channel.

    The channel is closed after UNAVAILABLE and DEADLINE_EXCEEDED. The next message opens a new one:
    the name is resolved again, a dead connection is not reused, and the library does not wait.

    Args:
        settings: the receiver and how to send to it.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._proxy = _proxy(os.environ)
        self._metadata = tuple(settings.headers.items())
        gzip = settings.compression == "gzip"
        self._compression = Compression.Gzip if gzip else Compression.NoCompression

    async def send(self, message: bytes, credentials: RequestCredentials) -> Outcome:
        """Call the gRPC method of the signal."""
        address, timeout = self._settings.endpoint.display_address, self._settings.timeout
        metadata = self._metadata
        if credentials.token:
            metadata = (*metadata, ("authorization", f"Bearer {credentials.token}"))
        try:
            channel = await self._connected(credentials.tls)
        except OSError as error:
            return Retry(
                "descriptors", f"{address}: can't connect: {error.strerror}; {_DESCRIPTOR_FIX}"
            )
        try:
            response: bytes = await channel.unary_unary(self._settings.signal.method)(
                message, timeout=timeout, metadata=metadata, compression=self._compression
            )
        except AioRpcError as error:
            code = error.code()
            if code in (StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED):
                await self.close()
            return grpc_outcome(
                address,
                code.name,
                error.details() or "",
                status=_status(error),
                timeout=timeout,
                secure=credentials.tls is not None,
                proxy=self._proxy,
                signal=self._settings.signal,
            )
        return accepted_response(address, response, signal=self._settings.signal)

    def _connect(self, tls: Tls | None) -> Channel:
        check_descriptors()
        keep_library()
        target = self._settings.endpoint.address
        options = list(_OPTIONS)
        if target.startswith("unix"):
            options.append(_SOCKET_AUTHORITY)
        if tls is None:
            return insecure_channel(target, options)
        if name := self._settings.tls.server_name:
            options.append(("grpc.ssl_target_name_override", name))
        return secure_channel(target, ssl_channel_credentials(tls.ca, tls.key, tls.cert), options)


def _proxy(environ: Mapping[str, str]) -> str:
    return next((name for name in _PROXIES if environ.get(name)), "")


def _status(error: Any) -> bytes:
    for name, value in error.trailing_metadata() or ():
        if name == _DETAILS and isinstance(value, bytes):
            return value
    return b""


def grpc_outcome(
    address: str,
    code: str,
    details: str,
    *,
    status: bytes = b"",
    timeout: float,
    secure: bool = False,
    proxy: str = "",
    signal: Signal = METRICS,
) -> Outcome:
    """Return the outcome of a gRPC error.

    Args:
        address: address of the receiver, for messages.
        code: name of the status code, in capitals.
        details: error text of the server or the library.
        status: the trailer grpc-status-details-bin; empty without one.
        timeout: timeout of the request, in seconds.
        secure: whether the connection uses TLS.
        proxy: the variable that names a proxy; empty without one.
        signal: signal of the message.
    """
    _, retry_after = read_status(status)
    text = f"{address}: answered {code}: {line(details)}".rstrip(": ")
    if code == "RESOURCE_EXHAUSTED":
        return _exhausted(address, details, text, retry_after)
    if code in _RETRY:
        client_error = _client_error(address, code, details, timeout, secure=secure, proxy=proxy)
        reason, text = client_error or (code.lower(), text)
        return Retry(reason, text, retry_after)
    fix = _FIXES.get(code, "see the log of the receiver").format(name=signal.name)
    return Rejected(code.lower(), f"{text}; {fix}")


def _exhausted(address: str, details: str, text: str, retry_after: float | None) -> Outcome:
    if _RESPONSE_TOO_LARGE in details:
        return Acked(message=f"{address}: accepted the message, but its response is too large")
    if _TOO_LARGE.search(details):
        return TooLarge(f"{text}; lower max_message_size, or raise the limit of the receiver")
    if retry_after is None:
        # Without RetryInfo the receiver does not say that a retry may help.
        return Rejected("resource_exhausted", f"{text}; check the quota of the receiver")
    return Retry("resource_exhausted", text, retry_after)


def _client_error(
    address: str, code: str, details: str, timeout: float, *, secure: bool, proxy: str
) -> tuple[str, str] | None:
    """Return reason and text if the error is from the gRPC library, not from the receiver."""
    text = line(details)
    if code == "DEADLINE_EXCEEDED":
        return "timeout", (
            f"{address}: no response within {timeout:g} s; check that the address is right and "
            "reachable, and that the receiver is not overloaded"
        )
    if code != "UNAVAILABLE":
        return None
    if _TLS.search(details) or (secure and (_CONNECTION_ENDED.search(details) or _ALPN in details)):
        return "tls", f"{address}: TLS failed: {_last_error(text)}; {_tls_fix(details)}"
    if "failed to connect" in details or re.search(r"resolution failed|errors resolving", details):
        fix = _connect_fix(details)
        if proxy:
            fix += f"; check the proxy in {proxy}, or add the receiver to no_proxy"
        return "unreachable", f"{address}: can't be reached: {_last_error(text)}; {fix}"
    return None


def _connect_fix(details: str) -> str:
    if "http1.x server" in details:
        return _NOT_GRPC
    fix = "check that the receiver runs and its address is right"
    if _CONNECTION_ENDED.search(details):
        return f"{fix}; if the receiver uses TLS, use https"
    return fix


def _last_error(details: str) -> str:
    """Return the cause at the end of the library's error text."""
    return details.rpartition("last error: ")[2]


def _tls_fix(details: str) -> str:
    if "CERTIFICATE_VERIFY_FAILED" in details or "Hostname" in details:
        return "check the server's certificate (names, expiry date) and ca_file"
    if "ALERT" in details or _CONNECTION_ENDED.search(details):
        return (
            "the receiver rejects podgpu's client certificate, or requires one: check cert_file "
            "and key_file"
        )
    if "WRONG_VERSION_NUMBER" in details:
        return "check that the receiver uses TLS; if it does not, use http"
    if _ALPN in details:
        return _NOT_GRPC
    return "check that the receiver uses TLS, and its certificate fits the endpoint and ca_file"
