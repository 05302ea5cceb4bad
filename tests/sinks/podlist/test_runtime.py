"""A podgpu that reads the file that it writes: it does not read its own entries as claims."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from config.schema import Component, Config
from config.value_types import Duration, ListenAddress
from pipeline.component.contracts import Source, SourceContext
from pipeline.component.registry import build_source
from pipeline.model import Claim, DevicesDiscovered
from pipeline.runtime import source_set
from pipeline.runtime.runtime import Runtime
from sinks.podlist.options import Options as SinkOptions
from sinks.prometheus.options import Options as PageOptions
from sources.podlist.options import Options as SourceOptions
from tests.e2e.processes import free_ports
from tests.sinks.podlist.support import (
    GPUS,
    entries,
    file_state,
    held,
    podgpu_entries,
    until,
    uuids,
)
from tests.support.components import Options, ScriptedSource
from tests.support.http import Client
from tests.support.nodes import claims, uuid_of

THEIRS = {"name": "theirs", "namespace": "ml", "container": "main", "gpu_list": [uuid_of(2)]}


class Kubelet:
    """A source that has the GPUs and emits the claims that the test sets."""

    def __init__(self) -> None:
        self._claims: asyncio.Queue[tuple[Claim, ...]] = asyncio.Queue()

    def reports(self, *held: Claim) -> None:
        self._claims.put_nowait(held)

    async def run(self, ctx: SourceContext) -> None:
        await ctx.emit(DevicesDiscovered(GPUS))
        while True:
            await ctx.emit(claims(*await self._claims.get()))


class RunningPodgpu:
    """A runtime, its metrics page and its file."""

    def __init__(self, path: Path, port: int) -> None:
        self.path = path
        self.port = port
        self.kubelet = Kubelet()

    async def page(self) -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            return (await Client(reader, writer).get("/metrics"))[1]
        finally:
            writer.close()
            await writer.wait_closed()

    async def wait_for_holders(self, *expected: str) -> None:
        """Wait until the page has these holders as `pod source`."""
        async with asyncio.timeout(5):
            while await self.holders() != sorted(expected):
                await asyncio.sleep(0.005)

    async def holders(self) -> list[str]:
        lines = re.findall(
            r"^podgpu_device_holder_info\{(.*)\} 1$", await self.page(), re.MULTILINE
        )
        labels = [dict(re.findall(r'(\w+)="([^"]*)"', line)) for line in lines]
        return sorted(f"{label['pod']} {label['source']}" for label in labels)


@asynccontextmanager
async def podgpu(
    path: Path, monkeypatch: pytest.MonkeyPatch, write: str = "rename"
) -> AsyncIterator[RunningPodgpu]:
    [port] = free_ports(1)
    daemon = RunningPodgpu(path, port)

    def build(kind: str, options: msgspec.Struct) -> Source:
        return (
            ScriptedSource(daemon.kubelet.run)
            if kind == "scripted"
            else build_source(kind, options)
        )

    monkeypatch.setattr(source_set, "build_source", build)
    reading = SourceOptions(path=path, interval=Duration.parse("1s"))
    sinks = {
        "podlist": SinkOptions(path=path, write=write),  # type: ignore[arg-type]
        "prometheus": PageOptions(listen=ListenAddress.parse(f"127.0.0.1:{port}")),
    }
    config = Config(
        node="node-1",
        sources={
            "kubelet": Component(role="source", name="kubelet", kind="scripted", options=Options()),
            "lists": Component(role="source", name="lists", kind="podlist", options=reading),
        },
        sinks={
            kind: Component(role="sink", name=kind, kind=kind, options=options)
            for kind, options in sinks.items()
        },
    )
    stop = asyncio.Event()
    running = asyncio.create_task(Runtime(config).run(stop))
    try:
        yield daemon
    finally:
        stop.set()
        async with asyncio.timeout(10):
            await running


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "podlist.json"


@pytest.mark.slow
@pytest.mark.parametrize("write", ["rename", "inplace"])
async def test_a_container_that_stopped_is_no_longer_listed(
    path: Path, monkeypatch: pytest.MonkeyPatch, write: str
) -> None:
    path.write_text(json.dumps([THEIRS]))
    async with podgpu(path, monkeypatch, write) as daemon:
        daemon.kubelet.reports(held("a", 0), held("b", 1))
        await until(lambda: podgpu_entries(path) == [f"a={uuids(0)}", f"b={uuids(1)}"])
        await daemon.wait_for_holders("a kubelet", "b kubelet", "theirs lists")
        daemon.kubelet.reports(held("b", 1))
        await until(lambda: podgpu_entries(path) == [f"b={uuids(1)}"])
        await daemon.wait_for_holders("b kubelet", "theirs lists")
        daemon.kubelet.reports()
        await until(lambda: podgpu_entries(path) == [])
        await daemon.wait_for_holders("theirs lists")
        assert entries(path) == [THEIRS]


@pytest.mark.slow
async def test_the_reader_and_the_writer_do_not_trigger_each_other(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with podgpu(path, monkeypatch) as daemon:
        daemon.kubelet.reports(held("a", 0))
        await until(lambda: podgpu_entries(path) == [f"a={uuids(0)}"])
        before, start = file_state(path), await events(daemon)
        await asyncio.sleep(1.5)
        assert file_state(path) == before
        # The reader confirms its empty list each second.
        assert await events(daemon) - start <= 3


async def events(daemon: RunningPodgpu) -> float:
    [count] = re.findall(
        r'^podgpu_source_events_total\{.*source="lists".*\} (\S+)$',
        await daemon.page(),
        re.MULTILINE,
    )
    return float(count)


async def test_a_claim_of_another_writer_is_valid_and_not_written_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with podgpu(path, monkeypatch) as daemon:
        daemon.kubelet.reports(held("a", 0))
        await until(lambda: podgpu_entries(path) == [f"a={uuids(0)}"])
        path.write_text(json.dumps([*entries(path), THEIRS]))
        await daemon.wait_for_holders("a kubelet", "theirs lists")
        await until(lambda: podgpu_entries(path) == [f"a={uuids(0)}"])
        # The kubelet's claim on a whole device takes precedence over the file's.
        daemon.kubelet.reports(held("theirs", 2), held("a", 0))
        await daemon.wait_for_holders("a kubelet", "theirs kubelet")


async def test_a_stop_leaves_the_file_and_the_next_start_takes_it_over(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with podgpu(path, monkeypatch) as daemon:
        daemon.kubelet.reports(held("a", 0), held("b", 1))
        await until(lambda: podgpu_entries(path) == [f"a={uuids(0)}", f"b={uuids(1)}"])
    assert podgpu_entries(path) == [f"a={uuids(0)}", f"b={uuids(1)}"]
    async with podgpu(path, monkeypatch) as daemon:
        daemon.kubelet.reports(held("b", 1))
        await until(lambda: podgpu_entries(path) == [f"b={uuids(1)}"])


@pytest.mark.slow
async def test_a_change_is_written_within_milliseconds(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = []
    async with podgpu(path, monkeypatch) as daemon:
        for turn in range(50):
            start = time.monotonic()
            daemon.kubelet.reports(held(f"pod-{turn}", 0))
            expected = [f"pod-{turn}={uuids(0)}"]
            await until(lambda expected=expected: podgpu_entries(path) == expected)  # type: ignore[misc]
            seconds.append(time.monotonic() - start)
    assert sorted(seconds)[len(seconds) // 2] < 0.1
