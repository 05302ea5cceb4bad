"""What one listener spends on its clients."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """The same for every listener.

    Attributes:
        connections: open at most, those that are still in the TLS handshake counted. A further one
            takes the place of the connection that has waited longest for a request or for the rest
            of its body; if all are being answered it gets 503.
        secure_connections: the same with TLS, where asyncio's buffers make one cost 0.3 MB.
        handshake_seconds: for the TLS handshake.
        idle_seconds: how long a connection may be without a complete request, which bounds both
            idle and very slow clients. Longer than a usual scrape interval.
        handler_seconds: for working an answer out, the check of a password and the reading of a
            body included.
        bodies: that are coming at a time; a further one takes the place of the slowest.
        small_body: bytes up to which a body, or the answer to one, is small: these have a room of
            their own, so that large ones don't keep them out.
        small_bytes: of all small ones together: bodies that are coming or being answered, and the
            answers to bodies until they are sent.
        body_bytes: the same of the large ones. What is beyond that takes the place of what is
            slower than itself, or gets 503.
        send_seconds: for the client to take the answer.
        linger_seconds: for a client that is told before it has sent all to send the rest, which
            nobody reads: else it may never see what it was told.
        close_seconds: for answers under way when the listener closes.
    """

    connections: int = 512
    secure_connections: int = 128
    handshake_seconds: float = 10
    idle_seconds: float = 75
    handler_seconds: float = 10
    bodies: int = 64
    small_body: int = 1 << 20
    small_bytes: int = 16 << 20
    body_bytes: int = 64 << 20
    send_seconds: float = 30
    linger_seconds: float = 1
    close_seconds: float = 1
