"""The file of the sink `textfile`, as node_exporter's textfile collector reads it."""

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from config.value_types import Duration
from pipeline.base.channels import Channel
from pipeline.base.telemetry import FAMILIES, Point
from pipeline.exposition.text_format import Format
from pipeline.model import Snapshot
from sinks.textfile.options import Options
from sinks.textfile.sink import TextfileSink
from tests.pipeline.exposition.pages import (
    SCENES,
    context,
    families,
    of,
    parsed,
    plain_gpus,
    rendered,
)
from tests.sinks.podlist.support import HurryingClock, names, until


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "podgpu.prom"


class Bench:
    """A running sink, a clock that the test advances, and the file."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.path = path
        self.clock = HurryingClock()
        self.ctx = context()
        self.ctx.clock = self.clock
        self.sink = TextfileSink(Options(path=path, **options), self.ctx)
        self.inbox: Channel[Snapshot] = Channel(1)

    @asynccontextmanager
    async def writing(self) -> AsyncIterator["Bench"]:
        async with self.sink:
            running = asyncio.create_task(self.sink.run(self.inbox))
            yield self
            self.inbox.close()
            async with asyncio.timeout(10):
                await running

    async def advance(self, seconds: float) -> None:
        """Advance the clock, and wake the sink with a snapshot."""
        self.clock.seconds += seconds
        assert self.ctx.snapshot is not None
        self.inbox.offer(self.ctx.snapshot)

    def show(self, snapshot: Snapshot) -> None:
        self.ctx.snapshot = snapshot
        self.inbox.offer(snapshot)

    @property
    def text(self) -> bytes:
        return self.path.read_bytes() if self.path.exists() else b""


@pytest.mark.parametrize("scene", SCENES)
async def test_the_file_contains_the_page(path: Path, scene: str) -> None:
    bench = Bench(path)
    bench.ctx.snapshot = SCENES[scene]()
    async with bench.writing():
        await until(path.exists)
        assert bench.text == rendered(bench.ctx.snapshot, ctx=bench.ctx)


async def test_page_options_apply_to_the_file(path: Path) -> None:
    bench = Bench(path, labels="dcgm-1x", hostname=False)
    bench.ctx.snapshot = plain_gpus()
    async with bench.writing():
        await until(path.exists)
        page = rendered(plain_gpus(), ctx=bench.ctx, labels="dcgm-1x", hostname=False)
        assert bench.text == page


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("form", ["dcgm", "dcgm-1x"])
async def test_the_file_meets_the_rules_of_the_textfile_collector(
    path: Path, scene: str, form: str
) -> None:
    """Complete lines, no timestamps, and each family once with one HELP and one TYPE."""
    bench = Bench(path, labels=form)
    bench.ctx.snapshot = SCENES[scene]()
    async with bench.writing():
        await until(path.exists)
        text = bench.text
    assert text.endswith(b"\n")
    assert b"\n# EOF" not in text
    lines = text.decode().splitlines()
    for keyword in ("# HELP ", "# TYPE "):
        metrics = [line.split(" ")[2] for line in lines if line.startswith(keyword)]
        assert len(set(metrics)) == len(metrics)
    for line in lines:
        if not line.startswith("#"):
            float(line.rpartition(" ")[2])
            assert "}" in line or line.count(" ") == 1
    assert parsed(text)
    assert all(
        sample.timestamp is None for f in families(text, Format.TEXT) for sample in f.samples
    )


PREFIXES = ("podgpu_", "DCGM_", "dcgm_")


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("form", ["dcgm", "dcgm-hostname", "dcgm-old", "dcgm-1x"])
async def test_no_family_can_be_one_of_node_exporters_own(
    path: Path, scene: str, form: str
) -> None:
    """node_exporter has go_*, process_*, promhttp_* and node_* on the same page."""
    bench = Bench(path, labels=form)
    bench.ctx.snapshot = SCENES[scene]()
    for family in FAMILIES:
        bench.ctx.computed.setdefault(family.name, [Point((), 1)])
    async with bench.writing():
        await until(path.exists)
        names_ = [family.name for family in families(bench.text, Format.TEXT)]
    assert [name for name in names_ if not name.startswith(PREFIXES)] == []
    assert "podgpu_process_start_time_seconds" in names_


async def test_name_and_mode_of_the_file(path: Path) -> None:
    before = os.umask(0o077)
    try:
        async with Bench(path).writing():
            await until(path.exists)
            assert stat.S_IMODE(path.stat().st_mode) == 0o644
            assert names(path.parent) == ["podgpu.prom"]
    finally:
        os.umask(before)


async def test_readers_never_see_a_partial_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor a temporary name that the collector would read."""
    real, seen = os.rename, list[tuple[list[str], bytes]]()

    def rename(source: str, target: str, **folders: int) -> None:
        seen.append((names(path.parent), path.read_bytes() if path.exists() else b""))
        real(source, target, **folders)

    monkeypatch.setattr(os, "rename", rename)
    bench = Bench(path)
    bench.ctx.snapshot = plain_gpus()
    async with bench.writing():
        await until(lambda: len(seen) == 1)
        await until(path.exists)
        await bench.advance(10)
        await until(lambda: len(seen) == 2)
    assert [text[:6] for _, text in seen] == [b"", b"# HELP"]
    for found, _ in seen:
        assert [name for name in found if name.endswith(".prom")] in ([], ["podgpu.prom"])
        assert len(found) <= 2


