"""What the doctor says of the folder of a `.prom` file, each fault provoked."""

import os
from pathlib import Path

import pytest

from pipeline.component.findings import Finding, Verdict
from pipeline.diagnostics import write_access
from sinks.textfile.doctor import examine
from sinks.textfile.options import Options
from tests.podgpu.doctor.support import context, is_bad, of, write
from tests.support.mounts import MAY_MOUNT, beside


async def looked(folder: Path, path: Path) -> Finding:
    return of(await examine(Options(path=path), context(folder / "ctx")), "textfile.folder")


async def test_a_folder_that_may_be_written_to_is_well_and_left_as_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "collector"
    folder.mkdir()
    given_out = await looked(tmp_path, folder / "gpu.prom")
    assert given_out.verdict is Verdict.OK
    assert list(folder.iterdir()) == []
    write(folder / "gpu.prom")
    assert (await looked(tmp_path / "b", folder / "gpu.prom")).verdict is Verdict.OK


async def test_no_folder(tmp_path: Path) -> None:
    given_out = await looked(tmp_path, tmp_path / "none/gpu.prom")
    is_bad(given_out, "failure", f"folder {tmp_path}/none does not exist", "mkdir -p")


async def test_a_folder_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "gpu.prom").mkdir()
    given_out = await looked(tmp_path, tmp_path / "gpu.prom")
    is_bad(given_out, "failure", "is a folder", "the path of a file")


async def test_what_is_no_file_is_not_written_to_and_is_reported(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.prom")
    given_out = await looked(tmp_path / "a", tmp_path / "pipe.prom")
    is_bad(given_out, "failure", "is not a regular file", "the path of a file")
    for name, target in (("dangling.prom", "none/x.prom"), ("link.prom", "real.prom")):
        write(tmp_path / "real.prom")
        (tmp_path / name).symlink_to(tmp_path / target)
        given_out = await looked(tmp_path / name[:4], tmp_path / name)
        is_bad(given_out, "failure", "is a link", "the path of a file")
    given_out = await looked(tmp_path / "c", Path("/dev/null"))
    is_bad(given_out, "failure", "is not a regular file", "the path of a file")


async def test_a_folder_of_someone_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may write to any: that it may not is the call's word here."""
    ctx = context(tmp_path / "ctx")
    monkeypatch.setattr(write_access.os, "access", lambda *_: False)  # type: ignore[attr-defined]
    given_out = of(await examine(Options(path=tmp_path / "gpu.prom"), ctx), "textfile.folder")
    is_bad(given_out, "failure", "is not writable", f"writable for uid {os.geteuid()}")


LOOK = """
import sys, pathlib
from pipeline.diagnostics.check_table import CHECKS
from pipeline.diagnostics.write_access import check_writable

path = pathlib.Path(sys.argv[1]) / "gpu.prom"
told = check_writable(CHECKS["textfile.folder"], path, replaces=True)
print(told.verdict.value, told.observed, told.fix, sep="|")
"""


@MAY_MOUNT
async def test_a_mount_that_is_read_only(tmp_path: Path) -> None:
    mounts = f"mount -t tmpfs -o ro none {tmp_path}"
    async with beside(mounts, LOOK, tmp_path, tmp_path) as process:
        said, _ = await process.communicate()
    verdict, saw, repair = said.decode().strip().split("|")
    assert (verdict, saw) == ("failure", f"{tmp_path} is mounted read-only")
    assert f"mount the folder {tmp_path} writable" in repair


@MAY_MOUNT
async def test_a_disk_that_is_full(tmp_path: Path) -> None:
    full = f"mount -t tmpfs -o size=64k none {tmp_path}"
    fill = f"(dd if=/dev/zero of={tmp_path}/all bs=1k 2>/dev/null || true)"
    async with beside(f"{full} && {fill}", LOOK, tmp_path, tmp_path) as process:
        said, errors = await process.communicate()
    verdict, saw, repair = said.decode().strip().split("|")
    assert (verdict, saw) == ("failure", "the disk is full"), errors
    assert f"free space on the disk of {tmp_path}" in repair
