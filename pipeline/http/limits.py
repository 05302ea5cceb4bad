"""What one listener spends on its clients."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """The same for every listener.

    Attributes:
        connections: open at most, those that are still in the TLS handshake counted. A further one
            takes the place of the connection that has waited longest for a request; if all are
            being answered it gets 503.
        secure_connections: the same with TLS, where asyncio's buffers make one cost 0.3 MB.
        handshake_seconds: for the TLS handshake.
        idle_seconds: how long a connection may be without a complete request, which bounds both
            idle and very slow clients. Longer than a usual scrape interval.
        handler_seconds: for working an answer out, the check of a password and the reading of a
            body included.
        body_bytes: of all bodies together that are being read or answered; what comes beyond that
            gets 503.
        send_seconds: for the client to take the answer.
        close_seconds: for answers under way when the listener closes.
    """

    connections: int = 512
    secure_connections: int = 128
    handshake_seconds: float = 10
    idle_seconds: float = 75
    handler_seconds: float = 10
    body_bytes: int = 64 << 20
    send_seconds: float = 30
    close_seconds: float = 1
