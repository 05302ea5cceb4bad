"""What the listeners spend on their clients."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """For all listeners together.

    A source is an IPv4 address, or the /64 of an IPv6 address.

    Attributes:
        connections: open at most, those that are still in the TLS handshake counted. A further one
            takes the place of one of the source that has most, where its own has fewer; else of the
            one that has waited longest for its client. If there is none, it comes out of the
            reserve.
        reserve: further connections, which are answered at once on the probes' paths alone. Others
            wait a second for room, then get 503. The newest have it.
        bytes: held for clients at most, besides one body or answer, the largest: requests that are
            coming or being answered, their bodies, and answers until they are sent. A page that
            many get counts once. What is beyond that is at the cost of the source that has most.
        head_bytes: of a request without its body.
        write_bytes: that are given to a connection at a time: the next ones when these are sent.
        socket_bytes: that the kernel buffers for a connection, in each direction.
        handshake_seconds: for the TLS handshake.
        idle_seconds: how long a connection may be without a complete request, which bounds both
            idle and very slow clients. Longer than a usual scrape interval.
        handler_seconds: for working an answer out, the check of a password and the reading of a
            body included.
        send_seconds: for the client to take the answer.
        linger_seconds: for a client that is told before it has sent all to send the rest, which
            nobody reads: else it may never see what it was told.
        close_seconds: for answers under way when the listener closes.
    """

    connections: int = 256
    reserve: int = 64
    bytes: int = 8 << 20
    head_bytes: int = 16 << 10
    write_bytes: int = 16 << 10
    socket_bytes: int = 64 << 10
    handshake_seconds: float = 10
    idle_seconds: float = 75
    handler_seconds: float = 10
    send_seconds: float = 30
    linger_seconds: float = 1
    close_seconds: float = 1
