"""Events of the source while its file changes; real files, real inotify."""

import asyncio
import itertools
import logging
import os
import shutil
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

from config.value_types import ByteSize, Duration
from pipeline.component.claim_file_reader import FileClaims
from pipeline.model import ClaimsReplaced, SourceLost
from sources.podlist.pod_list_file import read_pod_list
from tests.sources.podlist.running import entry, following, listing, replace

GRACE = 0.25
DEVICE = "expected a GPU UUID, a MIG UUID or a number"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "pod-resources"
    folder.mkdir()
    return folder / "podlist.json"


def in_place(path: Path, text: str) -> None:
    path.write_text(text)


WRITERS = pytest.mark.parametrize("write", [replace, in_place])


@WRITERS
async def test_a_change_is_reported_within_milliseconds(
    path: Path, write: Callable[[Path, str], None]
) -> None:
    write(path, listing("first"))
    milliseconds: list[float] = []
    async with following(path) as ctx:
        await ctx.wait_for_pods("first")
        for number in range(40):
            start = time.monotonic_ns()
            write(path, listing(f"p{number}"))
            await ctx.wait_for_pods(f"p{number}")
            milliseconds.append((ctx.emitted_at[-1].mono_ns - start) / 1e6)
        assert ctx.reasons() == []
        assert len(ctx.events) == 41
    assert statistics.median(milliseconds) < 50


@WRITERS
async def test_after_many_changes_in_a_row_the_last_is_reported(
    path: Path, write: Callable[[Path, str], None]
) -> None:
    write(path, listing("first"))
    async with following(path) as ctx:
        await ctx.wait_for_pods("first")

        def burst() -> None:
            for number in range(300):
                write(path, listing(f"p{number}"))

        await asyncio.to_thread(burst)
        await ctx.wait_for_pods("p299")
        # A writer in place may be interrupted between emptying the file and writing it.
        assert [reason for reason in ctx.reasons() if "is empty" not in reason] == []


async def test_claims_carry_max_age(path: Path) -> None:
    path.write_text(listing("a"))
    async with following(path, max_age=Duration.parse("90s")) as ctx:
        [event] = await ctx.wait_for(ClaimsReplaced)
        assert event.good_for_ns == 90_000_000_000


async def test_an_empty_list_removes_all_claims(path: Path) -> None:
    path.write_text(listing("a", "b"))
    async with following(path) as ctx:
        await ctx.wait_for_pods("a", "b")
        replace(path, "[]")
        await ctx.wait_for_pods()
        assert ctx.reasons() == []


async def test_the_same_list_written_again_is_not_reported(path: Path) -> None:
    path.write_text(listing("a"))
    async with following(path) as ctx:
        await ctx.wait_for_pods("a")
        replace(path, listing("a"))
        path.touch()
        await asyncio.sleep(GRACE)
        assert len(ctx.events) == 1


async def test_claims_are_confirmed_at_each_interval_with_the_same_object(path: Path) -> None:
    path.write_text(listing("a"))
    async with following(path, interval=Duration.parse("50ms")) as ctx:
        events = await ctx.wait_for(ClaimsReplaced, 4)
        assert all(event is events[0] for event in events)
        times = [at.mono_ns / 1e6 for at in ctx.emitted_at]
        assert min(b - a for a, b in itertools.pairwise(times)) > 45


