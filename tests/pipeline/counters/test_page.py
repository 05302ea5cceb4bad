"""The metrics page while the counters list changes: series in both lists never disappear."""

import asyncio
import socket
from pathlib import Path

import pytest

from config.schema import Component, Config, Counters
from config.value_types import ListenAddress
from pipeline.component.contracts import SourceContext
from pipeline.model import DevicesDiscovered, SamplesTaken
from pipeline.runtime import source_set
from pipeline.runtime.runtime import Runtime
from sinks.prometheus.options import Options
from tests.pipeline.counters.test_list_follower import BAD, ONE, TWO
from tests.pipeline.runtime.runtimes import GPUS
from tests.support.components import Options as Any
from tests.support.components import ScriptedSource
from tests.support.http import Client
from tests.support.nodes import reading, uuid_of

FIELDS = {"gpu_utilization_percent": 42, "memory_used_bytes": 3 << 20, "gpu_up": 1}


async def sampling(ctx: SourceContext) -> None:
    await ctx.emit(DevicesDiscovered(GPUS))
    while True:
        at = ctx.clock.now()
        readings = [
            reading(uuid_of(0), name, value, when=at)
            for name, value in FIELDS.items()
            if name in ctx.plan
        ]
        await ctx.emit(SamplesTaken(tuple(readings)))
        await ctx.clock.sleep(0.05)


async def get(port: int) -> tuple[int, str]:
    client = Client(*await asyncio.open_connection("127.0.0.1", port))
    try:
        return await client.get("/metrics")
    finally:
        client.writer.transport.abort()


async def page_with(port: int, *words: str) -> str:
    async with asyncio.timeout(10):
        while True:
            status, page = await get(port)
            assert status == 200
            # This field is in both lists, so it is never missing.
            assert "\nDCGM_FI_DEV_GPU_UTIL{" in page
            if all(word in page for word in words):
                return page
            await asyncio.sleep(0.005)


@pytest.mark.slow
async def test_the_page_changes_from_one_list_to_the_next_without_a_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_set, "build_source", lambda *_: ScriptedSource(sampling))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    path = tmp_path / "counters.csv"
    path.write_text(ONE)
    config = Config(
        sources={"g": Component("source", "g", "nvml", Any())},
        sinks={
            "m": Component(
                "sink", "m", "prometheus", Options(listen=ListenAddress("127.0.0.1", port))
            )
        },
        counters=Counters(file=path),
    )
    stop = asyncio.Event()
    task = asyncio.create_task(Runtime(config).run(stop))
    async with asyncio.timeout(10):
        while True:
            try:
                if "\nDCGM_FI_DEV_GPU_UTIL{" in (await get(port))[1]:
                    break
            except OSError:
                await asyncio.sleep(0.02)
    page = await page_with(port, "\npodgpu_gpu_up{")
    assert "DCGM_FI_DEV_FB_USED" not in page
    path.write_text(TWO)
    page = await page_with(port, "\nDCGM_FI_DEV_FB_USED{")
    assert "# HELP DCGM_FI_DEV_FB_USED Two.\n# TYPE DCGM_FI_DEV_FB_USED gauge\n" in page
    path.write_text(BAD)
    await page_with(
        port, 'podgpu_config_reloads_total{result="refused"} 1', "\nDCGM_FI_DEV_FB_USED{"
    )
    path.write_text(ONE.replace("One.", "Load in %, of the GPU."))
    page = await page_with(port, "# HELP DCGM_FI_DEV_GPU_UTIL Load in %, of the GPU.\n")
    assert "DCGM_FI_DEV_FB_USED" not in page
    await page_with(port, 'podgpu_config_reloads_total{result="done"} 2')
    stop.set()
    await task
