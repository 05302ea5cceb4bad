"""What the doctor says of the podlist.json that is written, each fault provoked."""

import os
from pathlib import Path
from typing import Any

import pytest

from pipeline.component.findings import Finding, Verdict
from sinks.podlist.doctor import examine
from sinks.podlist.options import Options
from tests.podgpu.doctor.support import context, is_bad, of, write


async def looked(
    folder: Path, path: Path, *, mounted: bool = False, how: Any = "rename"
) -> Finding:
    ctx = context(folder / "ctx")
    if mounted:
        with (ctx.roots.proc / "self/mountinfo").open("a") as file:
            file.write(f"40 22 8:1 /x {path} rw - ext4 /dev/sda1 rw\n")
    return of(await examine(Options(path=path, write=how), ctx), "podlist.target")


async def test_a_folder_and_a_file_are_well(tmp_path: Path) -> None:
    path = tmp_path / "podlist.json"
    assert (await looked(tmp_path / "a", path)).verdict is Verdict.OK
    assert not path.exists()
    assert (await looked(tmp_path / "b", write(path, "[]"))).verdict is Verdict.OK


async def test_no_folder(tmp_path: Path) -> None:
    given_out = await looked(tmp_path, tmp_path / "none/podlist.json")
    is_bad(given_out, "failure", "does not exist", "mkdir -p")


async def test_a_link_would_be_replaced(tmp_path: Path) -> None:
    link = tmp_path / "podlist.json"
    link.symlink_to(write(tmp_path / "real.json", "[]"))
    given_out = await looked(tmp_path, link)
    is_bad(given_out, "failure", "symbolic link", f"set path to {tmp_path}/real.json")


async def test_a_file_that_is_mounted_by_itself(tmp_path: Path) -> None:
    path = write(tmp_path / "podlist.json", "[]")
    given_out = await looked(tmp_path / "a", path, mounted=True)
    is_bad(given_out, "warning", "is a mount point", "write: inplace")
    inplace = await looked(tmp_path / "b", path, mounted=True, how="inplace")
    assert inplace.verdict is Verdict.OK


@pytest.mark.parametrize("how", ["rename", "inplace"])
async def test_what_is_no_file(tmp_path: Path, how: str) -> None:
    os.mkfifo(tmp_path / "podlist.json")
    given_out = await looked(tmp_path, tmp_path / "podlist.json", how=how)
    is_bad(given_out, "failure", "is not a regular file", "the path of a file")