@pytest.mark.slow
async def test_an_invalid_file_is_reported_once_and_claims_are_not_confirmed(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    path.write_text(listing("a"))
    async with following(path, interval=Duration.parse("50ms")) as ctx:
        await ctx.wait_for_pods("a")
        replace(path, '[{"name":')
        assert await ctx.wait_for_loss() == f"{path}:1:10: ends too early"
        confirmed = len(ctx.events)
        await asyncio.sleep(0.3)
        assert len(ctx.events) == confirmed
        replace(path, listing("a"))
        await ctx.wait_for(ClaimsReplaced, confirmed)
        assert ctx.pods() == ["a"]
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert caplog.messages[0].startswith(f"{path}:1:10: ends too early; the last valid content")
    assert caplog.messages[1] == f"{path} is readable and valid again"


@pytest.mark.slow
async def test_a_file_that_is_empty_for_a_moment_is_not_reported(path: Path) -> None:
    path.write_text(listing("a"))
    async with following(path) as ctx:
        await ctx.wait_for_pods("a")
        with path.open("w") as file:
            await asyncio.sleep(0.03)
            file.write(listing("b")[:20])
            file.flush()
            await asyncio.sleep(0.03)
            file.write(listing("b")[20:])
        await ctx.wait_for_pods("b")
        await asyncio.sleep(GRACE)
        assert ctx.reasons() == []


async def test_a_change_is_reported_before_the_writer_closes_the_file(path: Path) -> None:
    path.write_text(listing("a"))
    async with following(path) as ctx:
        await ctx.wait_for_pods("a")
        with path.open("r+") as file:
            file.write(listing("b"))
            file.flush()
            await ctx.wait_for_pods("b")


@pytest.mark.slow
async def test_successive_faults_are_each_reported(path: Path) -> None:
    path.write_text("{}")
    async with following(path) as ctx:
        assert await ctx.wait_for_loss() == f"{path}:1:1: expected a list, found an object"
        replace(path, "")
        assert await ctx.wait_for_loss(2) == f"{path}: is empty; an empty list is written []"
        path.unlink()
        assert (
            await ctx.wait_for_loss(3)
            == f"{path}: no such file; check that its writer runs and that the folder is mounted"
        )
        assert ctx.pods() is None
        replace(path, listing("a"))
        await ctx.wait_for_pods("a")


async def test_an_invalid_entry_is_logged_once_and_the_source_stays_up(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    bad = '{"name": "b", "namespace": "ns", "container": "main", "gpu_list": [true]}'
    path.write_text(f"[{entry('a', 'GPU-a')},\n{bad}]")
    async with following(path, interval=Duration.parse("50ms")) as ctx:
        await ctx.wait_for(ClaimsReplaced, 3)
        assert ctx.pods() == ["a"]
        replace(path, listing("a", "b"))
        await ctx.wait_for_pods("a", "b")
        assert ctx.reasons() == []
    assert caplog.messages == [
        f"{path}:2:68: [1].gpu_list[0]: {DEVICE}, found true; the entry is skipped",
        f"{path}: all entries are valid again",
    ]


async def test_a_file_that_is_deleted_and_created_again_is_followed(path: Path) -> None:
    path.write_text(listing("a"))
    async with following(path) as ctx:
        await ctx.wait_for_pods("a")
        path.unlink()
        assert (
            await ctx.wait_for_loss()
            == f"{path}: no such file; check that its writer runs and that the folder is mounted"
        )
        assert ctx.pods() == ["a"]
        path.write_text(listing("b"))
        await ctx.wait_for_pods("b", timeout=1)


@pytest.mark.slow
async def test_a_folder_that_is_deleted_and_created_again_is_followed(path: Path) -> None:
    path.write_text(listing("a"))
    async with following(path) as ctx:
        await ctx.wait_for_pods("a")
        for pod in ("b", "c"):
            losses = len(ctx.reasons())
            shutil.rmtree(path.parent)
            await ctx.wait_for_loss(losses + 1)
            path.parent.mkdir()
            await asyncio.sleep(0.05)
            path.write_text(listing(pod))
            await ctx.wait_for_pods(pod, timeout=1)


async def test_folders_that_are_created_later_are_followed(tmp_path: Path) -> None:
    path = tmp_path / "var" / "lib" / "kubelet" / "podlist.json"
    async with following(path) as ctx:
        assert (
            await ctx.wait_for_loss()
            == f"{path}: no such file; check that its writer runs and that the folder is mounted"
        )
        path.parent.mkdir(parents=True)
        path.write_text(listing("a"))
        await ctx.wait_for_pods("a", timeout=1)
        (tmp_path / "var").rename(tmp_path / "old")
        await ctx.wait_for_loss(2)
        path.parent.mkdir(parents=True)
        replace(path, listing("b"))
        await ctx.wait_for_pods("b", timeout=1)
        (tmp_path / "old" / "lib" / "kubelet" / "podlist.json").write_text(listing("c"))
        replace(path, listing("d"))
        await ctx.wait_for_pods("d", timeout=1)


async def test_a_symbolic_link_and_its_changes_are_followed(path: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(listing(name))
    path.symlink_to("../a")
    async with following(path) as ctx:
        await ctx.wait_for_pods("a")
        fresh = path.with_name("fresh")
        fresh.symlink_to(tmp_path / "b")
        fresh.replace(path)
        await ctx.wait_for_pods("b", timeout=1)
        replace(tmp_path / "b", listing("c"))
        await ctx.wait_for_pods("c", timeout=1)
        (tmp_path / "b").write_text(listing("d"))
        await ctx.wait_for_pods("d", timeout=1)


async def test_a_mounted_config_map_is_followed(path: Path) -> None:
    folder = path.parent

    def publish(pod: str) -> None:
        (folder / f"..{pod}").mkdir()
        (folder / f"..{pod}" / "podlist.json").write_text(listing(pod))
        (folder / "..data_tmp").symlink_to(f"..{pod}")
        (folder / "..data_tmp").replace(folder / "..data")

    publish("a")
    path.symlink_to("..data/podlist.json")
    async with following(path) as ctx:
        await ctx.wait_for_pods("a")
        publish("b")
        shutil.rmtree(folder / "..a")
        await ctx.wait_for_pods("b", timeout=1)
        publish("c")
        await ctx.wait_for_pods("c", timeout=1)
        assert ctx.reasons() == []


async def test_a_relative_path_is_followed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    path.write_text(listing("a"))
    async with following(Path("../pod-resources/podlist.json")) as ctx:
        await ctx.wait_for_pods("a")
        replace(path, listing("b"))
        await ctx.wait_for_pods("b", timeout=1)


async def test_a_file_that_is_too_large_is_not_read(path: Path) -> None:
    path.write_text(listing("a"))
    async with following(path, max_size=ByteSize(100)) as ctx:
        await ctx.wait_for_pods("a")
        replace(path, listing("a") + " " * 100)
        assert "larger than the maximum of 100B; raise max_size" in await ctx.wait_for_loss()
        replace(path, listing("a").ljust(100))
        await ctx.wait_for(ClaimsReplaced, 2)


@pytest.mark.slow
async def test_a_file_without_read_permission_is_reported_once(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_text(listing("a"))
    real = os.open

    def refuse(name: str | Path, flags: int, *rest: int) -> int:
        if Path(name) == path:
            raise PermissionError(13, "Permission denied")
        return real(name, flags, *rest)

    monkeypatch.setattr("pipeline.files.bounded_read.os.open", refuse)
    async with following(path, interval=Duration.parse("100ms")) as ctx:
        assert await ctx.wait_for_loss() == f"{path}: permission denied to uid {os.geteuid()}"
        await asyncio.sleep(0.3)
        monkeypatch.setattr("pipeline.files.bounded_read.os.open", real)
        await ctx.wait_for_pods("a")
        assert len(ctx.reasons()) == 1


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (Path.mkdir, "is not a regular file"),
        (os.mkfifo, "is not a regular file"),
        (lambda path: path.symlink_to(path), "too many levels of symbolic links"),
    ],
    ids=["folder", "pipe", "link to itself"],
)
async def test_a_path_that_is_no_regular_file_is_reported(
    path: Path, make: Callable[[Path], None], text: str
) -> None:
    make(path)
    async with following(path) as ctx:
        assert await ctx.wait_for_loss() == f"{path}: {text}"


async def test_a_removed_file_behind_a_mount_is_reported_as_replaced(path: Path) -> None:
    # A mount of only the file shows it so, once the file was replaced outside of the mount.
    with path.with_name("gone").open("w+") as file:
        file.write(listing("old"))
        file.flush()
        Path(file.name).unlink()
        path.symlink_to(f"/proc/self/fd/{file.fileno()}")
        async with following(path, interval=Duration.parse("50ms")) as ctx:
            reason = await ctx.wait_for_loss()
            assert "mount the folder instead of the file, or let the writer write in" in reason
            await asyncio.sleep(0.2)
            assert ctx.events == [SourceLost(reason)]
            replace(path, listing("a"))
            await ctx.wait_for_pods("a", timeout=1)


async def test_changes_of_other_files_in_the_folder_cause_no_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_text(listing("a"))
    async with following(path) as ctx:
        await ctx.wait_for_pods("a")
        await asyncio.sleep(0.05)
        reads: list[Path] = []
        monkeypatch.setattr(
            "pipeline.component.claim_file_reader.read_file",
            lambda path, *_: reads.append(path),
        )
        for number in range(50):
            replace(path.with_name(f"other{number}"), "x")
        await asyncio.sleep(0.05)
        assert reads == []


async def test_a_list_is_parsed_outside_of_the_event_loop_s_thread(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []

    def read(data: bytes, path: Path, integers: Literal["minor", "index"]) -> FileClaims:
        threads.append(threading.current_thread())
        return read_pod_list(data, path, integers)

    monkeypatch.setattr("sources.podlist.source.read_pod_list", read)
    path.write_text(listing(*(f"p{number}" for number in range(10_000))))
    async with following(path) as ctx:
        [event] = await ctx.wait_for(ClaimsReplaced)
        assert len(event.claims) == 10_000
    assert threads
    assert threading.main_thread() not in threads


@pytest.mark.slow
async def test_a_file_that_is_always_incomplete_is_reported(path: Path) -> None:
    path.write_text(listing("a"))
    async with following(path) as ctx:
        await ctx.wait_for_pods("a")
        start = time.monotonic()
        with path.open("w") as file:
            while not ctx.reasons() and time.monotonic() - start < 5:
                file.write("[")
                file.flush()
                await asyncio.sleep(0.02)
    assert 0.9 < time.monotonic() - start < 3
