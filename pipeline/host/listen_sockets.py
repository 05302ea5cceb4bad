"""Opens listening sockets, and explains why one can't be opened."""

import asyncio
import errno
import socket
from typing import Final

from config.value_types import ListenAddress

BACKLOG = 1024
"""Maximum of connections that the kernel queues until they are accepted."""


_NOT_PERMITTED: Final = "not permitted; ports below 1024 need the capability NET_BIND_SERVICE"
_REASONS: Final = {
    errno.EADDRINUSE: "the port is in use; stop the program that uses it or choose another port",
    errno.EACCES: _NOT_PERMITTED,
    errno.EPERM: _NOT_PERMITTED,
    errno.EADDRNOTAVAIL: "this machine has no such address",
}


async def bind(address: ListenAddress) -> socket.socket:
    """Open one listening socket: a single one, so that port 0 is the same for IPv4 and IPv6.

    An empty host and the host `::` serve both IPv4 and IPv6, as in Go programs. The host `0.0.0.0`
    serves IPv4 only.

    Raises:
        OSError: the address can't be listened on; `reason` explains it.
        UnicodeError: the host name is invalid.
    """
    if address.host in ("", "::"):
        return _bind_all(address.port)
    found = await asyncio.get_running_loop().getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    family, _, _, _, where = min(found, key=lambda info: info[0] != socket.AF_INET)
    return socket.create_server(where[:2], family=family, backlog=BACKLOG)


def _bind_all(port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(
                ("", port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True
            )
        except OSError as exc:
            # Python supports IPv6, but the machine has none.
            if exc.errno not in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}:
                raise
    return socket.create_server(("", port), backlog=BACKLOG)


def reason(exc: OSError | UnicodeError) -> str:
    """Return why an address can't be listened on, as text for users."""
    if isinstance(exc, socket.gaierror | UnicodeError):
        return "the host name can't be resolved"
    return _REASONS.get(exc.errno or 0) or exc.strerror or str(exc)
