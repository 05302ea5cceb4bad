"""`http.port`, provoked."""

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
from pipeline.http.listener_registry import Listeners
from pipeline.status_page.document_builder import status_of
from pipeline.status_page.html.page import page as page_of
from podgpu.doctor import listen_ports
from tests.pipeline.status_page.scenes import two_gpus
from tests.podgpu.doctor.silent import silent
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


def on(port: int) -> str:
    return f'sinks: {{m: {{kind: prometheus, listen: "127.0.0.1:{port}"}}}}\n'


async def test_a_free_port_is_well_and_stays_free(tmp_path: Path) -> None:
    port = await free_port()
    for folder in ("a", "b"):
        found = await listen_ports.examine(context(tmp_path / folder, on(port)))
        assert of(found, "http.port").verdict is Verdict.OK


OTHERS = [
    (b'DCGM_FI_DEV_GPU_UTIL{gpu="0"} 1\n', "dcgm-exporter"),
    (b"# HELP node_load1 a\nnode_cpu_seconds_total 1\n", "node_exporter"),
    (b"# HELP up a\n# TYPE up gauge\nup 1\n", "an exporter for Prometheus"),
    (b"<html>", "an HTTP server"),
]


@pytest.mark.parametrize(("body", "who"), OTHERS)
async def test_another_exporter_on_the_port_is_named(tmp_path: Path, body: bytes, who: str) -> None:
    def answer(path: str) -> bytes:
        return page(body if path == "/metrics" else b"hello")

    async with serving(answer) as port:
        found = await listen_ports.examine(context(tmp_path, on(port)))
    is_bad(of(found, "http.port"), "failure", f"{who} listens there", "remove the other one")


async def test_who_speaks_no_http_is_a_stranger(tmp_path: Path) -> None:
    async with serving(lambda _: b"") as port:
        found = await listen_ports.examine(context(tmp_path, on(port)))
    is_bad(of(found, "http.port"), "failure", "does not speak HTTP", "set another listen")


SILENT = {
    "ours": ("a podgpu of this container listens there, and does not respond", "read its log"),
    "another container's": ("in use: a server that accepts connections", "remove the other one"),
    "of one who can't be looked into": (
        "in use: a server that accepts",
        "if it is podgpu, it hangs: restart it",
    ),
}


@pytest.mark.parametrize("whose", SILENT)
async def test_who_says_nothing_is_not_a_stranger_by_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    monkeypatch.setattr(port_owner, "_TIMEOUT", 0.2)
    with silent() as port:
        ctx = context(tmp_path, on(port))
        write(ctx.roots.proc / "net/tcp", f"head\n0: 0:{port:04X} 0:0 0A 0:0 00:0 0 0 0 4711 1\n")
        process(ctx.roots.proc, 7, *PODGPU)
        if whose != "of one who can't be looked into":
            root = tmp_path if whose == "another container's" else None
            opened = in_this_container(ctx.roots.proc, 7, root)
            (opened / "3").symlink_to("socket:[4711]")
        found = await listen_ports.examine(ctx)
    is_bad(of(found, "http.port"), "failure", *SILENT[whose])
    assert ("remove the other one" in found[0].fix) == (whose != "ours")


async def test_podgpu_itself_is_recognised_by_its_answers(tmp_path: Path) -> None:
    async def metrics(_: HttpRequest) -> HttpResponse:
        return HttpResponse(b"DCGM_FI_DEV_GPU_UTIL 1\n")

    def well() -> tuple[bool, str]:
        return True, "ok"

    listeners = Listeners(node="gpu-7", version="1", health=well, ready=well)
    async with listeners.listen(ListenAddress("127.0.0.1", 0)) as mounts:
        mounts.mount("/metrics", metrics, title="metrics")
        text = on(mounts.port)
        found = await listen_ports.examine(context(tmp_path / "a", f"node: gpu-7\n{text}"))
        others = await listen_ports.examine(context(tmp_path / "b", f"node: gpu-8\n{text}"))
    given_out = of(found, "http.port")
    assert given_out.verdict is Verdict.OK
    assert given_out.observed == "podgpu on gpu-7 listens there"
    assert of(found, "daemon.status").verdict is Verdict.SKIPPED, "it has no such page"
    saw = "podgpu on gpu-7 listens there, but this node is gpu-8"
    is_bad(of(others, "http.port"), "failure", saw, "remove the other one")


PODGPU_ANSWERS = "Server: podgpu"


def test_its_first_page_names_the_node_where_its_status_does_not() -> None:
    """The page as it is made; without one of its own, as the daemon has it then (see above)."""
    status = status_of(two_gpus())
    assert status.node
    assert _node_of_title(page_of(status, ()).encode()) == status.node


