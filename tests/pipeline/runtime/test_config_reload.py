"""Tests of what a new configuration changes, and of the watch on its file."""

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
def test_the_changed_components_are_found(
    sources: dict[str, tuple[str, int]],
    sinks: dict[str, tuple[str, int]],
    node: str,
    expected: Changes,
) -> None:
    assert changes(configured(SOURCES, SINKS, "n"), configured(sources, sinks, node)) == expected


class Reports:
    """Counts the reports of a watch."""

    def __init__(self) -> None:
        self.count = 0

    async def reaches(self, count: int) -> None:
        async with asyncio.timeout(5):
            while self.count < count:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        assert self.count == count


@asynccontextmanager
async def watching(path: Path) -> AsyncIterator[tuple[FileWatch, Reports]]:
    watch, reports = FileWatch(path, LOG), Reports()

    async def follow() -> None:
        async for _ in watch.changed():
            reports.count += 1

    task = asyncio.create_task(follow())
    await reports.reaches(1)  # the first report is the file as it is
    reports.count = 0
    try:
        yield watch, reports
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "podgpu.yaml"
    path.write_text("one")
    return path


@pytest.mark.slow
async def test_a_file_written_in_place_is_reported(path: Path) -> None:
    async with watching(path) as (_, reports):
        path.write_text("two")
        await reports.reaches(1)


@pytest.mark.slow
async def test_a_file_renamed_into_place_is_reported(path: Path) -> None:
    async with watching(path) as (_, reports):
        new = path.with_suffix(".new")
        new.write_text("two")
        new.replace(path)
        await reports.reaches(1)


@pytest.mark.slow
async def test_an_update_of_a_mounted_config_map_is_reported(tmp_path: Path) -> None:
    for name, text in (("..one", "one"), ("..two", "two")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "podgpu.yaml").write_text(text)
    (tmp_path / "..data").symlink_to("..one")
    path = tmp_path / "podgpu.yaml"
    path.symlink_to("..data/podgpu.yaml")
    async with watching(path) as (_, reports):
        (tmp_path / "..data_tmp").symlink_to("..two")
        (tmp_path / "..data_tmp").replace(tmp_path / "..data")
        await reports.reaches(1)


@pytest.mark.slow
async def test_a_file_deleted_and_created_again_is_reported_once(path: Path) -> None:
    async with watching(path) as (_, reports):
        path.unlink()
        await asyncio.sleep(0.3)
        path.write_text("two")
        await reports.reaches(1)


@pytest.mark.slow
async def test_the_same_content_is_not_reported(path: Path) -> None:
    async with watching(path) as (_, reports):
        path.write_text("one")
        (path.parent / "other").write_text("two")
        await reports.reaches(0)


@pytest.mark.slow
async def test_many_writes_in_a_short_time_are_few_reports(path: Path) -> None:
    async with watching(path) as (_, reports):
        for turn in range(300):
            path.write_text(f"turn {turn}")
        async with asyncio.timeout(5):
            while not reports.count:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        assert reports.count <= 3


@pytest.mark.slow
async def test_a_requested_report_comes_although_the_file_is_unchanged(path: Path) -> None:
    async with watching(path) as (watch, reports):
        watch.ask()
        await reports.reaches(1)
        watch.ask()
        await reports.reaches(2)


@pytest.mark.slow
@pytest.mark.parametrize("fails", ["instance", "watch"])
async def test_without_inotify_the_file_is_read_periodically(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fails: str
) -> None:
    """As on a node where all inotify instances or watches of the user are in use."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE if fails == "instance" else errno.ENOSPC, "none left")

    if fails == "instance":
        monkeypatch.setattr("pipeline.files.file_watch.Inotify", refuse)
    else:
        monkeypatch.setattr(Inotify, "add_watch", refuse)
    monkeypatch.setattr(config_reload, "_POLL", 0.1)
    async with watching(path) as (_, reports):
        # Replaced in one step: the file could be read between its truncation and the write.
        new = path.with_suffix(".new")
        new.write_text("two")
        new.replace(path)
        await reports.reaches(1)
    assert caplog.text.count("cannot watch") == 1
