"""Limits on what the HTTP listeners spend on their clients."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits for all listeners together.

    A source here is the IPv4 address of a client, or the /64 of its IPv6 address.

    Attributes:
        connections: maximum of open connections, including those in the TLS handshake. If all are
            in use, a new one replaces one of the source that has most, if its own source has fewer;
            otherwise the one that has waited longest for its client. If there is none, the new
            connection goes to the reserve.
        reserve: maximum of further connections. They are answered immediately on the probe paths
            only; other requests wait a second for room and then get 503. The newest are kept.
        bytes: maximum of bytes held for clients, not counting the largest body or response:
            requests that are received or answered, their bodies, and responses until they are sent.
            A response that several clients get counts once. If it is exceeded, the source that
            holds most loses a connection or a request.
        head_bytes: maximum of bytes of a request without its body.
        write_bytes: bytes that are written to a connection at a time, when the previous are sent.
        socket_bytes: bytes that the kernel buffers for a connection, in each direction.
        handshake_seconds: time for the TLS handshake.
        idle_seconds: time without a complete request, which limits both idle and very slow clients.
            Longer than a usual scrape interval.
        handler_seconds: time to make a response, including the check of the password and the
            reading of the body.
        send_seconds: time for the client to read the response.
        linger_seconds: time in which podgpu reads and discards the rest of a request that it has
            answered early. Otherwise the client may never see the response.
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
