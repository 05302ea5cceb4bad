"""Faults of the sink `textfile`: errors name the cause and the fix."""

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from config.errors import ConfigError
from config.loader import parse
from config.value_types import Duration
from pipeline.base.channels import Channel
from pipeline.base.errors import PermanentError, TransientError
from pipeline.component.registry import RegisteredKinds
from pipeline.model import Snapshot
from sinks.textfile.options import Options
from sinks.textfile.sink import TextfileSink
from tests.pipeline.exposition.pages import context, plain_gpus
from tests.sinks.podlist.support import names
from tests.support.mounts import MAY_MOUNT, with_mounts


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "collected"
    folder.mkdir()
    return folder / "podgpu.prom"


def sink(path: Path) -> TextfileSink:
    return TextfileSink(Options(path=path), context(plain_gpus()))


async def run_until_it_fails(under_test: TextfileSink) -> None:
    """Run a sink until it fails."""
    async with under_test:
        await under_test.run(Channel[Snapshot](1))


def remove_the_folder(path: Path) -> None:
    path.parent.rmdir()


def replace_the_folder_by_a_file(path: Path) -> None:
    path.parent.rmdir()
    path.parent.touch()


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (
            remove_the_folder,
            "cannot write {path}: the folder {path.parent} does not exist: create or mount it",
        ),
        (replace_the_folder_by_a_file, "cannot write {path}: not a directory"),
    ],
)
async def test_an_unusable_folder_at_the_start_is_a_transient_error(
    path: Path, fault: Callable[[Path], None], text: str
) -> None:
    fault(path)
    with pytest.raises(TransientError) as caught:
        await sink(path).__aenter__()
    assert str(caught.value) == text.format(path=path)


def make_a_folder(path: Path) -> None:
    path.mkdir()


def make_a_link(path: Path) -> None:
    path.symlink_to("elsewhere.prom")


@pytest.mark.parametrize(
    ("obstacle", "text"),
    [(make_a_folder, "is a folder"), (make_a_link, "is not a regular file")],
)
async def test_a_path_that_is_not_a_file_is_a_permanent_error(
    path: Path, obstacle: Callable[[Path], None], text: str
) -> None:
    obstacle(path)
    with pytest.raises(PermanentError) as caught:
        await sink(path).__aenter__()
    assert str(caught.value) == f"{path}: {text}; set the path of a file"


ERRORS = {
    errno.EACCES: "cannot write {path}: permission denied: uid {uid} must be able to write {place}",
    errno.EROFS: "cannot write {path}: the file system is read-only: mount {place} writable",
    errno.ENOSPC: "cannot write {path}: the disk is full",
    errno.EBUSY: "{path}: is a mount point and can't be replaced: mount its folder instead",
    errno.EIO: "cannot write {path}: input/output error",
}


@pytest.mark.parametrize("call", ["pwrite", "rename"])
@pytest.mark.parametrize("number", ERRORS, ids=errno.errorcode.get)
async def test_a_failed_write_leaves_the_file_unchanged_and_names_the_cause(
    path: Path, call: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_text("before 1\n")

    def fails(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fails)
        with pytest.raises(TransientError) as caught:
            await run_until_it_fails(sink(path))
    text = ERRORS[number].format(path=path, place=path.parent, uid=os.geteuid())
    assert str(caught.value) == text
    assert path.read_text() == "before 1\n"
    assert names(path.parent) == [path.name]


async def test_a_page_that_cannot_be_updated_is_removed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its old values would look like current ones."""
    real = os.pwrite
    written: list[bytes] = []

    def pwrite(descriptor: int, data: bytes, offset: int) -> int:
        if written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written.append(data)
        return real(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    under_test = TextfileSink(Options(path=path, interval=Duration(0)), context(plain_gpus()))
    async with asyncio.timeout(5):
        with pytest.raises(TransientError, match="the disk is full"):
            await run_until_it_fails(under_test)
    assert written
    assert names(path.parent) == []


async def test_a_file_that_cannot_be_removed_is_logged(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def unlink(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    inbox: Channel[Snapshot] = Channel(1)
    inbox.close()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", unlink)
        async with sink(path) as under_test:
            await under_test.run(inbox)
    assert f"{path}: can't be removed: Read-only file system" in caplog.text


@pytest.mark.parametrize("path", ["/data/podgpu.txt", "/data/.prom", "/data/podgpu", "/"])
def test_a_file_name_that_node_exporter_ignores_is_rejected(path: str) -> None:
    [(key, text)] = Options(path=Path(path)).problems()
    assert (key, text) == (
        "path",
        f"{path} does not end with .prom: node_exporter would ignore it",
    )


def test_two_sinks_cannot_write_the_same_file() -> None:
    text = (
        "sources: {g: {kind: nvml}}\n"
        "sinks:\n"
        "  a: {kind: textfile, path: /data/gpu.prom}\n"
        "  b: {kind: textfile, path: /data/../data/gpu.prom}\n"
        "  c: {kind: textfile, path: /data/other.prom, labels: dcgm-1x}\n"
    )
    with pytest.raises(ConfigError) as caught:
        parse(text, RegisteredKinds(), env={}, origin="f")
    assert [problem.path for problem in caught.value.problems] == ["sinks.b"]


def test_the_option_path_is_required() -> None:
    with pytest.raises(ConfigError, match="path"):
        parse(
            "sources: {g: {kind: nvml}}\nsinks: {a: {kind: textfile}}\n",
            RegisteredKinds(),
            env={},
            origin="f",
        )


# One process for both: its imports take most of the time.
WRITE = """
import asyncio, pathlib, sys
from pipeline.base.errors import TransientError
from tests.sinks.textfile.test_faults import run_until_it_fails, sink

for folder in ("file", "folder"):
    try:
        asyncio.run(run_until_it_fails(sink(pathlib.Path(sys.argv[1], folder, "gpu.prom"))))
    except TransientError as error:
        print(error)
"""
MOUNTS = (
    'mount --bind "$2" "$3/file/gpu.prom" && d="$3/folder" '
    '&& mount --bind "$d" "$d" && mount -o remount,ro,bind "$d"'
)


@pytest.mark.slow
@MAY_MOUNT
async def test_a_mounted_file_and_a_read_only_folder_are_reported(tmp_path: Path) -> None:
    outside, pod = tmp_path / "host" / "gpu.prom", tmp_path / "pod"
    inside = [pod / folder / "gpu.prom" for folder in ("file", "folder")]
    for place in (outside, *inside):
        place.parent.mkdir(parents=True)
        place.touch()
    async with with_mounts(MOUNTS, WRITE, outside, pod) as process, asyncio.timeout(10):
        output, errors = await process.communicate()
    found = output.decode().splitlines()
    assert len(found) == 2, errors.decode()
    assert "can't be replaced: mount its folder instead" in found[0]
    assert f"the file system is read-only: mount {pod}/folder writable" in found[1]
    for place in inside:
        assert names(place.parent) == ["gpu.prom"]
