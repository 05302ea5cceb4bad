"""The file stays valid line by line when it is rotated, replaced, truncated or the disk is full."""

import asyncio
import errno
import logging
import os
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pipeline.base.errors import PermanentError, TransientError
from sinks.jsonl import rotating_file
from tests.sinks.jsonl.support import Bench, options, parsed, watts


async def write_lines(path: Path, count: int = 1, **settings: str) -> Bench:
    bench = Bench(options(path, **settings))  # type: ignore[arg-type]
    async with bench.writing():
        await bench.write(count)
    return bench


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Limit the size of files: the kernel writes up to the limit, then writes fail."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


# -- writing


async def test_lines_are_appended(tmp_path: Path) -> None:
    path = tmp_path / "gpu.jsonl"
    bench = await write_lines(path, 3)
    assert (bench.emitted, bench.dropped) == (3, {})
    await write_lines(path, 2)
    assert watts(path) == [1, 2, 3, 1, 2]
    assert path.stat().st_mode & 0o133 == 0


async def test_telemetry_lines_are_written_at_their_interval(tmp_path: Path) -> None:
    path = tmp_path / "gpu.jsonl"
    await write_lines(path, 25, telemetry="10s")
    kinds = [line["record"] for line in parsed(path.read_bytes())]
    assert [place for place, kind in enumerate(kinds) if kind == "telemetry"] == [1, 12, 23]
    assert len(kinds) == 28


async def test_waiting_snapshots_are_written_at_a_stop(tmp_path: Path) -> None:
    bench = Bench(options(tmp_path / "gpu.jsonl"))
    async with bench.writing():
        for _ in range(50):
            bench.send()
    assert watts(tmp_path / "gpu.jsonl") == list(range(1, 51))


# -- rotation


async def test_rotation_by_size_keeps_the_newest_files(tmp_path: Path) -> None:
    path = tmp_path / "gpu.jsonl"
    await write_lines(path)
    size = path.stat().st_size
    path.unlink()
    bench = Bench(options(path, max_size=f"{3 * size + 9}B", keep=2))
    async with bench.writing():
        await bench.write(9)
        assert sorted(file.name for file in tmp_path.iterdir()) == [
            "gpu.jsonl",
            "gpu.jsonl.1",
            "gpu.jsonl.2",
        ]
        names = [path.with_name("gpu.jsonl.2"), path.with_name("gpu.jsonl.1"), path]
        assert watts(*names) == list(range(1, 10))
        await bench.write(3)
        assert watts(*names) == list(range(4, 13))
    assert bench.emitted == 12


async def test_rotation_renames_only_files_that_block_the_name(tmp_path: Path) -> None:
    path = tmp_path / "gpu.jsonl"
    (tmp_path / "gpu.jsonl.2").write_text("kept")
    await write_lines(path, 2, max_size="1B", keep=5)  # type: ignore[arg-type]
    assert (tmp_path / "gpu.jsonl.2").read_text() == "kept"
    assert watts(tmp_path / "gpu.jsonl.1", path) == [1, 2]


async def test_rotation_with_keep_0_removes_the_full_file(tmp_path: Path) -> None:
    path = tmp_path / "gpu.jsonl"
    await write_lines(path, 3, max_size="1B", keep=0)  # type: ignore[arg-type]
    assert [file.name for file in tmp_path.iterdir()] == ["gpu.jsonl"]
    assert watts(path) == [3]


async def test_rotation_by_age_continues_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "gpu.jsonl"
    await write_lines(path, 4, max_age="10s")
    bench = Bench(options(path, max_age="10s"))
    bench.clock.seconds = 7
    async with bench.writing():
        await bench.write(3)  # at 8, 9 and 10 s; the first line is from 1 s
        assert watts(path) == [1, 2, 3, 4, 1, 2, 3]
        await bench.write(1)
    assert watts(tmp_path / "gpu.jsonl.1") == [1, 2, 3, 4, 1, 2, 3]
    assert watts(path) == [4]


@pytest.mark.parametrize("step", [-1e9, -3600, -5, 5, 3600, 1e9])
@pytest.mark.parametrize("when", [0, 1, 4])
async def test_rotation_by_age_ignores_steps_of_the_wall_clock(
    tmp_path: Path, step: float, when: int
) -> None:
    path = tmp_path / "gpu.jsonl"
    bench = Bench(options(path, max_age="10s"))
    async with bench.writing():
        await bench.write(when)
        bench.clock.wall_step = step
        await bench.write(10 - when)
        assert watts(path) == list(range(1, 11))
        await bench.write(3)
        bench.clock.wall_step = 0
        await bench.write(7)
        assert watts(tmp_path / "gpu.jsonl.1", path) == list(range(1, 21))
        await bench.write(1)
    assert watts(tmp_path / "gpu.jsonl.1", path) == list(range(11, 22))


