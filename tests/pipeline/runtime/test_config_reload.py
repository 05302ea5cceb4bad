"""What a changed configuration changes, and how the change is noticed."""

import asyncio
import errno
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from asyncinotify import Inotify

from pipeline.runtime import config_reload
from pipeline.runtime.config_reload import Changes, FileWatch, changes
from tests.support.components import configured

LOG = logging.getLogger("podgpu.test")
SOURCES = {"a": ("nvml", 0), "b": ("podlist", 0)}
SINKS = {"m": ("prometheus", 0), "l": ("jsonl", 0)}


@pytest.mark.parametrize(
    ("sources", "sinks", "node", "expected"),
    [
        pytest.param(SOURCES, SINKS, "n", Changes((), (), False), id="nothing"),
        pytest.param(
            SOURCES | {"a": ("nvml", 1)}, SINKS, "n", Changes((), ("a",), False), id="options"
        ),
        pytest.param(
            SOURCES | {"a": ("replay", 0)}, SINKS, "n", Changes((), ("a",), False), id="kind"
        ),
        pytest.param(
            SOURCES | {"c": ("nvml", 0)}, SINKS, "n", Changes((), ("c",), True), id="new source"
        ),
        pytest.param({"a": ("nvml", 0)}, SINKS, "n", Changes((), ("b",), True), id="source gone"),
        pytest.param(
            dict(reversed(SOURCES.items())), SINKS, "n", Changes((), (), True), id="order"
        ),
        pytest.param(SOURCES, {"m": ("prometheus", 0)}, "n", Changes(("l",), (), False), id="sink"),
        pytest.param(
            SOURCES, SINKS, "other", Changes(("m", "l"), ("a", "b"), False), id="node's name"
        ),
    ],
)
def test_changes(
    sources: dict[str, tuple[str, int]],
    sinks: dict[str, tuple[str, int]],
    node: str,
    expected: Changes,
) -> None:
    assert changes(configured(SOURCES, SINKS, "n"), configured(sources, sinks, node)) == expected


class Noticed:
    """Counts what a watch reports."""

    def __init__(self) -> None:
        self.count = 0

    async def reaches(self, count: int) -> None:
        async with asyncio.timeout(5):
            while self.count < count:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        assert self.count == count


@asynccontextmanager
async def watching(path: Path) -> AsyncIterator[tuple[FileWatch, Noticed]]:
    watch, noticed = FileWatch(path, LOG), Noticed()

    async def follow() -> None:
        async for _ in watch.changed():
            noticed.count += 1

    task = asyncio.create_task(follow())
    await noticed.reaches(1)  # the file as it was found
    noticed.count = 0
    try:
        yield watch, noticed
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "podgpu.yaml"
    path.write_text("one")
    return path


async def test_written_in_place(path: Path) -> None:
    async with watching(path) as (_, noticed):
        path.write_text("two")
        await noticed.reaches(1)


async def test_renamed_into_place(path: Path) -> None:
    async with watching(path) as (_, noticed):
        new = path.with_suffix(".new")
        new.write_text("two")
        new.replace(path)
        await noticed.reaches(1)


async def test_a_mounted_config_map_swaps_the_link_beside_it(tmp_path: Path) -> None:
    for name, text in (("..one", "one"), ("..two", "two")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "podgpu.yaml").write_text(text)
    (tmp_path / "..data").symlink_to("..one")
    path = tmp_path / "podgpu.yaml"
    path.symlink_to("..data/podgpu.yaml")
    async with watching(path) as (_, noticed):
        (tmp_path / "..data_tmp").symlink_to("..two")
        (tmp_path / "..data_tmp").replace(tmp_path / "..data")
        await noticed.reaches(1)


async def test_deleted_and_made_again_counts_once(path: Path) -> None:
    async with watching(path) as (_, noticed):
        path.unlink()
        await asyncio.sleep(0.3)
        path.write_text("two")
        await noticed.reaches(1)


async def test_the_same_content_again_is_no_change(path: Path) -> None:
    async with watching(path) as (_, noticed):
        path.write_text("one")
        (path.parent / "other").write_text("two")
        await noticed.reaches(0)


async def test_a_burst_of_writes_is_few_changes(path: Path) -> None:
    async with watching(path) as (_, noticed):
        for turn in range(300):
            path.write_text(f"turn {turn}")
        async with asyncio.timeout(5):
            while not noticed.count:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        assert noticed.count <= 3


async def test_asking_reports_the_file_as_it_is(path: Path) -> None:
    async with watching(path) as (watch, noticed):
        watch.ask()
        await noticed.reaches(1)
        watch.ask()
        await noticed.reaches(2)


@pytest.mark.parametrize("fails", ["instance", "watch"])
async def test_where_nothing_can_be_watched_the_file_is_looked_at(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fails: str
) -> None:
    """As on a node where all of a user's inotify instances or watches are in use."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EMFILE if fails == "instance" else errno.ENOSPC, "none left")

    if fails == "instance":
        monkeypatch.setattr(config_reload, "Inotify", refuse)
    else:
        monkeypatch.setattr(Inotify, "add_watch", refuse)
    monkeypatch.setattr(config_reload, "_POLL", 0.1)
    async with watching(path) as (_, noticed):
        # In one step: one who looks may come between the emptying of a file and its filling.
        new = path.with_suffix(".new")
        new.write_text("two")
        new.replace(path)
        await noticed.reaches(1)
    assert caplog.text.count("cannot watch") == 1
