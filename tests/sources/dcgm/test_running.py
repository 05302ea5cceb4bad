"""A complete podgpu that reads dcgm-exporter's page and adds the pods that hold the devices."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from config.loader import parse
from pipeline.component.registry import RegisteredKinds
from pipeline.runtime.runtime import Runtime
from tests.pipeline.exposition.pages import Series, parsed
from tests.sources.dcgm.reading import PAGES, A, B
from tests.support.http import Client
from tests.support.pages import PageServer, says

CONFIG = """
node: node-1
sources:
  page:  {{kind: dcgm, url: "{url}", interval: 1s}}
  lists: {{kind: podlist, path: "{path}", interval: 1s}}
sinks:
  metrics: {{kind: prometheus, listen: "127.0.0.1:{port}"}}
"""


def entry(pod: str, *gpus: str) -> dict[str, object]:
    return {"name": pod, "namespace": "ml", "container": "main", "gpu_list": list(gpus)}


@asynccontextmanager
async def podgpu(url: str, path: Path, port: int) -> AsyncIterator[None]:
    text = CONFIG.format(url=url, path=path, port=port)
    config = parse(text, RegisteredKinds(), env={}, origin="test")
    stop = asyncio.Event()
    task = asyncio.create_task(Runtime(config).run(stop))
    try:
        yield
    finally:
        stop.set()
        await task


async def until(port: int, *words: str) -> Series:
    """Wait until the page contains all the words, and return its series."""
    async with asyncio.timeout(10):
        while True:
            try:
                client = Client(*await asyncio.open_connection("127.0.0.1", port))
            except ConnectionError:
                await asyncio.sleep(0.02)
                continue
            status, page = await client.get("/metrics")
            client.writer.transport.abort()
            if status == 200 and all(word in page for word in words):
                return parsed(page.encode())
            await asyncio.sleep(0.02)


def pods(page: Series, name: str) -> dict[tuple[str, str], tuple[str, float]]:
    """Return the pod and the value of a metric by GPU and MIG instance."""
    found = {}
    for (metric, labels), value in page.items():
        by_name = dict(labels)
        if metric == name:
            found[by_name["UUID"], by_name.get("GPU_I_ID", "")] = (by_name["pod"], value)
    return found


@pytest.mark.slow
async def test_the_exporter_s_readings_get_podgpu_s_pod_labels(
    tmp_path: Path, unused_tcp_port: int
) -> None:
    path = tmp_path / "podlist.json"
    path.write_text(json.dumps([entry("train", A), entry("infer", f"MIG-{B}/7/0")]))
    async with (
        PageServer(says((PAGES / "3.1.prom").read_bytes())).serving() as server,
        podgpu(server.url, path, unused_tcp_port),
    ):
        page = await until(unused_tcp_port, 'pod="infer"', "DCGM_FI_PROF_GR_ENGINE_ACTIVE")
        assert pods(page, "DCGM_FI_PROF_GR_ENGINE_ACTIVE") == {
            (A, ""): ("train", 0.25),
            (B, "7"): ("infer", 0.125),
            (B, "2"): ("", 0.998001),
        }
        assert pods(page, "DCGM_FI_DEV_FB_USED")[A, ""] == ("train", 512)
        # The pod labels of the exporter's page are not used.
        assert "infer-7c9" not in {pod for pod, _ in pods(page, "DCGM_FI_DEV_FB_USED").values()}
        server.answer = says("", "503 Service Unavailable")
        page = await until(unused_tcp_port, 'podgpu_source_up{source="page",kind="dcgm"} 0')
        assert pods(page, "DCGM_FI_DEV_FB_USED")[A, ""] == ("train", 512)


async def test_the_page_of_an_old_exporter_gets_pod_labels(
    tmp_path: Path, unused_tcp_port: int
) -> None:
    path = tmp_path / "podlist.json"
    path.write_text(json.dumps([entry("old", B)]))
    async with (
        PageServer(says((PAGES / "1.7.prom").read_bytes())).serving() as server,
        podgpu(server.url, path, unused_tcp_port),
    ):
        page = await until(unused_tcp_port, 'pod="old"', "DCGM_FI_DEV_POWER_USAGE")
    assert pods(page, "DCGM_FI_DEV_POWER_USAGE") == {
        (A, ""): ("", 43.241),
        (B, ""): ("old", 287.004),
    }


@pytest.mark.parametrize("order", [("page", "second"), ("second", "page")])
async def test_the_exporter_that_is_configured_first_wins(
    tmp_path: Path, unused_tcp_port: int, order: tuple[str, str]
) -> None:
    first = says((PAGES / "2.4.prom").read_bytes())
    second = says((PAGES / "4.2.prom").read_bytes())
    async with (
        PageServer(first).serving() as one,
        PageServer(second).serving() as two,
    ):
        urls = {"page": one.url, "second": two.url}
        sources = "\n".join(
            f'  {name}: {{kind: dcgm, url: "{urls[name]}", interval: 1s}}' for name in order
        )
        sink = f'sinks:\n  m: {{kind: prometheus, listen: "127.0.0.1:{unused_tcp_port}"}}'
        config = parse(f"sources:\n{sources}\n{sink}\n", RegisteredKinds(), env={}, origin="test")
        stop = asyncio.Event()
        task = asyncio.create_task(Runtime(config).run(stop))
        # Each of these two metrics is on one of the two pages only.
        page = await until(
            unused_tcp_port, "\nDCGM_FI_DEV_GPU_UTIL{", "\nDCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{"
        )
        stop.set()
        await task
    clock = {"page": 210, "second": 1980}
    assert pods(page, "DCGM_FI_DEV_SM_CLOCK")[A, ""] == ("", clock[order[0]])
