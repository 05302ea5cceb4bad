"""Opening a listening socket, and saying in plain words why that failed."""

import asyncio
import errno
import socket
from ipaddress import AddressValueError, IPv6Address
from typing import Final

from config.value_types import ListenAddress

BACKLOG = 1024
"""Connections that the kernel keeps until they are accepted."""

_ANY: Final = IPv6Address("::")


async def bind(address: ListenAddress) -> socket.socket:
    """Open one listening socket: one, so that port 0 is the same port for IPv4 and IPv6.

    No host, and the host `::`, serve both IPv4 and IPv6, as in programs in Go. The host `0.0.0.0`
    serves IPv4 alone.

    Raises:
        OSError: the address can't be listened on; `reason` says why.
        UnicodeError: the host name can't be a host name.
    """
    if not address.host or _is_any(address.host):
        return _everywhere(address.port)
    found = await asyncio.get_running_loop().getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    family, _, _, _, where = min(found, key=lambda info: info[0] != socket.AF_INET)
    return socket.create_server(where[:2], family=family, backlog=BACKLOG)


def _is_any(host: str) -> bool:
    """Whether this is the unspecified address of IPv6, in any of its spellings."""
    try:
        return IPv6Address(host) == _ANY
    except AddressValueError:
        return False


def _everywhere(port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(
                ("", port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True
            )
        except OSError as exc:
            # Built with IPv6, but the machine has none.
            if exc.errno not in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}:
                raise
    return socket.create_server(("", port), backlog=BACKLOG)


def reason(exc: OSError | UnicodeError) -> str:
    """Return why an address can't be listened on."""
    if isinstance(exc, socket.gaierror | UnicodeError):
        return "the host name can't be resolved"
    match exc.errno:
        case errno.EADDRINUSE:
            return "the port is taken; stop what listens there or choose another port"
        case errno.EACCES | errno.EPERM:
            return "not permitted; ports below 1024 need the capability NET_BIND_SERVICE"
        case errno.EADDRNOTAVAIL:
            return "this machine has no such address"
        case _:
            return exc.strerror or str(exc)
