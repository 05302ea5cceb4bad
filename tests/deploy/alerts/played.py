"""Scrapes of a podgpu that plays a recording in a loop, as series for promtool.

The real runtime and the real page play on virtual time, which starts at 0 as in promtool.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Set
from concurrent.futures import Executor
from pathlib import Path
from typing import Any
from unittest import mock

from config.loader import parse
from pipeline.component.registry import RegisteredKinds
from pipeline.exposition.text_format import Format
from pipeline.runtime import runtime as runtime_module
from sinks.prometheus.sink import PrometheusSink
from tests.accounting.podgpu_run import Machine
from tests.accounting.virtual_loop import VirtualLoop

CONFIG = """\
sources:
  node: {{kind: replay, path: "{path}", loop: true}}
sinks:
  metrics: {{kind: prometheus, listen: "127.0.0.1:0"}}
"""
SCRAPE = 15
"""Seconds between scrapes, as the chart sets it."""
TARGET = 'job="podgpu",instance="10.0.0.1:9400",node="{node}"'


class _InlineLoop(VirtualLoop):
    """A loop on virtual time that runs blocking calls in its own thread."""

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> "asyncio.Future[Any]":
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - the future gets it
            future.set_exception(error)
        return future


def scraped(recording: Path, minutes: int, metrics: Set[str]) -> Mapping[str, str]:
    """Return the values of each series of the metrics, in promtool's notation.

    Args:
        recording: the recording; it is played again at its end.
        minutes: for how long it is played, on virtual time.
        metrics: the names of the metrics to keep.
    """
    loop = _InlineLoop()
    asyncio.set_event_loop(loop)
    try:
        pages = loop.run_until_complete(_pages(loop, recording, minutes))
    finally:
        asyncio.set_event_loop(None)
        loop.close()
    samples = [_samples(page, metrics) for page in pages]
    found = {
        series: " ".join(_values([page.get(series) for page in samples]))
        for series in dict.fromkeys(series for page in samples for series in page)
    }
    target = "{" + TARGET.format(node="node-1") + "}"
    # This process has a real start time.
    found[f"process_start_time_seconds{target}"] = f"0x{len(pages)}"
    return {**found, f"up{target}": f"1x{len(pages)}"}


async def _pages(loop: VirtualLoop, recording: Path, minutes: int) -> list[str]:
    text = CONFIG.format(path=recording)
    config = parse(text, RegisteredKinds(), env={}, origin="played")
    sinks: list[PrometheusSink] = []
    enter = PrometheusSink.__aenter__

    async def entered(sink: PrometheusSink) -> PrometheusSink:
        sinks.append(sink)
        return await enter(sink)

    pages = []
    stop = asyncio.Event()
    logger = logging.getLogger("podgpu")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    with mock.patch.object(PrometheusSink, "__aenter__", entered):
        machine = Machine(recording.parent, loop, 0)
        task = loop.create_task(runtime_module.Runtime(config, clock=machine).run(stop))
        for at in range(SCRAPE, 60 * minutes, SCRAPE):
            await asyncio.sleep(at - loop.time())
            if task.done():
                task.result()
            body, end = sinks[0]._response(Format.TEXT, gzip=False)
            pages.append((body + end).decode())
        stop.set()
        await task
    logger.setLevel(level)
    return pages


def _samples(page: str, metrics: Set[str]) -> Mapping[str, str]:
    """Return the values by series, with the labels of the scrape."""
    found = {}
    target = TARGET.format(node="node-1")
    for line in page.splitlines():
        series, _, value = line.rpartition(" ")
        name, _, rest = series.partition("{")
        if name in metrics and not name.startswith("process_"):
            found[f"{name}{{{target}{',' if rest else ''}{rest or '}'}"] = value
    return found


def _values(values: list[str | None]) -> list[str]:
    """Return a value for each scrape; a series that ends gets a mark, as from a scrape."""
    made, before = ["_"], None
    for value in values:
        made.append(value if value is not None else "stale" if before is not None else "_")
        before = value
    return made
