"""250 pods on a node with 56 MIG instances; each second ten of them end and ten others start.

A real podgpu process on simulated GPUs, with a fake kubelet and API server. Times depend on the
machine and are not asserted. Asserted is: no incorrect owner is ever shown, and pods cause no calls
of the driver, and no more calls of the kubelet than there are hints.
"""

import asyncio
import os
import re
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import aiohttp
import pytest
import yaml

from tests.bench.page_checker import PLACES, SCENE, PageChecker
from tests.bench.simulated_cluster import SimulatedCluster
from tests.fakes.nvml import FakeNvml

PODS: Final = 250
EACH: Final = 0.1
"""Seconds from the end of one pod to that of the next."""

CHURN: Final = {"churn, 56 of 250 with a device": 56 / PODS, "churn, all with a device": 1.0}
"""The share of the replacements in which a device changes its holder, by title."""

SECONDS: Final = 10.0
SCRAPE: Final = 1.0
"""Seconds between two scrapes while processor time is measured."""

LIST: Final = 10.0
"""Seconds between two List calls without a hint: the default of the source."""

GAP: Final = 0.1
"""The shortest time in seconds between two List calls."""

ROUND: Final = "nvmlDeviceGetCount_v2"
"""The first call of each round of readings."""

WAIT: Final = "nvmlEventSetWait_v2"
FORCED: Final = "nvmlDeviceGetTotalEnergyConsumption"
"""A call that is made for a GPU immediately after a change of the holder of one of its devices."""


@dataclass(frozen=True, slots=True)
class Spent:
    """The costs of a period.

    Attributes:
        processor: the share of one core.
        resident: megabytes of memory at the end.
        seconds: the duration.
        lists: the number of List calls of the kubelet.
        hints: the highest possible number of hints from reports about pods.
        changed: the number of changes of holders.
        rounds: the calls of the driver by name, for each round.
    """

    processor: float
    resident: float
    seconds: float
    lists: int
    hints: int
    changed: int
    rounds: list[Counter[str]]


class Podgpu:
    """A podgpu process.

    Args:
        folder: the folder of its files.
        port: its port.
        cluster: the simulated pods of its node.
    """

    def __init__(self, folder: Path, port: int, cluster: SimulatedCluster) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._folder = folder
        self._port = port
        self._cluster = cluster
        self._fake = FakeNvml(SCENE, folder)

    @asynccontextmanager
    async def running(
        self, source_options: Mapping[str, Mapping[str, object]]
    ) -> AsyncIterator[None]:
        config = self._folder / "etc" / "podgpu.yaml"
        config.parent.mkdir()
        sources = {kind: {"kind": kind, **options} for kind, options in source_options.items()}
        # Usage samples would add calls to some rounds.
        gpus = {"kind": "nvml", "interval": "1s", "slow_interval": "8s", "usage": False}
        metrics = {"kind": "prometheus", "listen": f"127.0.0.1:{self._port}"}
        document = {"sources": {"gpus": gpus, **sources}, "sinks": {"metrics": metrics}}
        config.write_text(yaml.safe_dump(document))
        log = self._folder / "podgpu.log"
        with log.open("wb") as stderr:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "podgpu", "run"),
                "-c",
                config,
                env=os.environ | self._fake.env(),
                stderr=stderr,
            )
        try:
            async with asyncio.timeout(20):
                while not await self._ready():
                    await asyncio.sleep(0.05)
            yield
        finally:
            self._process.terminate()
            assert await self._process.wait() == 0, log.read_text()

    async def _ready(self) -> bool:
        try:
            async with aiohttp.request("GET", f"{self.url}/readyz") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    async def spends(self, doing: Coroutine[object, object, None]) -> Spent:
        """Return the costs of podgpu while the coroutine runs."""
        cluster = self._cluster
        calls = self._calls()
        lists, reports, changed = cluster.kubelet.calls["v1/List"], cluster.reports, cluster.changed
        start, processor = time.monotonic(), self._processor()
        await doing
        processor, seconds = self._processor() - processor, time.monotonic() - start
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        made = calls()
        starts = [at for at, name in enumerate(made) if name == ROUND]
        return Spent(
            processor / seconds,
            int(status.partition("VmRSS:")[2].split()[0]) / 1000,
            seconds,
            cluster.kubelet.calls["v1/List"] - lists,
            cluster.reports - reports,
            cluster.changed - changed,
            [Counter(made[start:end]) for start, end in pairwise(starts)],
        )

    def _processor(self) -> float:
        # linux/posix-timers.h: the clock of the processor time of a process.
        return time.clock_gettime((~self._process.pid << 3) | 2)

    def _calls(self) -> Callable[[], list[str]]:
        """Return a function that returns the driver's calls from now on, in order."""
        log = Path(self._fake.env()["FAKENVML_CALL_LOG"])
        before = log.stat().st_size

        def made() -> list[str]:
            return [name for name in log.read_text()[before:].split() if name != WAIT]

        return made


