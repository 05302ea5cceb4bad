"""Limits on the connections, bytes and time that the HTTP listeners spend on their clients."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits for all listeners together.

    A source here is the IPv4 address of a client, or the /64 network of its IPv6 address.

    Attributes:
        connections: maximum of open connections, including those in the TLS handshake. If all are
            in use, a new connection replaces an existing one. If another source has at least two
            more than the source of the new connection, the source that has most loses one.
            Otherwise a connection is replaced that has waited long for its client, or got most
            responses, or is in the largest network. If there is none, the new connection is put
            into the reserve.
        reserve: maximum of further connections. On them, podgpu responds immediately on the probe
            paths only. Other requests wait up to a second for room, and then get status 503. The
            newest connections are kept.
        bytes: maximum of bytes held for clients: requests until their response is sent, their
            bodies, and responses until they are sent. The connection that holds most is not
            counted. A response that several clients get counts once. Above the limit, the source
            that holds most loses a connection or a request.
        head_bytes: maximum of bytes of a request without its body.
        write_bytes: maximum of bytes that are written to a connection at a time.
        socket_bytes: bytes that the kernel buffers for a connection, in each direction.
        handshake_seconds: time for the TLS handshake.
        idle_seconds: time without a complete request, after which a connection is closed. It limits
            idle and very slow clients, and is longer than a usual scrape interval.
        handler_seconds: time to make a response, including the check of the password and the
            reading of the body.
        send_seconds: time for the client to read the response.
        linger_seconds: time in which podgpu reads and discards the rest of a request, if it sent
            the response before. Otherwise the client may never receive the response.
        close_seconds: time for responses in progress when the listener closes.
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
