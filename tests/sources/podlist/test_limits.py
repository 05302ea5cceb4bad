"""If inotify fails, the source checks the file each second."""

import errno
import logging
import os
import time
from pathlib import Path
from typing import Any

import asyncinotify
import pytest

from tests.sources.podlist.running import following, listing, replace


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "podlist.json"
    path.write_text(listing("a"))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.ENOMEM])
async def test_without_inotify_watches_the_file_is_polled(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, code: int
) -> None:
    caplog.set_level(logging.INFO)

    def refuse(*_: Any) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(asyncinotify.Inotify, "add_watch", refuse)
        async with following(path) as ctx:
            await ctx.wait_for_pods("a")
            replace(path, listing("b"))
            await ctx.wait_for_pods("b", timeout=3)
            assert len(caplog.records) == 1
            assert caplog.messages[0].startswith(f"{path}: cannot watch for changes: ")
            patch.undo()
            replace(path, listing("c"))
            await ctx.wait_for_pods("c", timeout=3)
            replace(path, listing("d"))
            await ctx.wait_for_pods("d", timeout=0.5)
            assert ctx.reasons() == []
    assert caplog.messages[1:] == [f"{path}: watching for changes again"]


@pytest.mark.slow
async def test_without_inotify_instances_the_file_is_polled(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr("pipeline.files.file_watch.Inotify", refuse)
        async with following(path) as ctx:
            await ctx.wait_for_pods("a")
            # Same size, and possibly the same timestamp.
            path.write_text(listing("b"))
            await ctx.wait_for_pods("b", timeout=3)
            patch.undo()
            path.write_text(listing("c"))
            await ctx.wait_for_pods("c", timeout=3)
            path.write_text(listing("d"))
            await ctx.wait_for_pods("d", timeout=0.5)
    assert "fs.inotify.max_user_instances" in caplog.messages[0]
    assert caplog.messages[1:] == [f"{path}: watching for changes again"]


@pytest.mark.slow
async def test_a_change_is_seen_although_the_inotify_queue_overflowed(path: Path) -> None:
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if limit > 50_000:
        pytest.skip(f"the kernel here keeps {limit} events")
    async with following(path) as ctx:
        await ctx.wait_for_pods("a")
        # No await here: so the kernel's queue overflows, and the last change is not in it.
        other = path.with_name("other")
        for _ in range(limit // 2 + 1):
            other.touch()
            other.unlink()
        path.write_text(listing("b"))
        start = time.monotonic()
        await ctx.wait_for_pods("b")
        assert time.monotonic() - start < 2
