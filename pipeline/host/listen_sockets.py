"""Opens listening sockets, and explains why one cannot be opened."""

import asyncio
import errno
import os
import socket
from typing import Final

from config.value_types import ListenAddress

BACKLOG = 1024
"""Maximum number of connections that the kernel queues until they are accepted."""


_FIRST_PASSED: Final = 3
"""The file descriptor of the first socket that systemd passes."""

_NOT_PERMITTED: Final = "not permitted; ports below 1024 need the capability NET_BIND_SERVICE"
_REASONS: Final = {
    errno.EADDRINUSE: "the port is in use; stop the program that uses it or choose another port",
    errno.EACCES: _NOT_PERMITTED,
    errno.EPERM: _NOT_PERMITTED,
    errno.EADDRNOTAVAIL: "this machine has no such address",
}


async def bind(address: ListenAddress) -> socket.socket:
    """Open one listening socket for an address.

    An empty host and the host `::` listen for both IPv4 and IPv6, as in Go programs. The host
    `0.0.0.0` listens for IPv4 only. There is only one socket, so that port 0 results in the same
    port for IPv4 and IPv6; of a host name with several addresses, one IPv4 address is preferred.
    The address `systemd` is the first socket that systemd passed to this process.

    Raises:
        OSError: podgpu cannot listen on the address; `reason` explains the error.
        UnicodeError: the host name is invalid.
    """
    if address.systemd:
        return _passed(_FIRST_PASSED)
    if address.host in ("", "::"):
        return _bind_all(address.port)
    found = await asyncio.get_running_loop().getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    family, _, _, _, where = min(found, key=lambda info: info[0] != socket.AF_INET)
    return socket.create_server(where[:2], family=family, backlog=BACKLOG)


def _passed(descriptor: int) -> socket.socket:
    """Return a duplicate of a socket of systemd, so that it can be used again after a close."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()) or not os.environ.get("LISTEN_FDS"):
        raise OSError(errno.ENOTSOCK, "systemd passed no socket; start podgpu by a socket unit")
    os.set_inheritable(descriptor, False)
    passed = socket.socket(fileno=os.dup(descriptor))
    is_tcp = passed.family in {socket.AF_INET, socket.AF_INET6}
    if is_tcp and passed.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        return passed
    passed.close()
    raise OSError(
        errno.ENOTSOCK,
        "the socket of systemd does not listen for TCP; write ListenStream= with a port, and no "
        "Accept=yes, in the socket unit",
    )


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
    """Return why podgpu cannot listen on an address, as text for users."""
    if isinstance(exc, socket.gaierror | UnicodeError):
        return "the host name can't be resolved"
    return _REASONS.get(exc.errno or 0) or exc.strerror or str(exc)
