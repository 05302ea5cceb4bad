"""The file stays readable line by line, whatever happens to it."""

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


async def written(path: Path, count: int = 1, **settings: str) -> Bench:
    bench = Bench(options(path, **settings))  # type: ignore[arg-type]
    async with bench.writing():
        await bench.write(count)
    return bench


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Let writes beyond a size fail in the kernel, after a part of them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


# -- the ordinary


async def test_lines_are_appended(tmp_path: Path) -> None:
    path = tmp_path / "gpu.jsonl"
    bench = await written(path, 3)
    assert (bench.emitted, bench.dropped) == (3, {})
    await written(path, 2)
    assert watts(path) == [1, 2, 3, 1, 2]
    assert path.stat().st_mode & 0o133 == 0


async def test_own_telemetry_comes_now_and_then(tmp_path: Path) -> None:
    path = tmp_path / "gpu.jsonl"
    await written(path, 25, telemetry="10s")
    kinds = [line["record"] for line in parsed(path.read_bytes())]
    assert [place for place, kind in enumerate(kinds) if kind == "telemetry"] == [1, 12, 23]
    assert len(kinds) == 28


async def test_what_is_queued_is_written_at_the_end(tmp_path: Path) -> None:
    bench = Bench(options(tmp_path / "gpu.jsonl"))
    async with bench.writing():
        for _ in range(50):
            bench.send()
    assert watts(tmp_path / "gpu.jsonl") == list(range(1, 51))


# -- rotation


async def test_rotation_by_size(tmp_path: Path) -> None:
    path = tmp_path / "gpu.jsonl"
    await written(path)
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


async def test_rotation_moves_no_more_than_it_must(tmp_path: Path) -> None:
    path = tmp_path / "gpu.jsonl"
    (tmp_path / "gpu.jsonl.2").write_text("kept")
    await written(path, 2, max_size="1B", keep=5)  # type: ignore[arg-type]
    assert (tmp_path / "gpu.jsonl.2").read_text() == "kept"
    assert watts(tmp_path / "gpu.jsonl.1", path) == [1, 2]


async def test_rotation_that_keeps_nothing(tmp_path: Path) -> None:
    path = tmp_path / "gpu.jsonl"
    await written(path, 3, max_size="1B", keep=0)  # type: ignore[arg-type]
    assert [file.name for file in tmp_path.iterdir()] == ["gpu.jsonl"]
    assert watts(path) == [3]


async def test_rotation_by_age_continues_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "gpu.jsonl"
    await written(path, 4, max_age="10s")
    bench = Bench(options(path, max_age="10s"))
    bench.clock.seconds = 7
    async with bench.writing():
        await bench.write(3)  # at 8, 9 and 10 s; the first line is of 1 s
        assert watts(path) == [1, 2, 3, 4, 1, 2, 3]
        await bench.write(1)
    assert watts(tmp_path / "gpu.jsonl.1") == [1, 2, 3, 4, 1, 2, 3]
    assert watts(path) == [4]


