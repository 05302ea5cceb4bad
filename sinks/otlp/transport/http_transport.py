"""Send OTLP messages over HTTP, encoded as protobuf."""

import asyncio
import gzip
from functools import partial
from typing import Final

from pipeline.base.clock import Clock
from pipeline.delivery.contract import Outcome, Retry
from pipeline.model import NS
from pipeline.net.http_post import Poster, PostError
from sinks.otlp.transport.contract import MAX_RESPONSE_BYTES, USER_AGENT, Transport
from sinks.otlp.transport.credentials import RequestCredentials, Tls
from sinks.otlp.transport.http_status import http_outcome
from sinks.otlp.transport.settings import Settings

_GZIP_LEVEL: Final = 1
"""Takes half the time of zlib's default level, for a tenth more bytes."""
_INLINE_BYTES: Final = 1 << 16
"""Up to this size, compression runs in the event loop (half a millisecond); above, in a thread."""


class HttpTransport(Transport):
    """Sends messages over a persistent HTTP connection.

    Args:
        settings: the receiver and how to send to it.
        clock: the time for a date in Retry-After.
    """

    def __init__(self, settings: Settings, clock: Clock) -> None:
        super().__init__(settings)
        self._clock = clock
        self._headers = {
            **settings.headers,
            "content-type": "application/x-protobuf",
            "user-agent": USER_AGENT,
        }
        if settings.compression == "gzip":
            self._headers["content-encoding"] = "gzip"

    async def send(self, message: bytes, credentials: RequestCredentials) -> Outcome:
        """Post a message."""
        address = self._settings.endpoint.display_address
        headers = dict(self._headers)
        if credentials.token:
            headers["authorization"] = f"Bearer {credentials.token}"
        body = message
        if self._settings.compression == "gzip":
            # Without a time, so that equal messages are equal when compressed.
            pack = partial(gzip.compress, message, _GZIP_LEVEL, mtime=0)
            body = pack() if len(message) <= _INLINE_BYTES else await asyncio.to_thread(pack)
        try:
            response = await (await self._connected(credentials.tls)).post(body, headers)
        except PostError as error:
            return Retry(error.reason, str(error))
        return http_outcome(
            address,
            response.status,
            response.headers,
            response.body,
            fault=response.fault,
            now_s=self._clock.now().wall_ns / NS,
            signal=self._settings.signal,
        )

    def _connect(self, tls: Tls | None) -> Poster:
        return Poster(
            self._settings.endpoint.address,
            timeout=self._settings.timeout,
            most=MAX_RESPONSE_BYTES,
            context=tls.context if tls is not None else None,
            server_name=self._settings.tls.server_name,
        )
