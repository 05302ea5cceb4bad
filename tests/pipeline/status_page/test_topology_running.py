"""The topology from the driver to the pages of a running podgpu, and through a recording."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from config.loader import parse
from config.value_types import ListenAddress
from pipeline.base.clock import SystemClock
from pipeline.component.registry import RegisteredKinds
from pipeline.recording import Header, RecordingReader, RecordingWriter
from pipeline.runtime.publisher import Tap
from pipeline.runtime.runtime import Runtime
from tests.fakes.nvml import FakeNvml
from tests.fakes.nvml.fixtures import fake_nvml
from tests.fakes.nvml.topologies import SINGLE, SYSTEM, hgx, islands, joined
from tests.sources.nvml.harness import GPU
from tests.support.http import Client, Clients

__all__ = ["fake_nvml"]

SINKS = "sinks:\n  metrics: {kind: prometheus, listen: '127.0.0.1:0'}\n"
NVML = "  gpus: {kind: nvml, interval: 100ms, slow_interval: 100ms}\n"


@asynccontextmanager
async def running(sources: str, *taps: Tap) -> AsyncIterator[Client]:
    config = parse(f"sources:\n{sources}{SINKS}", RegisteredKinds(), env={}, origin="test")
    runtime, stop = Runtime(config, taps=taps), asyncio.Event()
    task = asyncio.create_task(runtime.run(stop))
    try:
        address = ListenAddress.parse("127.0.0.1:0")
        async with runtime._serving.listeners.listen(address) as mounts, Clients() as clients:
            yield await clients.connect(mounts.port)
    finally:
        stop.set()
        await task


async def get_until(client: Client, path: str, text: str = "") -> str:
    """Query until there is a response that contains the text."""
    async with asyncio.timeout(10):
        while True:
            status, body = await client.get(path)
            if status == 200 and text in body:
                return body
            await asyncio.sleep(0.02)


def holding(file: Path, pod: str, *gpus: int) -> None:
    held: list[dict[str, Any]] = [
        {"namespace": "ml", "name": pod, "container": "main", "gpu_list": [GPU[at] for at in gpus]}
    ]
    file.write_text(json.dumps(held))


@pytest.mark.slow
async def test_the_topology_of_the_driver_is_shown_on_the_pages(
    fake_nvml: FakeNvml, tmp_path: Path
) -> None:
    fake_nvml.set(islands())
    file = tmp_path / "podlist.json"
    holding(file, "train-0", 0, 1, 4)
    sources = f"{NVML}  holders: {{kind: podlist, path: {file}, interval: 1s}}\n"
    async with running(sources) as client:
        topology = json.loads(await get_until(client, "/topology", '"free":"ec"'))
        assert [domain["mask"] for domain in topology["nvlink"]] == ["f", "f0"]
        best = json.loads(await get_until(client, "/topology/best?n=3"))
        assert [gpu["index"] for gpu in best["gpus"]] == [5, 6, 7]
        page = await get_until(client, "/metrics", "podgpu_topology_largest_free_group_gpus")
        assert 'podgpu_topology_group_free_gpus{level="nvlink",group="4-7"' in page
        assert "\npodgpu_topology_contradictions 0\n" in page
        holding(file, "train-1", 7)
        await get_until(client, "/topology", '"free":"7f"')
        assert "ml/train-1 (main)" in await get_until(client, "/topology?format=text")


@pytest.mark.slow
async def test_contradictions_of_the_driver_are_counted(fake_nvml: FakeNvml) -> None:
    fake_nvml.set(joined([[0, SINGLE, SYSTEM], [SINGLE, 0, SINGLE], [SYSTEM, SINGLE, 0]]))
    async with running(NVML) as client:
        await get_until(client, "/metrics", "\npodgpu_topology_contradictions 1\n")
        assert "contradiction: the driver reports GPU0 and GPU2" in await get_until(
            client, "/topology?format=text"
        )


@pytest.mark.slow
async def test_a_recording_contains_the_topology(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    fake_nvml.set(hgx(4))
    path = tmp_path / "recording.gz"
    with RecordingWriter(path, Header("0", "node-1", SystemClock().now())) as writer:
        async with running(NVML, writer.write) as client:
            topology = json.loads(await get_until(client, "/topology", '"memory"'))
    async with running(f"  player: {{kind: replay, path: {path}, loop: true}}\n") as client:
        replayed = json.loads(await get_until(client, "/topology", '"memory"'))
    notes = ['This is a recording, not this machine (the source "player").']
    assert replayed == topology | {"notes": notes}

    def names() -> list[str]:
        with RecordingReader(path) as reader:
            return [type(envelope.event).__name__ for envelope in reader]

    assert (await asyncio.to_thread(names)).count("TopologyRead") == 1, "emitted on a change"