@pytest.mark.parametrize("step", [-1e9, -3600, -5, 5, 3600, 1e9])
@pytest.mark.parametrize("when", [0, 1, 4])
async def test_rotation_by_age_knows_nothing_of_a_clock_that_steps(
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


async def test_a_file_from_the_future_is_as_old_as_this_run(tmp_path: Path) -> None:
    path = tmp_path / "gpu.jsonl"
    path.write_text('{"record":"device","time":"9999-01-01T00:00:00.000000Z"}\n')
    bench = Bench(options(path, max_age="10s"))
    async with bench.writing():
        await bench.write(9)
        assert not (tmp_path / "gpu.jsonl.1").exists()
        await bench.write(1)
    assert watts(path) == [10]


async def test_a_file_that_came_into_its_place_is_new(tmp_path: Path) -> None:
    path = tmp_path / "gpu.jsonl"
    bench = Bench(options(path, max_age="10s"))
    async with bench.writing():
        await bench.write(8)
        path.unlink()
        await bench.write(10)
        assert watts(path) == list(range(9, 19))
        await bench.write(1)
    assert watts(tmp_path / "gpu.jsonl.1", path) == list(range(9, 20))


async def test_rotation_beside_a_link_s_target(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "disk" / "gpu.jsonl")
    await written(tmp_path / "link.jsonl", 2, max_size="1B")
    assert (tmp_path / "link.jsonl").is_symlink()
    assert watts(tmp_path / "disk" / "gpu.jsonl.1", tmp_path / "disk" / "gpu.jsonl") == [1, 2]


async def test_a_file_that_cannot_be_renamed_stays_within_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def busy(*_: object) -> None:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    monkeypatch.setattr(Path, "replace", busy)
    bench = await written(tmp_path / "gpu.jsonl", 5, max_size="1B")
    assert watts(tmp_path / "gpu.jsonl") == [1]
    assert bench.dropped == {"write_error": 4}
    assert "set max_size to 0B" in caplog.text


# -- what others do to the file


async def test_j2_renamed_as_logrotate_does(tmp_path: Path) -> None:
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


async def test_j2_copied_and_truncated(tmp_path: Path) -> None:
    path, copy = tmp_path / "gpu.jsonl", tmp_path / "gpu.jsonl.copy"
    bench = Bench(options(path))
    async with bench.writing():
        await bench.write(3)
        shutil.copy(path, copy)
        os.truncate(path, 0)
        await bench.write(2)
    assert watts(copy, path) == [1, 2, 3, 4, 5]
    assert b"\0" not in path.read_bytes()


async def test_j2_renamed_again_and_again_while_lines_come(tmp_path: Path) -> None:
    path = tmp_path / "gpu.jsonl"
    bench, old = Bench(options(path)), []
    async with bench.writing():
        for number in range(20):
            for _ in range(20):
                bench.send()
            await asyncio.sleep(0.002)  # in the middle of writing them
            old.append(path.with_name(f"old-{number}"))
            path.rename(old[-1])
            await bench.settled()
            bench.send()
            await bench.settled()
    assert watts(*old, path) == list(range(1, 421))
    assert (bench.emitted, bench.dropped) == (420, {})


async def test_j2_truncated_again_and_again_while_lines_come(tmp_path: Path) -> None:
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


async def test_j2_deleted_with_its_folder(tmp_path: Path) -> None:
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


# -- the last line of a file that was left


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
async def test_the_last_line_is_whole_before_another_follows(
    tmp_path: Path, before: bytes, after: bytes
) -> None:
    path = tmp_path / "gpu.jsonl"
    path.write_bytes(before)
    await written(path)
    content = path.read_bytes()
    assert content.startswith(after)
    assert [line["readings"] for line in parsed(content[len(after) :])] == [{"power_watts": 1}]


# -- trouble


async def test_a_full_device(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bench = await written(Path("/dev/full"), 3)
    assert (bench.emitted, bench.dropped) == (0, {"no_space": 3})
    assert caplog.text.count("No space left") == 1


async def test_no_room_in_the_middle_of_a_line(
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


async def test_a_torn_line_that_cannot_be_cut_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    path = tmp_path / "gpu.jsonl"
    bench = Bench(options(path))
    async with bench.writing():
        await bench.write(1)
        with monkeypatch.context() as broken:
            broken.setattr(rotating_file, "repair_tail", refused)
            with file_size_limit(path.stat().st_size + 100):
                await bench.write(1)
            assert not path.read_bytes().endswith(b"\n")
            await bench.write(1)
        await bench.write(1)
    assert watts(path) == [1, 4]
    assert bench.dropped == {"no_space": 1, "io_error": 1}


async def test_a_folder_that_became_a_file(tmp_path: Path) -> None:
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


async def test_what_the_start_refuses(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, text in [
        (tmp_path / "none" / "gpu.jsonl", r"the folder .*/none of .*mkdir -p"),
        (tmp_path, "is a folder"),
        (tmp_path / "pipe", "not a regular file"),
    ]:
        with pytest.raises(PermanentError, match=text):
            await written(path)
    assert not (tmp_path / "none").exists()


async def test_the_descriptor_of_a_pipe_is_refused_at_the_start() -> None:
    reads, writes = os.pipe()
    try:
        with pytest.raises(PermanentError, match="not a regular file"):
            await written(Path(f"/dev/fd/{writes}"))
    finally:
        os.close(reads)
        os.close(writes)


async def test_what_the_start_may_find_better_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(rotating_file, "repair_tail", refused)
    with pytest.raises(TransientError, match="Permission denied"):
        await written(tmp_path / "gpu.jsonl")