@dataclass(slots=True)
class Bench:
    """A simulated cluster and the podgpu that observes it."""

    cluster: SimulatedCluster
    podgpu: Podgpu

    async def spends(self, share: float | None) -> Spent:
        """Return the costs of podgpu with rare scrapes; with churn unless `share` is None."""
        doing = (
            asyncio.sleep(SECONDS) if share is None else self.cluster.churn(SECONDS, EACH, share)
        )
        async with self._watched(SCRAPE):
            return await self.podgpu.spends(doing)

    async def latencies(self, share: float) -> PageChecker:
        """Return a page checker that scraped continuously during churn."""
        async with self._watched(0.003) as checker:
            await self.cluster.churn(SECONDS, EACH, share)
        return checker

    async def lists(self) -> int:
        """Return the number of List calls that podgpu reports."""
        async with aiohttp.request("GET", f"{self.podgpu.url}/metrics") as answer:
            page = await answer.text()
        found = re.search(r'^podgpu_source_requests_total\{.*"v1/List".*"ok".*\} (\d+)', page, re.M)
        return int(found[1]) if found else 0

    @asynccontextmanager
    async def _watched(self, every: float) -> AsyncIterator[PageChecker]:
        checker = PageChecker(f"{self.podgpu.url}/metrics", self.cluster.holdings)
        self.cluster.on_change = checker.expect
        scraping = asyncio.create_task(checker.scrape(every))
        try:
            yield checker
            async with asyncio.timeout(5):
                while checker.waiting:
                    await asyncio.sleep(0.01)
        finally:
            scraping.cancel()
            await asyncio.wait([scraping])
        assert not checker.wrong


@asynccontextmanager
async def node(folder: Path, port: int, pods: int) -> AsyncIterator[Bench]:
    folder.mkdir()
    cluster = SimulatedCluster(folder, list(PLACES.values()), pods)
    podgpu = Podgpu(folder, port, cluster)
    async with cluster.serving() as source_options, podgpu.running(source_options):
        await asyncio.sleep(1)
        yield Bench(cluster, podgpu)


def forced(spent: Spent, kinds: list[Counter[str]]) -> int:
    """Return how many GPUs were read because of a change of a holder.

    Args:
        spent: the costs of a period.
        kinds: the rounds of a node without pods.
    """
    extra = 0
    for made in spent.rounds:
        # Some calls are not made in every slow round: take the kind that differs least.
        kind = min(kinds, key=lambda kind: (made - kind).total() + (kind - made).total())
        extra += (made - kind)[FORCED]
    return extra


def report(rows: Mapping[str, Spent], kinds: list[Counter[str]]) -> None:
    empty, calm = list(rows.values())[:2]
    print(
        f"\n{'':32}processor  ratio   resident  ratio   Lists/s  forced reads  changes of holders"
    )
    for title, spent in rows.items():
        print(
            f"{title:32}{spent.processor:9.1%}{spent.processor / calm.processor:7.1f}"
            f"{spent.resident:8.1f} MB{spent.resident / empty.resident:7.2f}"
            f"{spent.lists / spent.seconds:10.1f}{forced(spent, kinds):14}{spent.changed:18}"
        )


def report_latencies(title: str, checker: PageChecker) -> None:
    scrapes = sorted(checker.scrapes)
    print(f"\n{title:32}    number    p50 ms    p99 ms   p50 as a ratio")
    for name, times in (("one scrape", scrapes), *checker.seen.items()):
        times.sort()
        p50, p99 = times[len(times) // 2], times[int(len(times) * 0.99)]
        print(
            f"{name:32}{len(times):10}{1e3 * p50:10.1f}{1e3 * p99:10.1f}"
            f"{p50 / scrapes[len(scrapes) // 2]:10.1f}"
        )


@pytest.mark.timeout(180)
async def test_costs_and_latencies_with_many_pods(
    tmp_path: Path, unused_tcp_port_factory: Callable[[], int]
) -> None:
    async with node(tmp_path / "empty", unused_tcp_port_factory(), 0) as bench:
        rows = {"no pods": await bench.spends(None)}
    async with node(tmp_path / "full", unused_tcp_port_factory(), PODS) as bench:
        rows[f"{PODS} pods"] = await bench.spends(None)
        seen: dict[str, PageChecker] = {}
        for title, share in CHURN.items():
            rows[title] = await bench.spends(share)
            seen[title] = await bench.latencies(share)
        reported = await bench.lists()
        assert reported == bench.cluster.kubelet.calls["v1/List"]
    empty = rows["no pods"]
    kinds = [made for at, made in enumerate(empty.rounds) if made not in empty.rounds[:at]]
    report(rows, kinds)
    for title, checker in seen.items():
        report_latencies(title, checker)
    for spent in rows.values():
        assert spent.lists <= spent.seconds / LIST + 1 + spent.hints
        assert spent.lists <= spent.seconds / GAP + 1
        assert spent.changed or not forced(spent, kinds)
        assert spent.resident / empty.resident < 1.2
