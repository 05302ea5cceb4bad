"""The address at which pods find the API server: that of the Service `kubernetes`.

No proxy of Services runs here, so the address is one of the machine's own while it is needed, and
what comes there is handed on.
"""

import asyncio
import errno
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.e2e.kube.background import Background

ADDRESS, PORT = "10.96.0.1", 443
"""What the API server takes for itself of its range, and what the kubelet tells containers."""

_NEW, _DELETE = 20, 21  # RTM_NEWADDR, RTM_DELADDR
_REQUEST, _ACKNOWLEDGE, _CREATE = 0x1, 0x4, 0x400
_LOCAL = 2  # IFA_LOCAL
_MUCH = 1 << 16


@contextmanager
def forwarded(port: int) -> Iterator[None]:
    """Hand what comes to the Service on to the API server's port on loopback."""
    background = Background()
    add()
    server = background.do(_serve(port))
    try:
        yield
    finally:
        background.do(_end(server))
        background.stop()
        remove()


def add() -> None:
    """Give the machine the address. Nothing happens where it has it."""
    with suppress(FileExistsError):
        _change(_NEW)


def remove() -> None:
    """Take it away. Nothing happens where the machine hasn't got it."""
    try:
        _change(_DELETE)
    except OSError as error:
        if error.errno != errno.EADDRNOTAVAIL:
            raise


def _change(kind: int) -> None:
    """Send the kernel one message of rtnetlink(7) about the address, on `lo`.

    Raises:
        OSError: the kernel refuses.
    """
    address = socket.inet_aton(ADDRESS)
    body = struct.pack("=BBBBi", socket.AF_INET, 32, 0, 0, socket.if_nametoindex("lo"))
    body += struct.pack("=HH", 4 + len(address), _LOCAL) + address
    flags = _REQUEST | _ACKNOWLEDGE | (_CREATE if kind == _NEW else 0)
    head = struct.pack("=IHHII", 16 + len(body), kind, flags, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.send(head + body)
        # An acknowledgement is an error, number 0 for none, behind a head.
        (number,) = struct.unpack_from("=i", kernel.recv(_MUCH), 16)
    if number:
        raise OSError(-number, f"{ADDRESS} on lo: {os.strerror(-number)}")


async def _serve(port: int) -> asyncio.Server:
    async def hand_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_copy(reader, back), _copy(there, writer))

    return await asyncio.start_server(hand_on, ADDRESS, PORT)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while some := await reader.read(_MUCH):
            writer.write(some)
            await writer.drain()
    except OSError:
        pass  # either end went away, and so does the other
    finally:
        writer.close()


async def _end(server: asyncio.Server) -> None:
    server.close()
    await server.wait_closed()
