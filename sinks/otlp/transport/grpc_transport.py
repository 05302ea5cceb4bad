"""Send OTLP messages over gRPC."""

import os
from collections.abc import Mapping
from typing import Any, Final

from pipeline.delivery.contract import Outcome, Retry
from pipeline.net.grpc_client import (
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
from sinks.otlp.transport.contract import MAX_MESSAGE_BYTES, MAX_RESPONSE_BYTES, USER_AGENT
from sinks.otlp.transport.credentials import RequestCredentials, Tls
from sinks.otlp.transport.grpc_status import grpc_outcome
from sinks.otlp.transport.http_status import accepted_response
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


class GrpcTransport:
    """Sends messages over one gRPC channel. Create it in a running event loop.

    The channel is closed after UNAVAILABLE and DEADLINE_EXCEEDED. The next message opens a new one:
    the name is resolved again, a dead connection is not reused, and the library does not wait.

    Args:
        settings: the receiver and how to send to it.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._proxy = _proxy(os.environ)
        self._metadata = tuple(settings.headers.items())
        gzip = settings.compression == "gzip"
        self._compression = Compression.Gzip if gzip else Compression.NoCompression
        self._channel: Channel | None = None
        self._tls: Tls | None = None

    async def send(self, message: bytes, credentials: RequestCredentials) -> Outcome:
        """Call the gRPC method of the signal."""
        address, timeout = self._settings.endpoint.display_address, self._settings.timeout
        metadata = self._metadata
        if credentials.token:
            metadata = (*metadata, ("authorization", f"Bearer {credentials.token}"))
        try:
            channel = await self._connection(credentials.tls)
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

    async def _connection(self, tls: Tls | None) -> Channel:
        if self._channel is None or tls is not self._tls:
            # Do not use a connection with outdated certificates.
            await self.close()
            self._tls = tls
            check_descriptors()
            keep_library()
            self._channel = self._new_channel(tls)
        return self._channel

    def _new_channel(self, tls: Tls | None) -> Channel:
        target = self._settings.endpoint.address
        options = list(_OPTIONS)
        if target.startswith("unix"):
            options.append(_SOCKET_AUTHORITY)
        if tls is None:
            return insecure_channel(target, options)
        if name := self._settings.tls.server_name:
            options.append(("grpc.ssl_target_name_override", name))
        return secure_channel(target, ssl_channel_credentials(tls.ca, tls.key, tls.cert), options)

    async def close(self) -> None:
        """Close the connection."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()


def _proxy(environ: Mapping[str, str]) -> str:
    return next((name for name in _PROXIES if environ.get(name)), "")


def _status(error: Any) -> bytes:
    for name, value in error.trailing_metadata() or ():
        if name == _DETAILS and isinstance(value, bytes):
            return value
    return b""
