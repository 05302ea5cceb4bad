"""Sends over HTTP, as protobuf."""

import asyncio
import zlib
from typing import Final

from pipeline.base.clock import Clock
from pipeline.delivery.contract import Outcome, Retry
from pipeline.model import NS
from pipeline.net.http_post import Poster, PostError
from sinks.otlp.transport.contract import MAX_RESPONSE_BYTES, USER_AGENT
from sinks.otlp.transport.credentials import RequestCredentials, Tls
from sinks.otlp.transport.http_status import http_outcome
from sinks.otlp.transport.redaction import redact_outcome
from sinks.otlp.transport.settings import Settings

_LEVEL: Final = 1
"""Half the time of zlib's own choice for a tenth more bytes."""
_HERE: Final = 1 << 16
"""Bytes that are packed in the event loop, which takes half a millisecond; more go to a thread."""


class HttpTransport:
    """Keeps a connection to the receiver. Made in a running event loop.

    Args:
        settings: where to and how.
        clock: tells how long it is until a date that the receiver names.
    """

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._headers = {
            **settings.headers,
            "content-type": "application/x-protobuf",
            "user-agent": USER_AGENT,
        }
        if settings.compression == "gzip":
            self._headers["content-encoding"] = "gzip"
        self._poster: Poster | None = None
        self._tls: Tls | None = None

    async def send(self, message: bytes, credentials: RequestCredentials) -> Outcome:
        """Post a message."""
        outcome = await self._sent(message, credentials)
        return redact_outcome(outcome, self._settings.headers, credentials.token)

    async def _sent(self, message: bytes, material: RequestCredentials) -> Outcome:
        place = self._settings.endpoint.display_address
        headers = dict(self._headers)
        if material.token:
            headers["authorization"] = f"Bearer {material.token}"
        body = message
        if self._settings.compression == "gzip":
            body = (
                _pack(message) if len(message) <= _HERE else await asyncio.to_thread(_pack, message)
            )
        try:
            answer = await (await self._connection(material.tls)).post(body, headers)
        except PostError as error:
            return Retry(error.reason, str(error))
        return http_outcome(
            place,
            answer.status,
            answer.headers,
            answer.body,
            fault=answer.fault,
            now_s=self._clock.now().wall_ns / NS,
            signal=self._settings.signal,
        )

    async def _connection(self, tls: Tls | None) -> Poster:
        if self._poster is None or tls is not self._tls:
            # What was made with other certificates is not to be used any more.
            await self.close()
            self._tls = tls
            self._poster = Poster(
                self._settings.endpoint.address,
                timeout=self._settings.timeout,
                most=MAX_RESPONSE_BYTES,
                context=tls.context if tls is not None else None,
                server_name=self._settings.tls.server_name,
            )
        return self._poster

    async def close(self) -> None:
        """Give the connection back."""
        poster, self._poster = self._poster, None
        if poster is not None:
            await poster.close()


def _pack(message: bytes) -> bytes:
    # 31: gzip's form, without a time, so that the same message makes the same bytes.
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, 31)
    return packer.compress(message) + packer.flush()
