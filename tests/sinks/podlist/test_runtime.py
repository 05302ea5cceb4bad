"""A whole podgpu that reads the file which it writes: no word of its own comes back to it."""

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
from tests.sinks.podlist.support import GPUS, entries, held, ours, short, state, until
from tests.support.components import Options, ScriptedSource
from tests.support.http import Client
from tests.support.nodes import claims, uuid_of

THEIRS = {"name": "theirs", "namespace": "ml", "container": "main", "gpu_list": [uuid_of(2)]}


class Kubelet:
    """A source that has the GPUs and says what the test lets it say."""

    def __init__(self) -> None:
        self.said: asyncio.Queue[tuple[Claim, ...]] = asyncio.Queue()

    def says(self, *what: Claim) -> None:
        self.said.put_nowait(what)

    async def run(self, ctx: SourceContext) -> None:
        await ctx.emit(DevicesDiscovered(GPUS))
        while True:
            await ctx.emit(claims(*await self.said.get()))


class Whole:
    """A runtime, its page and its file."""

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

    async def shows(self, *expected: str) -> None:
        """Wait until the page has these as `pod source`."""
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
) -> AsyncIterator[Whole]:
    [port] = free_ports(1)
    whole = Whole(path, port)

    def build(kind: str, options: msgspec.Struct) -> Source:
        return (
            ScriptedSource(whole.kubelet.run) if kind == "scripted" else build_source(kind, options)
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
        yield whole
    finally:
        stop.set()
        async with asyncio.timeout(10):
            await running


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "podlist.json"


@pytest.mark.parametrize("write", ["rename", "inplace"])
async def test_a_container_that_stopped_does_not_stay(
    path: Path, monkeypatch: pytest.MonkeyPatch, write: str
) -> None:
    path.write_text(json.dumps([THEIRS]))
    async with podgpu(path, monkeypatch, write) as whole:
        whole.kubelet.says(held("a", 0), held("b", 1))
        await until(lambda: ours(path) == [f"a={short(0)}", f"b={short(1)}"])
        await whole.shows("a kubelet", "b kubelet", "theirs lists")
        whole.kubelet.says(held("b", 1))
        await until(lambda: ours(path) == [f"b={short(1)}"])
        await whole.shows("b kubelet", "theirs lists")
        whole.kubelet.says()
        await until(lambda: ours(path) == [])
        await whole.shows("theirs lists")
        assert entries(path) == [THEIRS]


async def test_reader_and_writer_come_to_rest(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with podgpu(path, monkeypatch) as whole:
        whole.kubelet.says(held("a", 0))
        await until(lambda: ours(path) == [f"a={short(0)}"])
        before, began = state(path), await events(whole)
        await asyncio.sleep(1.5)
        assert state(path) == before
        # The reader stands by its empty list each second.
        assert await events(whole) - began <= 3


async def events(whole: Whole) -> float:
    [count] = re.findall(
        r'^podgpu_source_events_total\{.*source="lists".*\} (\S+)$',
        await whole.page(),
        re.MULTILINE,
    )
    return float(count)


async def test_another_s_word_is_followed_and_not_repeated(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with podgpu(path, monkeypatch) as whole:
        whole.kubelet.says(held("a", 0))
        await until(lambda: ours(path) == [f"a={short(0)}"])
        path.write_text(json.dumps([*entries(path), THEIRS]))
        await whole.shows("a kubelet", "theirs lists")
        await until(lambda: ours(path) == [f"a={short(0)}"])
        # The kubelet's word on a whole device goes before the file's.
        whole.kubelet.says(held("theirs", 2), held("a", 0))
        await whole.shows("a kubelet", "theirs kubelet")


async def test_a_stop_leaves_the_file_and_the_next_start_takes_it_over(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with podgpu(path, monkeypatch) as whole:
        whole.kubelet.says(held("a", 0), held("b", 1))
        await until(lambda: ours(path) == [f"a={short(0)}", f"b={short(1)}"])
    assert ours(path) == [f"a={short(0)}", f"b={short(1)}"]
    async with podgpu(path, monkeypatch) as whole:
        whole.kubelet.says(held("b", 1))
        await until(lambda: ours(path) == [f"b={short(1)}"])


async def test_a_change_is_in_the_file_within_milliseconds(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    took = []
    async with podgpu(path, monkeypatch) as whole:
        for turn in range(50):
            began = time.monotonic()
            whole.kubelet.says(held(f"pod-{turn}", 0))
            await until(lambda turn=turn: ours(path) == [f"pod-{turn}={short(0)}"])  # type: ignore[misc]
            took.append(time.monotonic() - began)
    assert sorted(took)[len(took) // 2] < 0.1
