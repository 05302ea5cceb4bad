"""The doctor's check `textfile.folder`, with each fault provoked."""

import os
from functools import partial
from pathlib import Path

import pytest

from pipeline.component.findings import Finding, Verdict
from pipeline.diagnostics import file_access
from pipeline.diagnostics.check_runner import findings_of
from sinks.textfile.doctor import examine
from sinks.textfile.options import Options
from tests.podgpu.doctor.support import context, is_bad, of, write
from tests.support.mounts import MAY_MOUNT, with_mounts


async def check_folder(folder: Path, path: Path) -> Finding:
    return of(
        await findings_of(partial(examine, Options(path=path), context(folder / "ctx"))),
        "textfile.folder",
    )


async def test_a_writable_folder_is_ok_and_stays_unchanged(tmp_path: Path) -> None:
    folder = tmp_path / "collector"
    folder.mkdir()
    finding = await check_folder(tmp_path, folder / "gpu.prom")
    assert finding.verdict is Verdict.OK
    assert list(folder.iterdir()) == []
    write(folder / "gpu.prom")
    assert (await check_folder(tmp_path / "b", folder / "gpu.prom")).verdict is Verdict.OK


async def test_a_missing_folder_is_a_failure(tmp_path: Path) -> None:
    finding = await check_folder(tmp_path, tmp_path / "none/gpu.prom")
    is_bad(finding, "failure", f"folder {tmp_path}/none does not exist", "mkdir -p")


async def test_a_folder_in_place_of_the_file_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "gpu.prom").mkdir()
    finding = await check_folder(tmp_path, tmp_path / "gpu.prom")
    is_bad(finding, "failure", "is a folder", "the path of a file")


async def test_pipes_links_and_devices_in_place_of_the_file_are_failures(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.prom")
    finding = await check_folder(tmp_path / "a", tmp_path / "pipe.prom")
    is_bad(finding, "failure", "is not a regular file", "the path of a file")
    for name, target in (("dangling.prom", "none/x.prom"), ("link.prom", "real.prom")):
        write(tmp_path / "real.prom")
        (tmp_path / name).symlink_to(tmp_path / target)
        finding = await check_folder(tmp_path / name[:4], tmp_path / name)
        is_bad(finding, "failure", "is a link", "the path of a file")
    finding = await check_folder(tmp_path / "c", Path("/dev/null"))
    is_bad(finding, "failure", "is not a regular file", "the path of a file")


async def test_a_folder_without_write_permission_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`os.access` is patched, since root may write to any folder."""
    ctx = context(tmp_path / "ctx")
    monkeypatch.setattr(file_access.os, "access", lambda *_: False)  # type: ignore[attr-defined]
    finding = of(
        await findings_of(partial(examine, Options(path=tmp_path / "gpu.prom"), ctx)),
        "textfile.folder",
    )
    is_bad(finding, "failure", "is not writable", f"uid {os.geteuid()} may write to it")


CHECK_SCRIPT = """
import sys, pathlib
from pipeline.component.findings import FAILS, Check
from pipeline.diagnostics.file_access import check_writable

path = pathlib.Path(sys.argv[1]) / "gpu.prom"
finding = check_writable(Check("textfile.folder", FAILS), path, replaces=True)
print(finding.verdict.value, finding.observed, finding.fix, sep="|")
"""


@MAY_MOUNT
async def test_a_read_only_mount_is_a_failure(tmp_path: Path) -> None:
    mounts = f"mount -t tmpfs -o ro none {tmp_path}"
    async with with_mounts(mounts, CHECK_SCRIPT, tmp_path, tmp_path) as process:
        output, _ = await process.communicate()
    verdict, observed, fix = output.decode().strip().split("|")
    assert (verdict, observed) == ("failure", f"{tmp_path} is mounted read-only")
    assert f"mount the folder {tmp_path} so that uid" in fix


@MAY_MOUNT
async def test_a_full_disk_is_a_failure(tmp_path: Path) -> None:
    full = f"mount -t tmpfs -o size=64k none {tmp_path}"
    fill = f"(dd if=/dev/zero of={tmp_path}/all bs=1k 2>/dev/null || true)"
    async with with_mounts(f"{full} && {fill}", CHECK_SCRIPT, tmp_path, tmp_path) as process:
        output, errors = await process.communicate()
    verdict, observed, fix = output.decode().strip().split("|")
    assert (verdict, observed) == ("failure", "the disk is full"), errors
    assert f"make space on the disk of {tmp_path}" in fix
