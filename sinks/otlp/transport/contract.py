"""What a transport is: gRPC or HTTP."""

from typing import Final, Protocol

from pipeline.base.version import VERSION
from pipeline.delivery.contract import Outcome
from sinks.otlp.transport.credentials import RequestCredentials

MAX_RESPONSE_BYTES: Final = 4 << 20
"""Bytes of an answer that are taken, as the OTLP specification 1.11 wants it."""
MAX_MESSAGE_BYTES: Final = 64 << 20
"""Bytes of a message, likewise."""
USER_AGENT: Final = f"podgpu/{VERSION} (OTLP exporter; Python)"
"""Exporter, version and language, as the specification wants it. podgpu is none of the SDK's."""


class Transport(Protocol):
    """Sends one message at a time."""

    async def send(self, message: bytes, credentials: RequestCredentials) -> Outcome:
        """Send an encoded request of the transport's signal.

        Args:
            message: what is sent.
            credentials: certificates and token to send it with; other certificates than the last
                time's make a new connection.
        """
        ...

    async def close(self) -> None:
        """Give the connection back."""
        ...
