"""Scrapes podgpu's page and holds every owner that it shows against the truth."""

import asyncio
import re
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import aiohttp

from tests.bench.crowd import Change, Owner, Reign, What
from tests.fakes.nvml import mig_node

GRACE: Final = 1.0
"""Seconds for which an owner may go on being shown."""

SCENE: Final = mig_node()
PLACES: Final = {(gpu.uuid, str(mig.gi)): mig.uuid for gpu in SCENE.gpus for mig in gpu.mig or ()}
"""MIG uuids by the labels that stand for them."""

_LINES: Final = re.compile(
    rb"^(?:podgpu_device_holder_info|DCGM_FI_DEV_FB_USED)\{.*\}", re.MULTILINE
)
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')


class Shown(NamedTuple):
    """An owner of a device; `whole` if the line has every part of its name."""

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


class Onlooker:
    """Notes how long it takes until changes are shown, and whatever isn't true.

    Attributes:
        waiting: changes that no page has shown yet.
        seen: seconds from the word to the end of the first scrape that shows it.
        scrapes: seconds that each took.
        wrong: what was shown and wasn't so.

    Args:
        url: of the page.
        reigns: the truth: by device, everyone who ever held it.
    """

    def __init__(self, url: str, reigns: Mapping[str, Sequence[Reign]]) -> None:
        self.waiting: list[Change] = []
        self.seen: dict[What, list[float]] = {}
        self.scrapes: list[float] = []
        self.wrong: list[str] = []
        self._url = url
        self._reigns = reigns

    def expect(self, change: Change) -> None:
        self.waiting.append(change)

    async def scrape(self, every: float) -> None:
        """Scrape until cancelled, with so many seconds in between."""
        async with aiohttp.ClientSession(headers={"Accept-Encoding": "identity"}) as session:
            while True:
                asked = time.monotonic()
                async with session.get(self._url) as answer:
                    page = await answer.read()
                self._look(page, asked, time.monotonic())
                await asyncio.sleep(every)

    def _look(self, page: bytes, asked: float, got: float) -> None:
        self.scrapes.append(got - asked)
        owners: dict[str, set[Owner]] = {}
        for line in _LINES.findall(page):
            if (shown := _read(line)) is None:
                continue
            if shown.whole:
                owners.setdefault(shown.device, set()).add(shown.owner)
            if not any(
                reign.since <= got and asked - GRACE <= reign.until and _fits(shown, reign)
                for reign in reversed(self._reigns.get(shown.device, ()))
            ):
                self.wrong.append(f"{got:.3f} {shown}; {self._reigns.get(shown.device)}")
        still: list[Change] = []
        for change in self.waiting:
            held = owners.get(change.device, set())
            if change.owner not in held if change.what == "ended" else held == {change.owner}:
                self.seen.setdefault(change.what, []).append(got - change.at)
            else:
                still.append(change)
        self.waiting = still


def _fits(shown: Shown, reign: Reign) -> bool:
    """Whether every part of the name that is told is so."""
    return all(part in {"", real} for part, real in zip(shown.owner, reign.owner, strict=True))
