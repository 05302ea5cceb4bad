"""What the transports for gRPC and HTTP have in common."""

from abc import ABC, abstractmethod
from typing import Any, Final

from pipeline.base.version import VERSION
from pipeline.delivery.contract import Outcome
from sinks.otlp.transport.credentials import RequestCredentials, Tls
from sinks.otlp.transport.settings import Settings

MAX_RESPONSE_BYTES: Final = 4 << 20
"""Maximum size of a response in bytes (OTLP specification 1.11)."""
MAX_MESSAGE_BYTES: Final = 64 << 20
"""Maximum size of a message in bytes (OTLP specification 1.11)."""
USER_AGENT: Final = f"podgpu/{VERSION} (OTLP exporter; Python)"
"""Exporter, version and language, as the specification requires. podgpu does not use the SDK."""


class Transport(ABC):
    """Sends one message at a time over one connection. Create it in a running event loop.

    Args:
        settings: the receiver and how to send to it.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._connection: Any = None
        self._tls: Tls | None = None

    @abstractmethod
    async def send(self, message: bytes, credentials: RequestCredentials) -> Outcome:
        """Send an encoded request of the transport's signal.

        Args:
            message: the encoded request.
            credentials: certificates and token. If the certificates changed, a new connection is
                opened: outdated ones are not used.
        """

    @abstractmethod
    def _connect(self, tls: Tls | None) -> Any:
        """Return a new connection, which has a coroutine function `close`."""

    async def _connected(self, tls: Tls | None) -> Any:
        if self._connection is None or tls is not self._tls:
            await self.close()
            self._tls, self._connection = tls, self._connect(tls)
        return self._connection

    async def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
