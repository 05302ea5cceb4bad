"""What the doctor says of podlist.json, each fault provoked."""

import os
import re
import time
from pathlib import Path

import pytest

from pipeline.component.findings import Finding, Verdict
from pipeline.files import bounded_read
from sources.podlist.doctor import examine
from sources.podlist.options import Options
from tests.podgpu.doctor.support import context, is_bad, of, write

LIST = '[{"name": "a", "namespace": "ml", "container": "c", "gpu_list": [0]}]'
BOOT = 1_700_000_000


async def looked(folder: Path, path: Path) -> Finding:
    return of(await examine(Options(path=path), context(folder / "ctx")), "podlist.file")


async def test_a_good_list_is_well(tmp_path: Path) -> None:
    given_out = await looked(tmp_path, write(tmp_path / "podlist.json", LIST))
    assert given_out.verdict is Verdict.OK
    assert re.fullmatch(r"1 containers hold devices; written [0-9]+ s ago", given_out.observed)


async def test_a_folder_that_is_not_mounted(tmp_path: Path) -> None:
    given_out = await looked(tmp_path, tmp_path / "none/podlist.json")
    is_bad(given_out, "failure", "it is not mounted", f"mount the folder {tmp_path}/none")


async def test_no_list_in_the_folder(tmp_path: Path) -> None:
    given_out = await looked(tmp_path, tmp_path / "podlist.json")
    is_bad(given_out, "failure", "the file does not", "its writer runs")


MALFORMED = [("", "is empty"), ("{", ""), ('{"pods": []}', "list"), ("[{]", "")]


@pytest.mark.parametrize(("text", "saw"), MALFORMED)
async def test_a_malformed_list(tmp_path: Path, text: str, saw: str) -> None:
    given_out = await looked(tmp_path, write(tmp_path / "podlist.json", text))
    is_bad(given_out, "failure", saw, "check what its writer writes")


async def test_an_entry_that_means_nothing_is_a_warning(tmp_path: Path) -> None:
    path = write(tmp_path / "podlist.json", LIST.replace("[0]", '["zero", null]'))
    is_bad(await looked(tmp_path, path), "warning", "entries are ignored", "fix the entries")


async def test_a_list_from_before_the_node_was_started_is_stale(tmp_path: Path) -> None:
    path = write(tmp_path / "podlist.json", LIST)
    os.utime(path, (BOOT - 60, BOOT - 60))
    is_bad(await looked(tmp_path, path), "warning", "is out of date", "check that its writer runs")
    os.utime(path, (BOOT + 60, BOOT + 60))
    assert (await looked(tmp_path / "b", path)).verdict is Verdict.OK


AGES = [(30, "30 s"), (600, "10 min"), (3 * 86400, "3 d")]


@pytest.mark.parametrize(("age", "given_out"), AGES)
async def test_its_age_is_reported(tmp_path: Path, age: int, given_out: str) -> None:
    path = write(tmp_path / "podlist.json", LIST)
    os.utime(path, (time.time() - age - 0.1,) * 2)
    assert f"written {given_out} ago" in (await looked(tmp_path, path)).observed


async def test_a_list_from_the_future_contradicts_the_clock(tmp_path: Path) -> None:
    path = write(tmp_path / "podlist.json", LIST)
    os.utime(path, (time.time() + 3600,) * 2)
    is_bad(await looked(tmp_path, path), "warning", "s in the future", "check the clock")


async def test_a_list_that_names_no_one_has_no_age(tmp_path: Path) -> None:
    path = write(tmp_path / "podlist.json", "[]")
    os.utime(path, (BOOT - 60, BOOT - 60))
    assert (await looked(tmp_path, path)).verdict is Verdict.OK


async def test_a_mount_that_shows_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The descriptor of a file that was removed after it was opened stands for such a mount."""
    path = write(tmp_path / "podlist.json", LIST)
    whole = os.open

    def gone(name: Path, flags: int) -> int:
        descriptor = whole(name, flags)
        path.unlink()
        return descriptor

    ctx = context(tmp_path / "ctx")
    monkeypatch.setattr(bounded_read.os, "open", gone)  # type: ignore[attr-defined]
    given_out = of(await examine(Options(path=path), ctx), "podlist.file")
    is_bad(given_out, "failure", "the file was replaced", "instead of the file")