async def test_the_age_of_a_file_from_the_future_starts_with_this_run(tmp_path: Path) -> None:
    path = tmp_path / "gpu.jsonl"
    path.write_text('{"record":"device","time":"9999-01-01T00:00:00.000000Z"}\n')
    bench = Bench(options(path, max_age="10s"))
    async with bench.writing():
        await bench.write(9)
        assert not (tmp_path / "gpu.jsonl.1").exists()
        await bench.write(1)
    assert watts(path) == [10]


async def test_the_age_of_a_replaced_file_starts_at_zero(tmp_path: Path) -> None:
    path = tmp_path / "gpu.jsonl"
    bench = Bench(options(path, max_age="10s"))
    async with bench.writing():
        await bench.write(8)
        path.unlink()
        await bench.write(10)
        assert watts(path) == list(range(9, 19))
        await bench.write(1)
    assert watts(tmp_path / "gpu.jsonl.1", path) == list(range(9, 20))


async def test_rotation_takes_place_in_the_folder_of_a_link_target(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "disk" / "gpu.jsonl")
    await write_lines(tmp_path / "link.jsonl", 2, max_size="1B")
    assert (tmp_path / "link.jsonl").is_symlink()
    assert watts(tmp_path / "disk" / "gpu.jsonl.1", tmp_path / "disk" / "gpu.jsonl") == [1, 2]


async def test_a_file_that_cannot_be_renamed_stays_within_max_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    monkeypatch.setattr(Path, "replace", fail)
    bench = await write_lines(tmp_path / "gpu.jsonl", 5, max_size="1B")
    assert watts(tmp_path / "gpu.jsonl") == [1]
    assert bench.dropped == {"write_error": 4}
    assert "set max_size to 0B" in caplog.text


# -- changes by other programs


async def test_j2_a_file_renamed_by_logrotate_loses_no_line(tmp_path: Path) -> None:
    path, old = tmp_path / "gpu.jsonl", tmp_path / "gpu.jsonl-20270115"
    bench = Bench(options(path))
    async with bench.writing():
        await bench.write(2)
        path.rename(old)
        await bench.write(2)
        assert watts(old, path) == [1, 2, 3, 4]
        path.rename(old)
        path.touch()
        await bench.write(1)
    assert watts(old, path) == [3, 4, 5]


async def test_j2_a_copied_and_truncated_file_loses_no_line(tmp_path: Path) -> None:
    path, copy = tmp_path / "gpu.jsonl", tmp_path / "gpu.jsonl.copy"
    bench = Bench(options(path))
    async with bench.writing():
        await bench.write(3)
        shutil.copy(path, copy)
        os.truncate(path, 0)
        await bench.write(2)
    assert watts(copy, path) == [1, 2, 3, 4, 5]
    assert b"\0" not in path.read_bytes()


@pytest.mark.slow
async def test_j2_many_renames_during_writes_lose_no_line(tmp_path: Path) -> None:
    path = tmp_path / "gpu.jsonl"
    bench, old = Bench(options(path)), []
    async with bench.writing():
        for number in range(20):
            for _ in range(20):
                bench.send()
            await asyncio.sleep(0.002)  # during the writes
            old.append(path.with_name(f"old-{number}"))
            path.rename(old[-1])
            await bench.settled()
            bench.send()
            await bench.settled()
    assert watts(*old, path) == list(range(1, 421))
    assert (bench.emitted, bench.dropped) == (420, {})


@pytest.mark.slow
async def test_j2_after_many_truncations_during_writes_lines_are_valid(tmp_path: Path) -> None:
    path = tmp_path / "gpu.jsonl"
    bench, found = Bench(options(path)), []
    async with bench.writing():
        for _ in range(20):
            for _ in range(20):
                bench.send()
            await asyncio.sleep(0.002)
            os.truncate(path, 0)
            await bench.settled()
            content = path.read_bytes()
            assert b"\0" not in content
            assert path.stat().st_blocks * 512 >= len(content)
            found += parsed(content)
    assert bench.emitted == 400
    assert 0 < len(found) <= 400


