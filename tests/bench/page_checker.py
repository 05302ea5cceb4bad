"""Scrape podgpu's page and compare every owner on it with the simulated cluster."""

import asyncio
import re
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import aiohttp

from tests.bench.simulated_cluster import Change, ChangeKind, Holding, Owner
from tests.fakes.nvml import mig_node

GRACE: Final = 1.0
"""Seconds for which an owner may be shown after the end of a holding."""

SCENE: Final = mig_node()
PLACES: Final = {(gpu.uuid, str(mig.gi)): mig.uuid for gpu in SCENE.gpus for mig in gpu.mig or ()}
"""MIG UUIDs by the labels that identify them."""

_LINES: Final = re.compile(
    rb"^(?:podgpu_device_holder_info|DCGM_FI_DEV_FB_USED)\{.*\}", re.MULTILINE
)
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')


class Shown(NamedTuple):
    """An owner of a device on a page; `whole` if the line has every part of its name."""

    device: str
    owner: Owner
    whole: bool


@lru_cache(10_000)
def _read(line: bytes) -> Shown | None:
    labels = dict(_LABEL.findall(line.decode()))
    device = PLACES.get((labels["UUID"], labels.get("GPU_I_ID", "")))
    parts = [labels.get(name, "") for name in ("namespace", "pod", "container", "pod_uid")]
    if device is None or not any(parts):
        return None
    return Shown(device, Owner(*parts), line.startswith(b"podgpu_"))


class PageChecker:
    """Records how long it takes until changes are shown, and all incorrect owners.

    Attributes:
        waiting: the changes that no page has shown yet.
        seen: seconds from the report to the end of the first scrape that shows it.
        scrapes: the duration of each scrape in seconds.
        wrong: the incorrect owners.

    Args:
        url: the address of the page.
        holdings: all holdings so far, by device.
    """

    def __init__(self, url: str, holdings: Mapping[str, Sequence[Holding]]) -> None:
        self.waiting: list[Change] = []
        self.seen: dict[ChangeKind, list[float]] = {}
        self.scrapes: list[float] = []
        self.wrong: list[str] = []
        self._url = url
        self._reigns = holdings

    def expect(self, change: Change) -> None:
        self.waiting.append(change)

    async def scrape(self, every: float) -> None:
        """Scrape until cancelled, with `every` seconds between scrapes."""
        async with aiohttp.ClientSession(headers={"Accept-Encoding": "identity"}) as session:
            while True:
                started = time.monotonic()
                async with session.get(self._url) as answer:
                    page = await answer.read()
                self._check(page, started, time.monotonic())
                await asyncio.sleep(every)

    def _check(self, page: bytes, started: float, received: float) -> None:
        self.scrapes.append(received - started)
        owners: dict[str, set[Owner]] = {}
        for line in _LINES.findall(page):
            if (shown := _read(line)) is None:
                continue
            if shown.whole:
                owners.setdefault(shown.device, set()).add(shown.owner)
            if not any(
                holding.since <= received
                and started - GRACE <= holding.until
                and _fits(shown, holding)
                for holding in reversed(self._reigns.get(shown.device, ()))
            ):
                self.wrong.append(f"{received:.3f} {shown}; {self._reigns.get(shown.device)}")
        remaining: list[Change] = []
        for change in self.waiting:
            held = owners.get(change.device, set())
            if change.owner not in held if change.kind == "ended" else held == {change.owner}:
                self.seen.setdefault(change.kind, []).append(received - change.at)
            else:
                remaining.append(change)
        self.waiting = remaining


def _fits(shown: Shown, holding: Holding) -> bool:
    """Return whether every shown part of the name is correct."""
    return all(part in {"", real} for part, real in zip(shown.owner, holding.owner, strict=True))
