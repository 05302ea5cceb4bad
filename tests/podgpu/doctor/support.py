"""The files of a node in a folder, contexts for checks, and assertions on findings."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

from config.loader import parse
from config.schema import Config
from pipeline.component.findings import Finding, Verdict
from pipeline.component.registry import RegisteredKinds
from pipeline.diagnostics.context import DoctorContext, Roots
from tests.e2e.processes import free_ports

VERSION = "580.95.05"
HOST_PIDS = "pid:[4026531836]"
NVML = "sources: {gpus: {kind: nvml}}\n"
LINES = "sinks: {lines: {kind: jsonl}}\n"


def config(text: str) -> Config:
    if "sources:" not in text:
        text += NVML
    if "sinks:" not in text:
        text += LINES
    return parse(text, RegisteredKinds(), env={}, origin="test")


def write(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def healthy(folder: Path, gpus: int = 1) -> Roots:
    """Write the files of a node that has a driver and GPUs."""
    roots = Roots(folder / "proc", folder / "sys", folder / "dev", folder / "host")
    write(
        roots.proc / "driver/nvidia/version",
        f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {VERSION}  Release Build\n",
    )
    for index in range(gpus):
        place = f"0000:{6 + index:02x}:00.0"
        write(
            roots.proc / f"driver/nvidia/gpus/{place}/information",
            f"Model: \t\t NVIDIA H100\nDevice Minor: \t {index}\n",
        )
        write(roots.sys / f"bus/pci/devices/{place}/vendor", "0x10de\n")
        write(roots.sys / f"bus/pci/devices/{place}/class", "0x030200\n")
        write(roots.dev / f"nvidia{index}")
    write(roots.sys / "module/nvidia/version", f"{VERSION}\n")
    write(roots.dev / "nvidiactl")
    write(roots.proc / "stat", "cpu 1 2 3\nbtime 1700000000\n")
    write(roots.proc / "self/mountinfo", "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n")
    namespace = roots.proc / "self/ns/pid"
    namespace.parent.mkdir(parents=True)
    namespace.symlink_to(HOST_PIDS)
    return roots


def context(folder: Path, text: str = "", **more: Any) -> DoctorContext:
    """Return the context of a healthy node; `more` are attributes of the context."""
    roots = more.pop("roots", None) or healthy(folder / "node")
    environ: Mapping[str, str] = more.pop("environ", {"NVIDIA_VISIBLE_DEVICES": "all"})
    return DoctorContext(
        config(text),
        roots=roots,
        environ=environ,
        synchronised=more.pop("synchronised", lambda: True),
        **more,
    )


def process(proc: Path, number: int, *words: str) -> None:
    write(proc / str(number) / "cmdline", "".join(f"{word}\0" for word in words))


def in_this_container(proc: Path, number: int, root: Path | None = None) -> Path:
    """Put a process into this container, or into one with another root; return its fd folder."""
    here = proc / "self" / "root"
    if not here.is_symlink():
        here.parent.mkdir(parents=True, exist_ok=True)
        here.symlink_to(proc)
    (proc / str(number) / "root").symlink_to(root or proc)
    opened = proc / str(number) / "fd"
    opened.mkdir()
    return opened


def of(findings: Iterable[Finding], check: str) -> Finding:
    """Return the only finding of a check."""
    found = [finding for finding in findings if finding.check == check]
    assert len(found) == 1, [*findings]
    return found[0]


def verdicts(findings: Iterable[Finding]) -> dict[str, str]:
    """Return the verdict of each check; of several, the worst."""
    order = [Verdict.OK, Verdict.SKIPPED, Verdict.WARNING, Verdict.FAILURE]
    found: dict[str, str] = {}
    for finding in sorted(findings, key=lambda each: order.index(each.verdict)):
        found[finding.check] = finding.verdict.value
    return found


def is_bad(finding: Finding, verdict: str, observed: str, fix: str) -> None:
    """Assert a finding's verdict, and parts of its texts."""
    assert finding.verdict.value == verdict, finding
    assert observed in finding.observed, finding.observed
    assert fix in finding.fix, finding.fix


def unix_socket(path: Path, *, listens: bool = True) -> "closing[socket.socket]":
    """Make a Unix socket at a path."""
    made = socket.socket(socket.AF_UNIX)
    path.parent.mkdir(parents=True, exist_ok=True)
    made.bind(os.fspath(path))
    if listens:
        made.listen()
    return closing(made)


@asynccontextmanager
async def serving(respond: Callable[[str], bytes]) -> AsyncIterator[int]:
    """Respond to the request of each connection, and close it; wait for all at the end."""
    tasks: set[asyncio.Task[Any]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
            writer.write(respond(path))
            await writer.drain()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield int(server.sockets[0].getsockname()[1])
    if tasks:
        await asyncio.wait(tasks, timeout=5)


def page(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    """Return an HTTP response."""
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(head).encode() + body


def free_port() -> int:
    """Return a port that no server listens on."""
    return free_ports(1)[0]


PODGPU = ("/opt/podgpu/bin/python3.11", "/opt/podgpu/bin/podgpu", "run", "-c", "a.yaml")
