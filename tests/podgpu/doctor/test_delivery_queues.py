"""The check `queue.folder`."""

import os
from pathlib import Path

import pytest

from config.value_types import ByteSize
from pipeline.component.findings import Verdict
from pipeline.delivery.queue.disk.folder import QueueFolder
from pipeline.diagnostics.check_runner import findings_of
from pipeline.diagnostics.file_access import file_system, is_mounted
from podgpu.doctor import delivery_queues
from tests.podgpu.doctor.support import (
    PODGPU,
    context,
    healthy,
    in_this_container,
    is_bad,
    of,
    process,
    write,
)

MIB = ByteSize.parse("1MiB")


def test_a_writable_folder_is_ok_and_stays_unchanged(tmp_path: Path) -> None:
    roots = healthy(tmp_path / "node")
    folder = tmp_path / "queue"
    folder.mkdir()
    finding = of([delivery_queues.check_folder(folder, MIB, roots.proc)], "queue.folder")
    assert finding.verdict is Verdict.OK
    assert "ext4" in finding.observed
    assert list(folder.iterdir()) == []
    later = of(
        [delivery_queues.check_folder(tmp_path / "new/deep", MIB, roots.proc)], "queue.folder"
    )
    assert later.verdict is Verdict.OK
    assert f"to be created in {tmp_path}" in later.subject
    assert not (tmp_path / "new").exists()


def test_a_queue_on_tmpfs_is_a_warning(tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    write(
        proc / "self/mountinfo",
        "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
        f"30 22 0:31 / {tmp_path} rw,nosuid shared:5 master:2 - tmpfs tmpfs rw\n",
    )
    found = [delivery_queues.check_folder(tmp_path, MIB, proc)]
    is_bad(of(found, "queue.folder"), "warning", "tmpfs", "node's disk (hostPath)")


def test_a_folder_that_is_not_writable_is_a_failure(tmp_path: Path) -> None:
    # procfs accepts no file, not even from root.
    found = [delivery_queues.check_folder(Path("/proc/self/queue"), MIB, tmp_path)]
    is_bad(of(found, "queue.folder"), "failure", "not writable", "writ")
    path = write(tmp_path / "file")
    is_bad(
        delivery_queues.check_folder(path / "queue", MIB, tmp_path),
        "failure",
        "is not a folder",
        "hostPath",
    )


def test_a_disk_with_too_little_free_space_is_a_warning(tmp_path: Path) -> None:
    found = [
        delivery_queues.check_folder(
            tmp_path, ByteSize.parse("1000000TiB"), healthy(tmp_path / "n").proc
        )
    ]
    is_bad(of(found, "queue.folder"), "warning", "MiB are free", "lower queue.max_size")


@pytest.mark.parametrize("kind", ["overlay", "aufs", "fuse.fuse-overlayfs"])
def test_a_queue_on_the_writable_layer_of_the_container_is_a_warning(
    tmp_path: Path, kind: str
) -> None:
    write(tmp_path / "proc/self/mountinfo", f"22 1 0:31 / / rw - {kind} {kind} rw\n")
    found = [delivery_queues.check_folder(tmp_path / "queue", MIB, tmp_path / "proc")]
    is_bad(of(found, "queue.folder"), "warning", "the container's layer", "(hostPath)")


OWNERS = [
    ("this container's", "ok"),
    ("another container's", "failure"),
    ("unknown", "failure"),
]


@pytest.mark.parametrize(("owner", "verdict"), OWNERS)
def test_a_queue_in_use_is_ok_only_if_this_container_uses_it(
    tmp_path: Path, owner: str, verdict: str
) -> None:
    proc, folder = healthy(tmp_path / "node").proc, tmp_path / "queue"
    queue = QueueFolder(folder, flushes=False)
    if owner != "unknown":
        process(proc, 7, *PODGPU)
        root = tmp_path if owner == "another container's" else None
        (in_this_container(proc, 7, root) / "9").symlink_to(folder / "lock")
    finding = of([delivery_queues.check_folder(folder, MIB, proc)], "queue.folder")
    queue.close()
    assert finding.verdict.value == verdict, finding
    if verdict == "failure":
        observed = f"in use by another podgpu, process {os.getpid()} in its own container"
        is_bad(finding, verdict, observed, "each podgpu needs its own folder")
    # The queue is free again, and the check did not keep the lock.
    assert (
        of([delivery_queues.check_folder(folder, MIB, proc)], "queue.folder").verdict is Verdict.OK
    )
    QueueFolder(folder, flushes=False).close()


def test_space_that_the_queue_uses_counts_as_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proc, folder = healthy(tmp_path / "node").proc, tmp_path / "queue"
    write(folder / "00000000000000000001.seg", "x" * (3 << 20))
    monkeypatch.setattr(delivery_queues.os, "statvfs", lambda _: Space())  # type: ignore[attr-defined]
    finding = delivery_queues.check_folder(folder, ByteSize.parse("4MiB"), proc)
    assert finding.verdict is Verdict.OK, finding
    finding = delivery_queues.check_folder(folder, ByteSize.parse("6MiB"), proc)
    is_bad(finding, "warning", "2 MiB are free, the queue uses 3 MiB", "free space")


class Space:
    """Result of `statvfs` for a disk with 2 MiB free."""

    f_bavail, f_frsize = 2, 1 << 20


async def test_each_sink_with_a_queue_is_checked(tmp_path: Path) -> None:
    text = (
        f"sinks: {{a: {{kind: otlp, queue: {{path: {tmp_path}/q}}}}, b: {{kind: otlp}},"
        " c: {kind: jsonl}}\n"
    )
    ctx = context(tmp_path, text)
    made = delivery_queues.examinations(ctx.config, ctx)
    assert [each.name for each in made] == ["sink a", "sink b"]
    found = [finding for each in made for finding in await findings_of(each.work)]
    assert [finding.verdict for finding in found] == [Verdict.OK, Verdict.SKIPPED]


MOUNTS = """\
22 1 8:1 / / rw - ext4 /dev/sda1 rw
23 22 0:21 / /dev/shm rw - tmpfs shm rw
24 22 0:22 / /a\\040b rw shared:3 - xfs /dev/sdb rw
25 24 0:23 / /a\\040b rw - tmpfs none rw
nonsense
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/etc", "ext4"), ("/dev/shm/q", "tmpfs"), ("/dev/shmem", "ext4"), ("/a b/c", "tmpfs")],
)
def test_the_file_system_of_a_path_is_that_of_the_nearest_mount(
    tmp_path: Path, path: str, kind: str
) -> None:
    write(tmp_path / "self/mountinfo", MOUNTS)
    assert file_system(Path(path), tmp_path) == kind
    assert not is_mounted(Path(path), tmp_path)
    assert is_mounted(Path("/dev/shm"), tmp_path)


def test_without_a_list_of_mounts_the_file_system_is_unknown(tmp_path: Path) -> None:
    assert file_system(tmp_path, tmp_path) == ""