async def test_the_newest_snapshot_is_written_once_per_interval(path: Path) -> None:
    bench = Bench(path, interval=Duration.parse("30s"))
    async with bench.writing():
        await until(path.exists)
        first = path.stat().st_ino
        bench.show(plain_gpus())
        await asyncio.sleep(0.05)
        await bench.advance(29)
        await asyncio.sleep(0.05)
        assert path.stat().st_ino == first
        assert b"train-0" not in bench.text
        await bench.advance(1)
        await until(lambda: b"train-0" in bench.text)


@pytest.mark.slow
async def test_without_new_snapshots_the_ages_still_grow(path: Path) -> None:
    """Otherwise a stopped source would look as fresh as at its last event."""
    bench = Bench(path, interval=Duration.parse("1s"))
    bench.ctx.computed["podgpu_source_age_seconds"] = [Point((("source", "gpus"),), 1.0)]
    async with bench.writing():
        await until(path.exists)
        bench.ctx.computed["podgpu_source_age_seconds"] = [Point((("source", "gpus"),), 2.0)]
        await until(lambda: of(parsed(bench.text), "podgpu_source_age_seconds")[0][1] == 2.0)


async def test_the_file_is_removed_when_podgpu_stops(path: Path) -> None:
    bench = Bench(path)
    bench.ctx.snapshot = plain_gpus()
    async with bench.writing():
        await until(path.exists)
    assert names(path.parent) == []


async def test_with_keep_the_file_stays_with_the_newest_page(path: Path) -> None:
    bench = Bench(path, keep=True, interval=Duration.parse("1h"))
    async with bench.writing():
        await until(path.exists)
        assert b"train-0" not in bench.text
        bench.show(plain_gpus())
        await asyncio.sleep(0.02)
    assert b"train-0" in bench.text
    assert names(path.parent) == ["podgpu.prom"]


async def test_a_file_that_podgpu_did_not_write_is_not_removed(path: Path) -> None:
    path.write_text("theirs 1\n")
    async with Bench(path).sink:
        pass
    assert path.read_text() == "theirs 1\n"


async def test_temporary_files_of_a_killed_podgpu_are_removed(path: Path) -> None:
    left = path.with_name(f".podgpu.prom.podgpu-{'0' * 16}")
    left.touch()
    other = path.with_name(".other.prom.podgpu-0000000000000000")
    other.touch()
    async with Bench(path, keep=True).writing():
        await until(path.exists)
    assert names(path.parent) == [other.name, "podgpu.prom"]


async def test_the_sink_can_be_entered_again_after_a_fault(path: Path) -> None:
    """As the supervisor does it."""
    bench = Bench(path)
    bench.ctx.snapshot = plain_gpus()
    for _ in range(2):
        bench.inbox = Channel(1)
        async with bench.writing():
            await until(lambda: b"train-0" in bench.text)
        assert not path.exists()
