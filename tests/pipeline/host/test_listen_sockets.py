"""Tests of the address families on which a listen address is served."""

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from config.value_types import ListenAddress
from pipeline.host import listen_sockets
from pipeline.host.listen_sockets import bind

IPV4, IPV6 = "127.0.0.1", "::1"


def _has_ipv6() -> bool:
    try:
        with socket.create_server((IPV6, 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


needs_ipv6 = pytest.mark.skipif(not _has_ipv6(), reason="this machine has no IPv6")


def _answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=5).close()
    except ConnectionRefusedError:
        return False
    return True


@needs_ipv6
@pytest.mark.parametrize(
    ("host", "served"),
    [
        ("", {IPV4, IPV6}),
        ("::", {IPV4, IPV6}),
        ("0:0:0:0:0:0:0:0", {IPV4, IPV6}),
        ("0.0.0.0", {IPV4}),  # noqa: S104 - it is tested
        (IPV4, {IPV4}),
        (IPV6, {IPV6}),
    ],
)
async def test_r17_the_unspecified_ipv6_address_serves_both_families(
    host: str, served: set[str]
) -> None:
    """R17: `[::]:9400` serves IPv4 too, as in programs in Go; `0.0.0.0` serves only IPv4."""
    address = ListenAddress.parse(f"[{host}]:0" if ":" in host else f"{host}:0")
    with closing(await bind(address)) as listening:
        port = listening.getsockname()[1]
        assert {each for each in (IPV4, IPV6) if _answers(each, port)} == served


@pytest.mark.parametrize("host", ["", "::"])
@pytest.mark.parametrize("code", [errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT])
async def test_r17_without_ipv6_all_ipv4_addresses_are_served(
    host: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R17: a machine without IPv6 refuses the IPv6 socket. IPv4 is served nevertheless."""
    create = socket.create_server

    def create_without_ipv6(address: tuple[str, int], **options: int) -> socket.socket:
        if options.get("family") == socket.AF_INET6:
            raise OSError(code, "no IPv6")
        return create(address, backlog=options["backlog"])

    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: True)
    monkeypatch.setattr(socket, "create_server", create_without_ipv6)
    with closing(await bind(ListenAddress(host, 0))) as listening:
        assert listening.family == socket.AF_INET
        assert _answers(IPV4, listening.getsockname()[1])


SYSTEMD = ListenAddress.parse("systemd")


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Yield a listening socket that systemd passed to this process."""
    with socket.create_server((IPV4, 0)) as listening:
        monkeypatch.setattr(listen_sockets, "_FIRST_PASSED", listening.fileno())
        monkeypatch.setenv("LISTEN_PID", str(os.getpid()))
        monkeypatch.setenv("LISTEN_FDS", "1")
        yield listening


async def test_the_socket_of_systemd_is_used_and_can_be_used_again(passed: socket.socket) -> None:
    """A reload may close the listener and open it again."""
    port = passed.getsockname()[1]
    for _ in range(2):
        with closing(await bind(SYSTEMD)) as listening:
            assert listening.getsockname()[1] == port
            with socket.create_connection((IPV4, port), timeout=5):
                listening.accept()[0].close()


@pytest.mark.parametrize(("name", "value"), [("LISTEN_PID", "1"), ("LISTEN_FDS", "")])
@pytest.mark.usefixtures("passed")
async def test_without_a_socket_for_this_process_the_error_says_so(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(OSError, match="systemd passed no socket; start podgpu by a socket unit"):
        await bind(SYSTEMD)


@pytest.mark.usefixtures("passed")
async def test_a_socket_of_systemd_that_is_not_tcp_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        monkeypatch.setattr(listen_sockets, "_FIRST_PASSED", other.fileno())
        with pytest.raises(OSError, match="does not listen for TCP; write ListenStream="):
            await bind(SYSTEMD)
