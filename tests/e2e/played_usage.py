"""Three hours of short pods, restarts and gaps: what a server scrapes, and the ledger beside it.

The real runtime, join, ledger and page play on virtual time, from 2025-01-15 08:00 UTC.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, Final
from unittest import mock

import msgspec

from config.schema import Component, Config
from config.value_types import ListenAddress
from pipeline.exposition.text_format import Format
from sinks.prometheus.options import Options
from sinks.prometheus.sink import PrometheusSink
from tests.accounting import player as players
from tests.accounting.actions import (
    Action,
    ContainerChanged,
    ContainerName,
    Killed,
    Process,
    S,
    Sample,
    SamplesReported,
    Started,
    Stopped,
    Story,
)
from tests.accounting.player import Player
from tests.accounting.podgpu_run import Podgpu

START: Final = 1_736_928_000
"""2025-01-15 08:00 UTC, in seconds of Unix time."""

HOURS: Final = 3
SCRAPE: Final = 15
MINUTE: Final = 60 * S

RESTARTS: Final = ((72, 40, Killed), (91, 5, Stopped), (105, 180, Killed))
"""Minute of an end of podgpu, seconds until its next start, and how it ends."""

UNSCRAPED: Final = (80 * 60, 87 * 60)
"""Seconds for which the server does not scrape."""

_USAGE: Final = re.compile(
    r"podgpu_container_(?:held|busy|energy)\w*|podgpu_device_(?:accounted|free|unknown|busy)\w*"
    r"|podgpu_device_unattributed_(?:held|busy|energy)\w*"
    r"|podgpu_device_info|podgpu_pod_info"
)


@dataclass(frozen=True, slots=True)
class Scraped:
    """One sample that a server has scraped.

    Attributes:
        name: the metric.
        labels: its labels, as in the page.
        at_ms: the time of the scrape, in milliseconds of Unix time.
        value: the value.
        run: the number of podgpu's run.
    """

    name: str
    labels: str
    at_ms: int
    value: float
    run: int


@dataclass(frozen=True, slots=True)
class PlayedUsage:
    """The result.

    Attributes:
        samples: in the order of time.
        ledger: the file of the ledger at the end.
    """

    samples: Sequence[Scraped]
    ledger: Path

    def text(self) -> str:
        """Return the samples in OpenMetrics, with times."""
        lines = [
            f"{one.name}{{{one.labels}}} {one.value!r} {one.at_ms / 1000:.3f}"
            for one in self.samples
        ]
        return "\n".join([*lines, "# EOF", ""])

    def without_ledger(self) -> "PlayedUsage":
        """Return what a server would have scraped if podgpu counted from 0 after each start.

        A container that has not used anything in a run has no series in it.
        """
        last: dict[tuple[str, str], float] = {}
        final: dict[tuple[str, str, int], float] = {}
        for one in self.samples:
            final[one.name, one.labels, one.run] = one.value
        found, run, base = [], 0, dict(last)
        grown = set()
        for (name, labels, number), value in final.items():
            before = max(
                (final.get((name, labels, each), 0.0) for each in range(number)), default=0.0
            )
            if value > before:
                grown.add((labels, number))
        for one in self.samples:
            if one.run != run:
                run, base = one.run, dict(last)
            last[one.name, one.labels] = one.value
            if one.name.endswith("_info"):
                found.append(one)
            elif (one.labels, one.run) in grown:
                counted = one.value - base.get((one.name, one.labels), 0.0)
                found.append(replace(one, value=round(counted, 9)))
        return replace(self, samples=found)


class _ScrapedPodgpu(Podgpu):
    def _config(self) -> Config:
        config = super()._config()
        options = Options(listen=ListenAddress.parse("127.0.0.1:0"))
        page = Component(role="sink", name="metrics", kind="prometheus", options=options)
        return msgspec.structs.replace(config, sinks={**config.sinks, "metrics": page})


class _Scraper(Player):
    """Plays a story, and scrapes podgpu while it runs."""

    def __init__(self, story: Story, folder: Path) -> None:
        super().__init__(story, folder)
        self.sink: PrometheusSink | None = None
        self.samples: list[Scraped] = []

    async def _play(self) -> None:
        task = self.loop.create_task(self._scrape())
        await super()._play()
        task.cancel()

    async def _scrape(self) -> None:
        at = 7
        while True:
            await self.loop.until(at * S)
            if self.run is not None and self.sink and not UNSCRAPED[0] <= at < UNSCRAPED[1]:
                body, _ = self.sink._response(Format.TEXT, gzip=False)
                self.samples += _samples(body.decode(), (START + at) * 1000, len(self.results))
            at += SCRAPE


def _samples(page: str, at_ms: int, run: int) -> Iterator[Scraped]:
    for text in page.splitlines():
        series, _, value = text.rpartition(" ")
        name, _, labels = series.partition("{")
        if _USAGE.fullmatch(name):
            yield Scraped(name, labels.removesuffix("}"), at_ms, float(value), run)


def play(folder: Path) -> PlayedUsage:
    """Play the story."""
    scraper = _Scraper(story(), folder)
    enter = PrometheusSink.__aenter__

    async def entered(sink: PrometheusSink) -> Any:
        scraper.sink = sink
        return await enter(sink)

    with (
        mock.patch.object(players, "Podgpu", _ScrapedPodgpu),
        mock.patch.object(PrometheusSink, "__aenter__", entered),
    ):
        results = scraper.play()
    return PlayedUsage(scraper.samples, results[-1].path)


@dataclass(frozen=True, slots=True)
class _PodRun:
    """A container that holds a device for some time, and keeps it busy for a part of it."""

    container: ContainerName
    device: str
    start: int
    end: int
    share: float | None
    busy: float


def _pods() -> Iterator[_PodRun]:
    rng = Random(5)
    end = HOURS * 3600 - 120
    yield _PodRun("ml-train/main/u1", "g1", 60, end, None, 0.8)
    yield _PodRun("web-serve/main/u2", "g0", 20 * 60, 160 * 60, 0.25, 0.1)
    for namespace, first, last, least, most, pause in (
        ("lab", 60 * 60, 120 * 60, 1, 40, 20),  # shorter than two scrapes
        ("batch", 10 * 60, 170 * 60, 60, 360, 240),
    ):
        at, number = first, 0
        while at < last:
            number += 1
            length = rng.randrange(least, most)
            pod = f"{namespace}-{number}/main/u-{namespace}{number}"
            yield _PodRun(pod, "g0", at, at + length, None, rng.random() / 2)
            at += length + rng.randrange(1, pause)


def story() -> Story:
    """Return what happens in three hours."""
    pods = list(_pods())
    actions: list[Action] = []
    ends = [(minute * 60, minute * 60 + down, how) for minute, down, how in RESTARTS]
    until = HOURS * 3600 - 30
    up, since = False, dict.fromkeys(("g0", "g1"), None)
    energy = dict.fromkeys(("g0", "g1"), 0)
    for at in range(2, until):
        down = next((end for end in ends if end[0] <= at < end[1]), None)
        running = [one for one in pods if one.start <= at < one.end]
        if down is not None:
            if up:
                actions.append(down[2](at * S))
                up = False
            continue
        if not up:
            holds = {one.container: {one.device: one.share} for one in running}
            actions.append(Started(at * S, holds, {}, ("g0", "g1")))
            up, since = True, dict.fromkeys(("g0", "g1"), None)
        else:
            for one in pods:
                if at == one.start:
                    holding = {one.device: one.share}
                    actions.append(ContainerChanged(at * S, one.container, holding))
                if at == one.end:
                    actions.append(ContainerChanged(at * S, one.container, None))
        if at % 5 == 0:
            samples = []
            for device in ("g0", "g1"):
                before = since[device]
                took = 0 if before is None else at * S - before
                used = [one for one in running if one.device == device]
                busy = {one.container: int(took * one.busy / max(len(used), 1)) for one in used}
                energy[device] += (100_000 if used else 60_000) * 5
                processes = tuple(Process(name, ns if took else None) for name, ns in busy.items())
                total = sum(busy.values()) if took else None
                taken = Sample(device, at * S, before, processes, busy=total)
                samples.append(replace(taken, energy=energy[device]))
                since[device] = at * S
            actions.append(SamplesReported(at * S + S // 100, tuple(samples)))
    actions.append(Stopped(until * S))
    return Story(0, tuple(actions), START * S, 5 * S, ("gpus", "runtime", "kernel"))
