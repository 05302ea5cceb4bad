"""D6, D7: tests of a disk with little space, and of a full file system."""

import contextlib
import errno
import json
import os
from pathlib import Path

import pytest

from tests.pipeline.delivery.queue.failing_calls import safe
from tests.pipeline.delivery.queue.support import checked, drain, fill, points, segments
from tests.support.mounts import MAY_MOUNT, with_mounts


def open_files() -> list[str]:
    found = []
    for number in os.listdir("/proc/self/fd"):  # noqa: PTH208 - faster
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{number}"))  # noqa: PTH115 - faster
    return found


class SmallDisk:
    """A disk with limited space for segments.

    Args:
        folder: folder of the segments.
        room: space in bytes.
    """

    def __init__(self, patch: pytest.MonkeyPatch, folder: Path, room: int) -> None:
        self._original = os.pwritev
        self._folder = folder
        self.room = room
        patch.setattr(os, "pwritev", self)

    def __call__(self, fd: int, pieces: list[bytes], place: int) -> int:
        taken = sum(file.stat().st_size for file in self._folder.glob("*.seg*"))
        if taken + sum(map(len, pieces)) > self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self._original(fd, pieces, place)


@pytest.mark.slow
@pytest.mark.parametrize("restart", [False, True])
def test_d6_settled_records_free_their_space_on_a_small_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, restart: bool
) -> None:
    """D6: a segment can have 64 KiB, but the disk has only space for 50,000 bytes."""
    bench = safe(tmp_path)
    SmallDisk(monkeypatch, bench.path, 50_000)
    queue = bench.open()
    for number in range(15):  # two or three records per segment
        put = fill(queue, 1, size=20_000, start=number)
        state = checked(queue)
        # A removed file uses space as long as it is open.
        assert not [one for one in open_files() if one.endswith(".seg (deleted)")]
        assert state.writable
        assert not state.faults
        assert drain(queue) == put
        if restart:
            queue.close()
            queue = bench.open()
    state = checked(queue)
    assert not state.totals.dropped
    assert state.bytes == sum(file.stat().st_size for file in segments(bench.path))


def test_d6_queued_records_stay_on_a_small_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = safe(tmp_path)
    SmallDisk(monkeypatch, bench.path, 50_000)
    queue = bench.open()
    put = fill(queue, 4, size=20_000)
    assert not checked(queue).writable
    taken = queue.take(40_000)
    queue.maintain(bench.clock.pass_(1))
    assert not checked(queue).writable
    queue.settle(1, acked=points(taken[:1]))
    queue.release()
    assert queue.take(20_000) == (put[1],)
    queue.settle(1, acked=points(put[1:2]))
    queue.maintain(bench.clock.pass_(1))
    assert checked(queue).writable
    assert drain(queue) == put[2:]
    assert not checked(queue).totals.dropped


TMPFS = """
import json, subprocess, sys
from pathlib import Path
from tests.pipeline.delivery.queue.support import *
from tests.pipeline.delivery.queue.support import Bench, checked, drain, fill, numbers

path = Path(sys.argv[1])
how = sys.argv[2]
bench = Bench("safe", path / "queue", fsync=1, max_size=4 << 20)
queue = bench.open()
blocks = []

def fault(on):
    if how == "space":
        if on:
            (path / "big").write_bytes(b"")
            with (path / "big").open("ab", buffering=0) as file:
                try:
                    while file.write(bytes(4096)):
                        pass
                except OSError:
                    pass
        else:
            (path / "big").unlink()
    elif how == "inodes":
        if on:
            try:
                for number in range(10_000):
                    (path / f"i{number}").touch()
            except OSError:
                pass
        else:
            for one in path.glob("i*"):
                one.unlink()
    else:
        options = "remount,ro" if on else "remount,rw"
        subprocess.run(["mount", "-o", options, path], check=False)

put = fill(queue, 3, 100_000)
fault(True)
for number in range(3, 12):
    put += fill(queue, 1, 100_000, number)
    queue.maintain(bench.clock.pass_(1))
during = checked(queue)
fault(False)
queue.maintain(bench.clock.pass_(1))
after = checked(queue)
same = drain(queue) == put
queue.close()
print(json.dumps([during.writable, [list(key) for key in during.faults], after.writable, same,
                  dict(after.totals.dropped)]))
"""


@pytest.mark.slow
@MAY_MOUNT
@pytest.mark.parametrize(("how", "reason"), [("space", "no_space"), ("inodes", "no_space")])
async def test_d6_d7_a_full_tmpfs_loses_no_record(tmp_path: Path, how: str, reason: str) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    mounts = f"mount -t tmpfs -o size=2m,nr_inodes=40 queue {folder}"
    program = TMPFS.replace("sys.argv[1]", repr(str(folder))).replace("sys.argv[2]", repr(how))
    async with with_mounts(mounts, program) as process:
        out, errors = await process.communicate()
    assert not errors.decode()
    writable, faults, later, same, dropped = json.loads(out)
    assert not writable
    assert ["write", reason] in faults
    assert later
    assert same
    assert not dropped
