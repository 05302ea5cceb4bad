"""Findings of `podgpu doctor` about podlist.json, for each fault."""

import os
import re
import time
from functools import partial
from pathlib import Path

import pytest

from pipeline.component.findings import Finding, Verdict
from pipeline.diagnostics.check_runner import findings_of
from pipeline.files import bounded_read
from sources.podlist.doctor import examine
from sources.podlist.options import Options
from tests.podgpu.doctor.support import context, is_bad, of, write

LIST = '[{"name": "a", "namespace": "ml", "container": "c", "gpu_list": [0]}]'
BOOT = 1_700_000_000


async def examined(folder: Path, path: Path) -> Finding:
    return of(
        await findings_of(partial(examine, Options(path=path), context(folder / "ctx"))),
        "podlist.file",
    )


async def test_a_valid_list_is_ok(tmp_path: Path) -> None:
    finding = await examined(tmp_path, write(tmp_path / "podlist.json", LIST))
    assert finding.verdict is Verdict.OK
    assert re.fullmatch(r"1 containers hold devices; written [0-9]+ s ago", finding.observed)


async def test_a_folder_that_is_not_mounted_is_a_failure(tmp_path: Path) -> None:
    finding = await examined(tmp_path, tmp_path / "none/podlist.json")
    is_bad(finding, "failure", "it is not mounted", f"mount the folder {tmp_path}/none")


async def test_a_folder_without_a_list_is_a_failure(tmp_path: Path) -> None:
    finding = await examined(tmp_path, tmp_path / "podlist.json")
    is_bad(finding, "failure", "the file does not", "its writer runs")


MALFORMED = [("", "is empty"), ("{", ""), ('{"pods": []}', "list"), ("[{]", "")]


@pytest.mark.parametrize(("text", "observed"), MALFORMED)
async def test_a_malformed_list_is_a_failure(tmp_path: Path, text: str, observed: str) -> None:
    finding = await examined(tmp_path, write(tmp_path / "podlist.json", text))
    is_bad(finding, "failure", observed, "check what its writer writes")


async def test_an_entry_without_a_valid_device_is_a_warning(tmp_path: Path) -> None:
    path = write(tmp_path / "podlist.json", LIST.replace("[0]", '["zero", null]'))
    is_bad(await examined(tmp_path, path), "warning", "entries are ignored", "fix these entries")


async def test_a_list_older_than_the_start_of_the_node_is_out_of_date(tmp_path: Path) -> None:
    path = write(tmp_path / "podlist.json", LIST)
    os.utime(path, (BOOT - 60, BOOT - 60))
    is_bad(
        await examined(tmp_path, path), "warning", "is out of date", "check that its writer runs"
    )
    os.utime(path, (BOOT + 60, BOOT + 60))
    assert (await examined(tmp_path / "b", path)).verdict is Verdict.OK


AGES = [(30, "30 s"), (600, "10 min"), (3 * 86400, "3 d")]


@pytest.mark.parametrize(("age", "shown"), AGES)
async def test_the_age_of_the_list_is_shown(tmp_path: Path, age: int, shown: str) -> None:
    path = write(tmp_path / "podlist.json", LIST)
    os.utime(path, (time.time() - age - 0.1,) * 2)
    assert f"written {shown} ago" in (await examined(tmp_path, path)).observed


async def test_a_list_with_a_time_in_the_future_is_a_warning(tmp_path: Path) -> None:
    path = write(tmp_path / "podlist.json", LIST)
    os.utime(path, (time.time() + 3600,) * 2)
    is_bad(await examined(tmp_path, path), "warning", "s in the future", "check the clock")


async def test_an_empty_list_is_never_out_of_date(tmp_path: Path) -> None:
    path = write(tmp_path / "podlist.json", "[]")
    os.utime(path, (BOOT - 60, BOOT - 60))
    assert (await examined(tmp_path, path)).verdict is Verdict.OK


async def test_a_mount_that_still_shows_a_replaced_file_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that was removed after it was opened looks like a file behind such a mount."""
    path = write(tmp_path / "podlist.json", LIST)
    real = os.open

    def open_and_remove(name: Path, flags: int) -> int:
        descriptor = real(name, flags)
        path.unlink()
        return descriptor

    ctx = context(tmp_path / "ctx")
    monkeypatch.setattr(bounded_read.os, "open", open_and_remove)  # type: ignore[attr-defined]
    finding = of(await findings_of(partial(examine, Options(path=path), ctx)), "podlist.file")
    is_bad(finding, "failure", "the file was replaced", "instead of the file")
