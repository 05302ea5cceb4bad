"""Addresses of Services: that of the API server, and others on request.

No kube-proxy runs here. Instead, the machine has the address while it is needed, and connections
are forwarded.
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
"""Address and port of the Service `kubernetes`, which the kubelet sets in containers."""

NODE_ADDRESS = "10.96.1.1"
"""The node's address, for clients that cannot use the loopback address."""

_OURS = ipaddress.ip_network("10.96.0.0/23")
"""The range of Services, and the node's address."""

Place = tuple[str, int]

_NEW, _DELETE = 20, 21  # RTM_NEWADDR, RTM_DELADDR
_REQUEST, _ACKNOWLEDGE, _CREATE = 0x1, 0x4, 0x400
_LOCAL = 2  # IFA_LOCAL
_MUCH = 1 << 16


@contextmanager
def forwarded(port: int) -> Iterator[None]:
    """Forward connections from the Service `kubernetes` to the API server's port on loopback."""
    with _forwarded_to((ADDRESS, PORT), lambda: ("127.0.0.1", port)):
        yield


@contextmanager
def proxied(api: Api, name: str, namespace: str) -> Iterator[Place]:
    """Forward connections from a Service with one port to a ready pod.

    Yields:
        The Service's address and port.
    """
    spec = api.get("Service", name, namespace)["spec"]
    place = (str(spec["clusterIP"]), int(spec["ports"][0]["port"]))
    with _forwarded_to(place, lambda: _ready(api, name, namespace)):
        yield place


def _ready(api: Api, name: str, namespace: str) -> Place:
    where = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    found = api.request("GET", f"{where}?labelSelector=kubernetes.io/service-name={name}")
    for each in found["items"]:
        for endpoint in each["endpoints"] or ():
            if endpoint["conditions"].get("ready"):
                return endpoint["addresses"][0], each["ports"][0]["port"]
    raise ConnectionRefusedError(f"no pod of Service {name} in {namespace} is ready")


@contextmanager
def _forwarded_to(place: Place, to: Callable[[], Place]) -> Iterator[None]:
    background = Background()
    try:
        with with_address(place[0]):
            server = background.do(_serve(place, to))
            try:
                yield
            finally:
                background.do(_end(server))
    finally:
        background.stop()


@contextmanager
def with_address(address: str) -> Iterator[None]:
    """Add an address to the machine for a while, unless it has it."""
    with suppress(FileExistsError):
        _change(_NEW, address)
    try:
        yield
    finally:
        _remove(address)


def remove_all() -> None:
    """Remove all addresses that were added here."""
    for address in _OURS:
        _remove(str(address))


def _remove(address: str) -> None:
    try:
        _change(_DELETE, address)
    except OSError as error:
        if error.errno != errno.EADDRNOTAVAIL:
            raise


def _change(kind: int, address: str) -> None:
    """Send the kernel an rtnetlink(7) message about an address of `lo`.

    Raises:
        OSError: the kernel refuses the change.
    """
    packed = socket.inet_aton(address)
    body = struct.pack("=BBBBi", socket.AF_INET, 32, 0, 0, socket.if_nametoindex("lo"))
    body += struct.pack("=HH", 4 + len(packed), _LOCAL) + packed
    flags = _REQUEST | _ACKNOWLEDGE | (_CREATE if kind == _NEW else 0)
    head = struct.pack("=IHHII", 16 + len(body), kind, flags, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.send(head + body)
        # An acknowledgement is a header and an error number, which is 0 for success.
        (number,) = struct.unpack_from("=i", kernel.recv(_MUCH), 16)
    if number:
        raise OSError(-number, f"{address} on lo: {os.strerror(-number)}")


async def _serve(place: Place, to: Callable[[], Place]) -> asyncio.Server:
    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(*await asyncio.to_thread(to))
        except (OSError, ApiError):
            writer.close()  # no server is reachable
            return
        await asyncio.gather(_copy(reader, back), _copy(there, writer))

    return await asyncio.start_server(forward, *place)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while some := await reader.read(_MUCH):
            writer.write(some)
            await writer.drain()
    except OSError:
        pass  # one end was closed, so close the other
    finally:
        writer.close()


async def _end(server: asyncio.Server) -> None:
    server.close()
    await server.wait_closed()
