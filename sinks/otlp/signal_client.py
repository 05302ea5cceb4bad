"""A client that sends the messages of one signal to their receiver."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Final, Self

from pipeline.base.clock import Clock
from pipeline.base.safe_text import redact
from pipeline.delivery.contract import Outcome, Rejected, Retry
from sinks.otlp.transport.contract import Transport
from sinks.otlp.transport.credentials import Credentials, CredentialsError, system_certificates
from sinks.otlp.transport.settings import Settings

EMPTY_MESSAGE: Final = b""
"""A message without points. Receivers must accept empty requests (OTLP specification 1.11)."""

_AUTH_REASONS: Final = frozenset(("http_401", "http_403", "unauthenticated", "permission_denied"))
"""Refusals that a new token or certificate may resolve."""


class SignalClient:
    """Sends messages of one signal. The first message opens the connection.

    Args:
        settings: the receiver and how to send to it.
        clock: decides when credential files are checked again.
    """

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self.settings = settings
        self._clock = clock
        self._open: tuple[Credentials, Transport] | None = None

    async def __aenter__(self) -> Self:
        """Load credentials and the library of the protocol. It does not connect yet."""
        settings = self.settings
        secure, system_ca = settings.endpoint.secure, None
        if secure and settings.protocol == "grpc":
            system_ca = await asyncio.to_thread(system_certificates)
        tls = settings.tls if secure else None
        credentials = Credentials(
            tls, settings.token_file, self._clock, system_ca, settings.tls_names
        )
        transport = (await asyncio.to_thread(_load_transport, settings, self._clock))()
        self._open = credentials, transport
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connection."""
        opened, self._open = self._open, None
        if opened is not None:
            await opened[1].close()

    async def send(self, message: bytes, *, reload: bool = False) -> Outcome:
        """Send a message.

        If the receiver refuses podgpu's credentials, the files are read again and the message is
        sent once more. The outcome's text contains no header value and no token.

        Args:
            message: the encoded request.
            reload: whether to read the credential files now.
        """
        if self._open is None:
            raise RuntimeError("send() outside of the sink's context")
        credentials, transport = self._open
        try:
            material = await credentials.get(reload=reload)
        except CredentialsError as error:
            return Retry("credentials", str(error))
        outcome = await transport.send(message, material)
        refused = isinstance(outcome, Rejected) and outcome.reason in _AUTH_REASONS
        if refused and credentials.files and not reload:
            return await self.send(message, reload=True)
        if not outcome.message:
            return outcome
        secrets = {material.token, *_secret_parts(self.settings.headers)}
        return replace(outcome, message=redact(outcome.message, secrets))


def _secret_parts(headers: Mapping[str, str]) -> Iterator[str]:
    for value in headers.values():
        yield value
        yield value.rpartition(" ")[2]  # a receiver may repeat `Bearer abc` as `abc`


def _load_transport(settings: Settings, clock: Clock) -> Callable[[], Transport]:
    """Import only the library of this protocol. Blocking: it reads from the disk."""
    if settings.protocol == "grpc":
        from sinks.otlp.transport.grpc_transport import GrpcTransport  # noqa: PLC0415

        return partial(GrpcTransport, settings)
    from sinks.otlp.transport.http_transport import HttpTransport  # noqa: PLC0415

    return partial(HttpTransport, settings, clock)