async def test_a_status_of_a_large_node_names_it_too(tmp_path: Path) -> None:
    body = b'{"x": "' + b"y" * (3 << 20) + b'", "node": "gpu-9"}'

    async with serving(lambda path: page(body * (path == "/status"), PODGPU_ANSWERS)) as port:
        found = await listen_ports.examine(context(tmp_path, f"node: gpu-1\n{on(port)}"))
    is_bad(of(found, "http.port"), "failure", "podgpu on gpu-9", "remove the other one")


async def test_its_status_names_the_node_where_the_first_page_does_not(tmp_path: Path) -> None:
    def answer(path: str) -> bytes:
        return page(b'{"node": "gpu-9"}' if path == "/status" else b"", PODGPU_ANSWERS)

    async with serving(answer) as port:
        found = await listen_ports.examine(context(tmp_path, f"node: gpu-1\n{on(port)}"))
    is_bad(of(found, "http.port"), "failure", "podgpu on gpu-9", "remove the other one")


WHOSE = [
    ("ours", "ok", "podgpu listens there"),
    ("another container's", "warning", "its process is not in this container"),
    ("nobody's who can be seen", "warning", "its process is not in this container"),
    ("of one who can't be looked into", "ok", "podgpu listens there"),
]


@pytest.mark.parametrize("row", WHOSE, ids=lambda row: row[0])
async def test_a_podgpu_on_the_port_is_this_container_s_or_another_s(
    tmp_path: Path, row: tuple[str, str, str]
) -> None:
    whose, verdict, saw = row
    async with serving(lambda _: page(b"", PODGPU_ANSWERS, status="401 Unauthorized")) as port:
        ctx = context(tmp_path, on(port))
        write(
            ctx.roots.proc / "net/tcp6",
            "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt uid\n"
            f"0: 0:{port:04X} 0:0000 0A 0:0 00:0 0 0 0 4711 1\n"
            f"1: 0:{port:04X} 0:0000 01 0:0 00:0 0 0 0 4712 1\n",
        )
        if whose != "nobody's who can be seen":
            process(ctx.roots.proc, 7, *PODGPU)
        if whose in {"ours", "another container's"}:
            root = tmp_path if whose == "another container's" else None
            opened = in_this_container(ctx.roots.proc, 7, root)
            (opened / "3").symlink_to("socket:[4711]")
        given_out = of(await listen_ports.examine(ctx), "http.port")
    assert (given_out.verdict.value, saw in given_out.observed) == (verdict, True), given_out


def test_a_connection_is_no_listener(tmp_path: Path) -> None:
    """Of two rows with that port, the one that listens counts."""
    row = "1: 0:24B8 0:0000 {} 0:0 00:0 0 0 0 {} 1\n"
    write(tmp_path / "net/tcp", "head\n" + row.format("01", 1) + row.format("0A", 2))
    process(tmp_path, 7, *PODGPU)
    (in_this_container(tmp_path, 7) / "3").symlink_to("socket:[1]")
    assert find_port_owner(0x24B8, tmp_path) is FileOwner.OTHER


async def test_who_answers_by_the_byte_costs_a_deadline_and_no_other_port(tmp_path: Path) -> None:
    enough = asyncio.Event()

    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            while not enough.is_set():
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.05)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    port, free = server.sockets[0].getsockname()[1], await free_port()
    text = on(port).replace("}}", f'}}, n: {{kind: prometheus, listen: "127.0.0.1:{free}"}}}}')
    async with server:
        found = await listen_ports.examine(context(tmp_path, text, deadline=1.0))
        enough.set()
        await asyncio.sleep(0.2)
    assert found[1].verdict is Verdict.OK
    is_bad(found[0], "failure", "takes too long", "remove the other one")


async def test_what_a_server_calls_itself_is_made_fit_for_a_terminal(tmp_path: Path) -> None:
    async with serving(lambda _: page(b"", "Server: \x1b[2J\x1b]0;x\x07evil")) as port:
        given_out = of(await listen_ports.examine(context(tmp_path, on(port))), "http.port")
    assert "evil" in given_out.observed
    assert given_out.observed.isprintable()


async def test_an_address_that_is_not_this_machine_s_is_a_failure(tmp_path: Path) -> None:
    text = 'sinks: {m: {kind: prometheus, listen: "192.0.2.1:9400"}}\n'
    found = await listen_ports.examine(context(tmp_path, text))
    is_bad(of(found, "http.port"), "failure", "no such address", "set another listen")


async def test_an_address_is_looked_at_once_and_none_is_no_fault(tmp_path: Path) -> None:
    assert (await listen_ports.examine(context(tmp_path / "a")))[0].verdict is Verdict.SKIPPED
    port = await free_port()
    text = f'{on(port)}http: {{listen: "127.0.0.1:{port}"}}\n'
    assert len(await listen_ports.examine(context(tmp_path / "b", text))) == 1
