"""The topology from the driver to those who ask, in a whole podgpu; and through a recording."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

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
        async with runtime._serving.listen(address) as mounts, Clients() as clients:
            yield await clients.connect(mounts.port)
    finally:
        stop.set()
        await task


async def asked(client: Client, path: str, wanted: str = "") -> str:
    """Ask until there is an answer with this text in it."""
    async with asyncio.timeout(10):
        while True:
            status, body = await client.get(path)
            if status == 200 and wanted in body:
                return body
            await asyncio.sleep(0.02)


def holding(file: Path, pod: str, *gpus: int) -> None:
    held: list[dict[str, Any]] = [
        {"namespace": "ml", "name": pod, "container": "main", "gpu_list": [GPU[at] for at in gpus]}
    ]
    file.write_text(json.dumps(held))


async def test_from_the_driver_to_those_who_ask(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    fake_nvml.set(islands())
    file = tmp_path / "podlist.json"
    holding(file, "train-0", 0, 1, 4)
    sources = f"{NVML}  holders: {{kind: podlist, path: {file}, interval: 1s}}\n"
    async with running(sources) as client:
        given_out = json.loads(await asked(client, "/topology", '"free":"ec"'))
        assert [domain["mask"] for domain in given_out["nvlink"]] == ["f", "f0"]
        best = json.loads(await asked(client, "/topology/best?n=3"))
        assert [gpu["index"] for gpu in best["gpus"]] == [5, 6, 7]
        page = await asked(client, "/metrics", "podgpu_topology_largest_free_group_gpus")
        assert 'podgpu_topology_group_free_gpus{level="nvlink",group="4-7"' in page
        assert "\npodgpu_topology_contradictions 0\n" in page
        holding(file, "train-1", 7)
        await asked(client, "/topology", '"free":"7f"')
        assert "ml/train-1 (main)" in await asked(client, "/topology?format=text")


async def test_answers_of_the_driver_that_contradict_are_counted(fake_nvml: FakeNvml) -> None:
    fake_nvml.set(joined([[0, SINGLE, SYSTEM], [SINGLE, 0, SINGLE], [SYSTEM, SINGLE, 0]]))
    async with running(NVML) as client:
        await asked(client, "/metrics", "\npodgpu_topology_contradictions 1\n")
        assert "contradiction: the driver reports GPU0 and GPU2" in await asked(
            client, "/topology?format=text"
        )


async def test_a_recording_carries_it(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    fake_nvml.set(hgx(4))
    path = tmp_path / "recording.gz"
    with RecordingWriter(path, Header("0", "node-1", SystemClock().now())) as writer:
        async with running(NVML, writer.write) as client:
            given_out = json.loads(await asked(client, "/topology", '"memory"'))
    async with running(f"  player: {{kind: replay, path: {path}, loop: true}}\n") as client:
        again = json.loads(await asked(client, "/topology", '"memory"'))
    assert again == given_out

    def names() -> list[str]:
        with RecordingReader(path) as reader:
            return [type(envelope.event).__name__ for envelope in reader]

    assert (await asyncio.to_thread(names)).count("TopologyRead") == 1, "told when it changes"
