"""The latency from a change of podlist.json to the page, with real files and sockets."""

import asyncio
import json
import time
from pathlib import Path

import aiohttp

from config.loader import parse
from pipeline.component.registry import RegisteredKinds
from pipeline.runtime.runtime import Runtime
from tests.fakes.nvml import FakeNvml, h100s
from tests.fakes.nvml.fixtures import fake_nvml as fake_nvml  # noqa: PLC0414 - a fixture

EDITS = 300
CONFIG = """\
sources:
  gpus: {{kind: nvml, interval: 1s}}
  podlist: {{kind: podlist, path: {path}}}
sinks:
  metrics: {{kind: prometheus, listen: "127.0.0.1:{port}"}}
"""


def hold(path: Path, pod: str) -> None:
    entries = [{"name": pod, "namespace": "ml", "container": "main", "gpu_list": [0]}]
    new = path.with_suffix(".new")
    new.write_text(json.dumps(entries))
    new.replace(path)


async def test_latency_from_a_change_of_a_file_to_the_page(
    tmp_path: Path, fake_nvml: FakeNvml, unused_tcp_port: int
) -> None:
    fake_nvml.set(h100s(4))
    path = tmp_path / "podlist.json"
    hold(path, "first")
    text = CONFIG.format(path=path, port=unused_tcp_port)
    runtime = Runtime(parse(text, RegisteredKinds(), env={}, origin="bench"))
    stop = asyncio.Event()
    running = asyncio.create_task(runtime.run(stop))
    url = f"http://127.0.0.1:{unused_tcp_port}/metrics"
    scrapes: list[float] = []
    changes: list[float] = []
    async with aiohttp.ClientSession() as session:

        async def page() -> bytes:
            async with session.get(url) as answer:
                return await answer.read()

        async with asyncio.timeout(20):
            while True:
                try:
                    if b'pod="first"' in await page():
                        break
                except aiohttp.ClientError:
                    pass
                await asyncio.sleep(0.05)
        for number in range(EDITS):
            start = time.perf_counter()
            await page()
            scrapes.append(1e3 * (time.perf_counter() - start))
            expected = f'pod="pod-{number}"'.encode()
            start = time.perf_counter()
            hold(path, f"pod-{number}")
            while expected not in await page():
                assert time.perf_counter() - start < 5
            changes.append(1e3 * (time.perf_counter() - start))
            await asyncio.sleep(0.01)
    stop.set()
    await running
    print(f"\n{EDITS} changes, 4 GPUs               p50 ms    p99 ms   p50 as a ratio")
    for name, times in (("one scrape", scrapes), ("change to page", changes)):
        times.sort()
        p50, p99 = times[len(times) // 2], times[int(len(times) * 0.99)]
        print(f"{name:30} {p50:8.2f} {p99:9.2f} {p50 / scrapes[len(scrapes) // 2]:10.1f}")