async def test_j2_a_deleted_file_and_folder_are_created_again(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "gpu.jsonl"
    path.parent.mkdir(parents=True)
    bench = Bench(options(path))
    async with bench.writing():
        await bench.write(1)
        path.unlink()
        await bench.write(1)
        assert watts(path) == [2]
        shutil.rmtree(tmp_path / "a")
        await bench.write(1)
        assert watts(path) == [3]
    assert bench.dropped == {}


# -- the last line of an existing file


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'{"record":"device","x":1}\n{"record":"devi', b'{"record":"device","x":1}\n'),
        (b'{"record":"device","x":1}\n{"re', b'{"record":"device","x":1}\n'),
        (b'{"record":"device","x":', b""),
        (b'{"record":"device","x":"' + b"y" * 200_000, b""),
        (b'{"record":"device","x":1}', b'{"record":"device","x":1}\n'),
        (b"note to self", b"note to self\n"),
        (b"[1]\n[2]", b"[1]\n[2]\n"),
        (b"x" * 5_000_000, b"x" * 5_000_000 + b"\n"),
        (b"\n", b"\n"),
        (b"", b""),
    ],
)
async def test_a_partial_last_line_is_removed_or_completed_first(
    tmp_path: Path, before: bytes, after: bytes
) -> None:
    path = tmp_path / "gpu.jsonl"
    path.write_bytes(before)
    await write_lines(path)
    content = path.read_bytes()
    assert content.startswith(after)
    assert [line["readings"] for line in parsed(content[len(after) :])] == [{"power_watts": 1}]


# -- faults


async def test_lines_for_a_full_device_are_dropped_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench = await write_lines(Path("/dev/full"), 3)
    assert (bench.emitted, bench.dropped) == (0, {"no_space": 3})
    assert caplog.text.count("No space left") == 1


async def test_a_partly_written_line_is_cut_off_when_the_disk_is_full(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    path = tmp_path / "gpu.jsonl"
    bench = Bench(options(path))
    async with bench.writing():
        await bench.write(2)
        with file_size_limit(path.stat().st_size + 100):
            await bench.write(3)
            assert watts(path) == [1, 2]
        await bench.write(1)
    assert watts(path) == [1, 2, 6]
    assert (bench.emitted, bench.dropped) == (3, {"no_space": 3})
    assert caplog.text.count("cannot write") == 1
    assert "3 readings were dropped" in caplog.text


async def test_a_partial_line_that_cannot_be_cut_off_is_cut_off_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    path = tmp_path / "gpu.jsonl"
    bench = Bench(options(path))
    async with bench.writing():
        await bench.write(1)
        with monkeypatch.context() as broken:
            broken.setattr(rotating_file, "repair_tail", fail)
            with file_size_limit(path.stat().st_size + 100):
                await bench.write(1)
            assert not path.read_bytes().endswith(b"\n")
            await bench.write(1)
        await bench.write(1)
    assert watts(path) == [1, 4]
    assert bench.dropped == {"no_space": 1, "io_error": 1}


async def test_lines_are_dropped_while_a_file_replaces_the_folder(tmp_path: Path) -> None:
    path = tmp_path / "log" / "gpu.jsonl"
    path.parent.mkdir()
    bench = Bench(options(path))
    async with bench.writing():
        await bench.write(1)
        shutil.rmtree(path.parent)
        path.parent.write_text("in the way")
        await bench.write(2)
        path.parent.unlink()
        await bench.write(1)
    assert watts(path) == [4]
    assert bench.dropped == {"write_error": 2}


async def test_unusable_paths_are_permanent_errors_at_the_start(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, text in [
        (tmp_path / "none" / "gpu.jsonl", r"/none, the folder of .*mkdir -p"),
        (tmp_path, "is a folder"),
        (tmp_path / "pipe", "not a regular file"),
    ]:
        with pytest.raises(PermanentError, match=text):
            await write_lines(path)
    assert not (tmp_path / "none").exists()


async def test_the_descriptor_of_a_pipe_is_a_permanent_error() -> None:
    read_end, write_end = os.pipe()
    try:
        with pytest.raises(PermanentError, match="not a regular file"):
            await write_lines(Path(f"/dev/fd/{write_end}"))
    finally:
        os.close(read_end)
        os.close(write_end)


async def test_a_permission_error_at_the_start_is_a_transient_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(rotating_file, "repair_tail", fail)
    with pytest.raises(TransientError, match="Permission denied"):
        await write_lines(tmp_path / "gpu.jsonl")
