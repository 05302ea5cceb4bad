"""Findings of `podgpu doctor` about the podlist.json that podgpu writes, for each fault."""

import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pipeline.component.findings import Finding, Verdict
from pipeline.diagnostics.check_runner import findings_of
from sinks.podlist.doctor import examine
from sinks.podlist.options import Options
from tests.podgpu.doctor.support import context, is_bad, of, write


async def examined(
    folder: Path, path: Path, *, mounted: bool = False, how: Any = "rename"
) -> Finding:
    ctx = context(folder / "ctx")
    if mounted:
        with (ctx.roots.proc / "self/mountinfo").open("a") as file:
            file.write(f"40 22 8:1 /x {path} rw - ext4 /dev/sda1 rw\n")
    return of(
        await findings_of(partial(examine, Options(path=path, write=how), ctx)), "podlist.target"
    )


async def test_a_folder_with_or_without_the_file_is_ok(tmp_path: Path) -> None:
    path = tmp_path / "podlist.json"
    assert (await examined(tmp_path / "a", path)).verdict is Verdict.OK
    assert not path.exists()
    assert (await examined(tmp_path / "b", write(path, "[]"))).verdict is Verdict.OK


async def test_a_missing_folder_is_a_failure(tmp_path: Path) -> None:
    finding = await examined(tmp_path, tmp_path / "none/podlist.json")
    is_bad(finding, "failure", "does not exist", "mkdir -p")


async def test_a_symbolic_link_is_a_failure(tmp_path: Path) -> None:
    link = tmp_path / "podlist.json"
    link.symlink_to(write(tmp_path / "real.json", "[]"))
    finding = await examined(tmp_path, link)
    is_bad(finding, "failure", "symbolic link", f"set path to {tmp_path}/real.json")


async def test_replacing_a_file_that_is_a_mount_point_is_a_warning(tmp_path: Path) -> None:
    path = write(tmp_path / "podlist.json", "[]")
    finding = await examined(tmp_path / "a", path, mounted=True)
    is_bad(finding, "warning", "is a mount point", "write: inplace")
    inplace = await examined(tmp_path / "b", path, mounted=True, how="inplace")
    assert inplace.verdict is Verdict.OK


@pytest.mark.parametrize("how", ["rename", "inplace"])
async def test_a_path_that_is_no_regular_file_is_a_failure(tmp_path: Path, how: str) -> None:
    os.mkfifo(tmp_path / "podlist.json")
    finding = await examined(tmp_path, tmp_path / "podlist.json", how=how)
    is_bad(finding, "failure", "is not a regular file", "the path of a file")
