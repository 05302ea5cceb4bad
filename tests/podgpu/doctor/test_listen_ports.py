"""The check `http.port`."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from config.value_types import ListenAddress
from pipeline.component.contracts import HttpRequest, HttpResponse
from pipeline.component.findings import Verdict
from pipeline.diagnostics import port_owner
from pipeline.diagnostics.port_owner import _node_of_title
from pipeline.diagnostics.process_lookup import FileOwner, find_port_owner
from pipeline.http.listener_registry import ListenerRegistry
from pipeline.status_page.document_builder import status_of
from podgpu.doctor import listen_ports
from tests.pipeline.status_page.html_reader import page as page_of
from tests.pipeline.status_page.scenes import two_gpus
from tests.podgpu.doctor.silent_server import silent_server
from tests.podgpu.doctor.support import (
    PODGPU,
    context,
    free_port,
    in_this_container,
    is_bad,
    of,
    page,
    process,
    serving,
    write,
)


def listening_on(port: int) -> str:
    return f'sinks: {{m: {{kind: prometheus, listen: "127.0.0.1:{port}"}}}}\n'


async def test_a_free_port_is_ok_and_stays_free(tmp_path: Path) -> None:
    port = free_port()
    for folder in ("a", "b"):
        found = await listen_ports.examine(context(tmp_path / folder, listening_on(port)))
        assert of(found, "http.port").verdict is Verdict.OK


OTHERS = [
    (b'DCGM_FI_DEV_GPU_UTIL{gpu="0"} 1\n', "dcgm-exporter"),
    (b"# HELP node_load1 a\nnode_cpu_seconds_total 1\n", "node_exporter"),
    (b"# HELP up a\n# TYPE up gauge\nup 1\n", "an exporter for Prometheus"),
    (b"<html>", "an HTTP server"),
]


@pytest.mark.parametrize(("body", "description"), OTHERS)
async def test_another_exporter_on_the_port_is_named(
    tmp_path: Path, body: bytes, description: str
) -> None:
    def respond(path: str) -> bytes:
        return page(body if path == "/metrics" else b"hello")

    async with serving(respond) as port:
        found = await listen_ports.examine(context(tmp_path, listening_on(port)))
    is_bad(
        of(found, "http.port"), "failure", f"{description} listens there", "remove the other one"
    )


@pytest.mark.slow
async def test_a_server_that_does_not_speak_http_is_a_failure(tmp_path: Path) -> None:
    async with serving(lambda _: b"") as port:
        found = await listen_ports.examine(context(tmp_path, listening_on(port)))
    is_bad(of(found, "http.port"), "failure", "does not speak HTTP", "set another listen")


SILENT_SERVERS = {
    "this container's": (
        "a podgpu of this container listens there, and does not respond",
        "read its log",
    ),
    "another container's": ("in use: a server that accepts connections", "remove the other one"),
    "unknown": (
        "in use: a server that accepts",
        "if it is podgpu, it hangs: restart it",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("owner", SILENT_SERVERS)
async def test_a_silent_server_is_described_by_its_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: str
) -> None:
    monkeypatch.setattr(port_owner, "_TIMEOUT", 0.2)
    with silent_server() as port:
        ctx = context(tmp_path, listening_on(port))
        write(ctx.roots.proc / "net/tcp", f"head\n0: 0:{port:04X} 0:0 0A 0:0 00:0 0 0 0 4711 1\n")
        process(ctx.roots.proc, 7, *PODGPU)
        if owner != "unknown":
            root = tmp_path if owner == "another container's" else None
            opened = in_this_container(ctx.roots.proc, 7, root)
            (opened / "3").symlink_to("socket:[4711]")
        found = await listen_ports.examine(ctx)
    is_bad(of(found, "http.port"), "failure", *SILENT_SERVERS[owner])
    assert ("remove the other one" in found[0].fix) == (owner != "this container's")


async def test_podgpu_is_recognised_by_its_responses(tmp_path: Path) -> None:
    async def metrics(_: HttpRequest) -> HttpResponse:
        return HttpResponse(b"DCGM_FI_DEV_GPU_UTIL 1\n")

    def ok() -> tuple[bool, str]:
        return True, "ok"

    listeners = ListenerRegistry(node="gpu-7", version="1", health=ok, ready=ok)
    async with listeners.listen(ListenAddress("127.0.0.1", 0)) as mounts:
        mounts.mount("/metrics", metrics, title="metrics")
        text = listening_on(mounts.port)
        found = await listen_ports.examine(context(tmp_path / "a", f"node: gpu-7\n{text}"))
        others = await listen_ports.examine(context(tmp_path / "b", f"node: gpu-8\n{text}"))
    finding = of(found, "http.port")
    assert finding.verdict is Verdict.OK
    assert finding.observed == "podgpu on gpu-7 listens there"
    assert of(found, "daemon.status").verdict is Verdict.SKIPPED, "it has no status page"
    observed = "podgpu on gpu-7 listens there, but this node is gpu-8"
    is_bad(of(others, "http.port"), "failure", observed, "remove the other one")


PODGPU_HEADER = "Server: podgpu"


def test_without_a_status_the_node_is_read_from_the_first_page() -> None:
    """The status page has the node in its title, as the plain first page does (see above)."""
    status = status_of(two_gpus())
    assert status.node
    assert _node_of_title(page_of(status, ()).encode()) == status.node


async def test_the_node_is_read_from_a_status_of_several_mib(tmp_path: Path) -> None:
    body = b'{"x": "' + b"y" * (3 << 20) + b'", "node": "gpu-9"}'

    async with serving(lambda path: page(body * (path == "/status"), PODGPU_HEADER)) as port:
        found = await listen_ports.examine(context(tmp_path, f"node: gpu-1\n{listening_on(port)}"))
    is_bad(of(found, "http.port"), "failure", "podgpu on gpu-9", "remove the other one")


async def test_the_node_is_read_from_the_status(tmp_path: Path) -> None:
    def respond(path: str) -> bytes:
        return page(b'{"node": "gpu-9"}' if path == "/status" else b"", PODGPU_HEADER)

    async with serving(respond) as port:
        found = await listen_ports.examine(context(tmp_path, f"node: gpu-1\n{listening_on(port)}"))
    is_bad(of(found, "http.port"), "failure", "podgpu on gpu-9", "remove the other one")


OWNERS = [
    ("this container's", "ok", "podgpu listens there"),
    ("another container's", "warning", "its process is not in this container"),
    ("not visible", "warning", "its process is not in this container"),
    ("unknown", "ok", "podgpu listens there"),
]


@pytest.mark.parametrize("row", OWNERS, ids=lambda row: row[0])
async def test_a_podgpu_on_the_port_is_ok_unless_it_is_in_another_container(
    tmp_path: Path, row: tuple[str, str, str]
) -> None:
    owner, verdict, observed = row
    async with serving(lambda _: page(b"", PODGPU_HEADER, status="401 Unauthorized")) as port:
        ctx = context(tmp_path, listening_on(port))
        write(
            ctx.roots.proc / "net/tcp6",
            "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt uid\n"
            f"0: 0:{port:04X} 0:0000 0A 0:0 00:0 0 0 0 4711 1\n"
            f"1: 0:{port:04X} 0:0000 01 0:0 00:0 0 0 0 4712 1\n",
        )
        if owner != "not visible":
            process(ctx.roots.proc, 7, *PODGPU)
        if owner in {"this container's", "another container's"}:
            root = tmp_path if owner == "another container's" else None
            opened = in_this_container(ctx.roots.proc, 7, root)
            (opened / "3").symlink_to("socket:[4711]")
        finding = of(await listen_ports.examine(ctx), "http.port")
    assert (finding.verdict.value, observed in finding.observed) == (verdict, True), finding


def test_only_a_listening_socket_counts_as_the_owner_of_a_port(tmp_path: Path) -> None:
    """Two sockets have the port: a connection of podgpu, and a listener of another process."""
    row = "1: 0:24B8 0:0000 {} 0:0 00:0 0 0 0 {} 1\n"
    write(tmp_path / "net/tcp", "head\n" + row.format("01", 1) + row.format("0A", 2))
    process(tmp_path, 7, *PODGPU)
    (in_this_container(tmp_path, 7) / "3").symlink_to("socket:[1]")
    assert find_port_owner(0x24B8, tmp_path) is FileOwner.OTHER


@pytest.mark.slow
async def test_a_server_that_responds_byte_by_byte_does_not_delay_other_ports(
    tmp_path: Path,
) -> None:
    stop = asyncio.Event()

    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            while not stop.is_set():
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.05)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    port, free = server.sockets[0].getsockname()[1], free_port()
    text = listening_on(port).replace(
        "}}", f'}}, n: {{kind: prometheus, listen: "127.0.0.1:{free}"}}}}'
    )
    async with server:
        found = await listen_ports.examine(context(tmp_path, text, deadline=1.0))
        stop.set()
        await asyncio.sleep(0.2)
    assert found[1].verdict is Verdict.OK
    is_bad(found[0], "failure", "takes too long", "remove the other one")


async def test_control_characters_in_a_server_header_are_removed(tmp_path: Path) -> None:
    async with serving(lambda _: page(b"", "Server: \x1b[2J\x1b]0;x\x07evil")) as port:
        finding = of(await listen_ports.examine(context(tmp_path, listening_on(port))), "http.port")
    assert "evil" in finding.observed
    assert finding.observed.isprintable()


async def test_an_address_of_another_machine_is_a_failure(tmp_path: Path) -> None:
    text = 'sinks: {m: {kind: prometheus, listen: "192.0.2.1:9400"}}\n'
    found = await listen_ports.examine(context(tmp_path, text))
    is_bad(of(found, "http.port"), "failure", "no such address", "set another listen")


async def test_each_address_is_checked_once_and_without_one_it_is_skipped(tmp_path: Path) -> None:
    assert (await listen_ports.examine(context(tmp_path / "a")))[0].verdict is Verdict.SKIPPED
    port = free_port()
    text = f'{listening_on(port)}http: {{listen: "127.0.0.1:{port}"}}\n'
    assert len(await listen_ports.examine(context(tmp_path / "b", text))) == 1
