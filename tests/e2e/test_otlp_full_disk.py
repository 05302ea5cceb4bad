"""The disk of the queue is full for a while."""

import errno
import io
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.delivery.contract import SHUTDOWN
from tests.e2e.collector import Collector
from tests.e2e.otlp_podgpu import PLAYED, Account, Pusher, push, pushing
from tests.e2e.processes import wait_until
from tests.e2e.queue_content import kept
from tests.e2e.received_points import arrived, check_nothing_lost, powers, thinned, written
from tests.support.mounts import MAY_MOUNT, UNSHARE

pytestmark = MAY_MOUNT


_ROOM = "4m"


class SmallDisk:
    """A small disk in a podgpu's mount namespace, with its queue.

    It exists while a process has it open, so it can be read after podgpu has ended.
    """

    def __init__(self, pusher: Pusher, mount: Path) -> None:
        assert pusher.process is not None
        seen = Path(f"/proc/{pusher.process.pid}/root") / mount.relative_to("/")
        self._open = os.open(seen, os.O_PATH | os.O_DIRECTORY)
        self.root = Path(f"/proc/self/fd/{self._open}")
        self.queue = self.root / "queue"
        self._filler = self.root / "filler"

    def fill(self) -> None:
        """Fill the disk completely."""
        with self._filler.open("ab", buffering=0) as file:
            for piece in (65536, 4096):  # a page is the smallest unit of tmpfs
                while _written(file, piece):
                    pass
        assert self.free == 0

    def clear(self) -> None:
        """Free the space."""
        self._filler.unlink()

    @property
    def free(self) -> int:
        return shutil.disk_usage(self.root).free

    def close(self) -> None:
        os.close(self._open)


def _written(file: io.RawIOBase, size: int) -> bool:
    try:
        return file.write(b"\1" * size) == size
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return False


@contextmanager
def on_small_disk(
    folder: Path, collector: Collector, *, speed: float = 1.0
) -> Iterator[tuple[Pusher, SmallDisk]]:
    """Run a podgpu with a queue on a small disk, and a sink `jsonl` that records what has to be
    sent.

    Args:
        speed: speed of the recording.
    """
    mount = folder / "disk"
    mount.mkdir()
    script = 'mount -t tmpfs -o size="$0" tmpfs "$1" && shift && exec "$@"'
    inside = (*UNSHARE, "sh", "-c", script, _ROOM, str(mount))
    sinks = {
        "otlp": push(collector.grpc_url, queue=mount / "queue"),
        "lines": {"kind": "jsonl", "path": str(folder / "lines.jsonl")},
    }
    sources = {"node": {**PLAYED, "speed": speed}}
    with pushing(folder / "podgpu", sinks, sources=sources, inside=inside) as pusher:
        disk = SmallDisk(pusher, mount)
        try:
            yield pusher, disk
        finally:
            disk.close()


def watched(pusher: Pusher, seconds: float) -> list[Account]:
    """Return the sink's counts during some time; assert that podgpu stays healthy."""
    found = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found.append(pusher.wait_account())
        assert pusher.get("/healthz").status == 200
        time.sleep(0.2)
    return found


def test_d6_a_full_disk_loses_no_point_while_memory_suffices(
    collector: Collector, tmp_path: Path
) -> None:
    with on_small_disk(tmp_path, collector) as (pusher, disk):
        wait_until(lambda: pusher.wait_account().emitted > 100, "deliveries", every=0.2)
        collector.stop()
        wait_until(lambda: pusher.wait_account().queued > 200, "a queue", every=0.2)
        disk.fill()
        wait_until(lambda: not pusher.wait_account().writable, "trouble", every=0.2)
        during = watched(pusher, 5)
        assert not any(account.writable for account in during)
        assert during[-1].queued > during[0].queued
        page = pusher.get("/metrics").body.decode()
        assert "DCGM_FI_DEV_GPU_TEMP{" in page
        assert 'podgpu_sink_up{sink="otlp"} 1' in page
        complaints = pusher.output().count("No space left on device")
        assert 0 < complaints < 10
        disk.clear()
        wait_until(lambda: pusher.wait_account().writable, "the queue is writable", every=0.2)
        collector.start()
        pusher.wait_drained()
        pusher.stop()
        check_nothing_lost(
            arrived(collector.requests()), kept(disk.queue), written(tmp_path / "lines.jsonl")
        )
    print(f"\nD6: {during[-1].queued} points waited while the disk was full, none lost")


def test_d6_a_full_disk_does_not_affect_a_reachable_collector(
    collector: Collector, tmp_path: Path
) -> None:
    with on_small_disk(tmp_path, collector) as (pusher, disk):
        wait_until(lambda: pusher.wait_account().emitted > 100, "deliveries", every=0.2)
        disk.fill()
        before = pusher.wait_account()
        wait_until(lambda: pusher.wait_account().emitted > before.emitted + 500, "more", every=0.2)
        assert all(account.delivering for account in watched(pusher, 2))
        disk.clear()
        pusher.wait_drained()
        pusher.stop()
        check_nothing_lost(
            arrived(collector.requests()), kept(disk.queue), written(tmp_path / "lines.jsonl")
        )


def test_d6_points_that_fit_nowhere_are_counted(collector: Collector, tmp_path: Path) -> None:
    """The oldest points on disk and the newest in memory are sent; those between are counted as
    dropped."""
    collector.stop()
    with on_small_disk(tmp_path, collector, speed=15.0) as (pusher, disk):
        wait_until(lambda: pusher.wait_account().queued > 2000, "a queue", every=0.2)
        disk.fill()
        wait_until(
            lambda: pusher.wait_account().dropped.get("no_space", 0) > 5000,
            "more points than fit into memory",
            seconds=90,
            every=0.2,
        )
        during = watched(pusher, 3)
        assert during[-1].dropped["no_space"] > during[0].dropped["no_space"]
        disk.clear()
        collector.start()
        pusher.wait_drained()
        pusher.stop()
        left = kept(disk.queue)
    found, lines = arrived(collector.requests()), written(tmp_path / "lines.jsonl")
    lost = left.totals.dropped["no_space"]
    assert (left.points, left.totals.rejected) == (0, {})
    assert left.totals.dropped.keys() == {"no_space"}
    assert left.totals.appended == left.totals.acked + lost
    assert left.totals.acked == len(found.points)
    found.check_order()
    for uuid, there in powers(found.points.values()).items():
        assert thinned(there, lines[uuid])
        assert (there[0], there[-1]) == (lines[uuid][0], lines[uuid][-1])
    print(f"\nD6: {lost} of {left.totals.appended} points found no room and are counted")


def test_d6_points_only_in_memory_are_counted_at_a_stop(
    collector: Collector, tmp_path: Path
) -> None:
    """Points in memory are lost at the stop, and the queue's totals contain their number."""
    collector.stop()
    with on_small_disk(tmp_path, collector) as (pusher, disk):
        on_disk = wait_until(
            lambda: account if (account := pusher.wait_account()).queued > 300 else None, "a queue"
        )
        disk.fill()
        wait_until(lambda: not pusher.wait_account().writable, "trouble", every=0.2)
        last = watched(pusher, 3)[-1]
        asked = time.monotonic()
        pusher.stop()
        assert time.monotonic() - asked < 5
        left = kept(disk.queue)
    assert left.totals.appended >= last.produced > on_disk.produced
    assert left.points >= on_disk.queued
    assert left.totals.dropped.keys() == {SHUTDOWN}
    assert left.totals.appended == left.points + left.totals.dropped[SHUTDOWN]
