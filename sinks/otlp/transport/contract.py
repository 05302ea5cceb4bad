"""The interface of a transport, gRPC or HTTP."""

from typing import Final, Protocol

from pipeline.base.version import VERSION
from pipeline.delivery.contract import Outcome
from sinks.otlp.transport.credentials import RequestCredentials

MAX_RESPONSE_BYTES: Final = 4 << 20
"""Maximum size of a response in bytes (OTLP specification 1.11)."""
MAX_MESSAGE_BYTES: Final = 64 << 20
"""Maximum size of a message in bytes (OTLP specification 1.11)."""
USER_AGENT: Final = f"podgpu/{VERSION} (OTLP exporter; Python)"
"""Exporter, version and language, as the specification requires. podgpu does not use the SDK."""


class Transport(Protocol):
    """Sends one message at a time."""

    async def send(self, message: bytes, credentials: RequestCredentials) -> Outcome:
        """Send an encoded request of the transport's signal.

        Args:
            message: the encoded request.
            credentials: certificates and token. If the certificates changed, a new connection is
                opened.
        """
        ...

    async def close(self) -> None:
        """Close the connection."""
        ...
