"""The addresses at which Services are reached: the API server's, and any other that is wanted.

No proxy of Services runs here, so an address is one of the machine's own while it is needed, and
what comes there is handed on.
"""

import asyncio
import errno
import ipaddress
import os
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from tests.e2e.kube.api import Api, ApiError
from tests.e2e.kube.background import Background

ADDRESS, PORT = "10.96.0.1", 443
"""What the API server takes for itself of its range, and what the kubelet tells containers."""

NODE_ADDRESS = "10.96.1.1"
"""The node's own, where one is needed that others may use: loopback's is nobody else's."""

_OURS = ipaddress.ip_network("10.96.0.0/23")
"""The range of the Services, and the node's address behind it."""

Place = tuple[str, int]

_NEW, _DELETE = 20, 21  # RTM_NEWADDR, RTM_DELADDR
_REQUEST, _ACKNOWLEDGE, _CREATE = 0x1, 0x4, 0x400
_LOCAL = 2  # IFA_LOCAL
_MUCH = 1 << 16


@contextmanager
def forwarded(port: int) -> Iterator[None]:
    """Hand what comes to the Service `kubernetes` on to the API server's port on loopback."""
    with _handed_on((ADDRESS, PORT), lambda: ("127.0.0.1", port)):
        yield


@contextmanager
def proxied(api: Api, name: str, namespace: str) -> Iterator[Place]:
    """Hand what comes to a Service of one port on to a pod behind it that is ready.

    Yields:
        The Service's address and port.
    """
    spec = api.get("Service", name, namespace)["spec"]
    place = (str(spec["clusterIP"]), int(spec["ports"][0]["port"]))
    with _handed_on(place, lambda: _ready(api, name, namespace)):
        yield place


def _ready(api: Api, name: str, namespace: str) -> Place:
    where = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    found = api.request("GET", f"{where}?labelSelector=kubernetes.io/service-name={name}")
    for each in found["items"]:
        for endpoint in each["endpoints"] or ():
            if endpoint["conditions"].get("ready"):
                return endpoint["addresses"][0], each["ports"][0]["port"]
    raise ConnectionRefusedError(f"no pod behind {name} in {namespace} is ready")


@contextmanager
def _handed_on(place: Place, to: Callable[[], Place]) -> Iterator[None]:
    background = Background()
    try:
        with had(place[0]):
            server = background.do(_serve(place, to))
            try:
                yield
            finally:
                background.do(_end(server))
    finally:
        background.stop()


@contextmanager
def had(address: str) -> Iterator[None]:
    """Give the machine an address for a while. Nothing happens where it has it."""
    with suppress(FileExistsError):
        _change(_NEW, address)
    try:
        yield
    finally:
        _remove(address)


def remove_all() -> None:
    """Take every address away that was had here. Nothing happens where there is none."""
    for address in _OURS:
        _remove(str(address))


def _remove(address: str) -> None:
    try:
        _change(_DELETE, address)
    except OSError as error:
        if error.errno != errno.EADDRNOTAVAIL:
            raise


def _change(kind: int, address: str) -> None:
    """Send the kernel one message of rtnetlink(7) about an address, on `lo`.

    Raises:
        OSError: the kernel refuses.
    """
    packed = socket.inet_aton(address)
    body = struct.pack("=BBBBi", socket.AF_INET, 32, 0, 0, socket.if_nametoindex("lo"))
    body += struct.pack("=HH", 4 + len(packed), _LOCAL) + packed
    flags = _REQUEST | _ACKNOWLEDGE | (_CREATE if kind == _NEW else 0)
    head = struct.pack("=IHHII", 16 + len(body), kind, flags, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.send(head + body)
        # An acknowledgement is an error, number 0 for none, behind a head.
        (number,) = struct.unpack_from("=i", kernel.recv(_MUCH), 16)
    if number:
        raise OSError(-number, f"{address} on lo: {os.strerror(-number)}")


async def _serve(place: Place, to: Callable[[], Place]) -> asyncio.Server:
    async def hand_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(*await asyncio.to_thread(to))
        except (OSError, ApiError):
            writer.close()  # nobody is there
            return
        await asyncio.gather(_copy(reader, back), _copy(there, writer))

    return await asyncio.start_server(hand_on, *place)


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
