"""The doctor's check `jsonl.file`, with each fault provoked."""

import os
from functools import partial
from pathlib import Path

import pytest

from config.value_types import ByteSize
from pipeline.component.findings import Finding, Verdict
from pipeline.diagnostics import file_access
from pipeline.diagnostics.check_runner import findings_of
from sinks.jsonl.doctor import examine
from sinks.jsonl.options import Options
from tests.podgpu.doctor.support import context, is_bad, of, write


async def check_file(folder: Path, options: Options) -> Finding:
    return of(await findings_of(partial(examine, options, context(folder / "ctx"))), "jsonl.file")


async def test_standard_output_and_a_writable_file_are_ok(tmp_path: Path) -> None:
    assert (await check_file(tmp_path / "a", Options())).verdict is Verdict.OK
    finding = await check_file(tmp_path / "b", Options(path=str(tmp_path / "gpu.jsonl")))
    assert finding.verdict is Verdict.OK
    assert not (tmp_path / "gpu.jsonl").exists()


async def test_a_missing_folder_is_a_failure(tmp_path: Path) -> None:
    finding = await check_file(tmp_path, Options(path=str(tmp_path / "none/gpu.jsonl")))
    is_bad(finding, "failure", f"folder {tmp_path}/none does not exist", "mkdir -p")


async def test_the_folder_of_a_link_target_is_checked(tmp_path: Path) -> None:
    link = tmp_path / "gpu.jsonl"
    link.symlink_to(tmp_path / "none/real.jsonl")
    finding = await check_file(tmp_path, Options(path=str(link)))
    is_bad(finding, "failure", f"folder {tmp_path}/none does not exist", "mkdir -p")


@pytest.mark.parametrize("size", ["64MiB", "0B"])
async def test_a_file_without_write_permission_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: str
) -> None:
    """`os.access` is patched, since root may write to any file."""
    path = write(tmp_path / "gpu.jsonl")
    ctx = context(tmp_path / "ctx")
    monkeypatch.setattr(file_access.os, "access", lambda *_: False)  # type: ignore[attr-defined]
    options = Options(path=str(path), max_size=ByteSize.parse(size))
    finding = of(await findings_of(partial(examine, options, ctx)), "jsonl.file")
    is_bad(finding, "failure", "is not writable", "mount the folder")


@pytest.mark.parametrize("size", ["64MiB", "0B"])
async def test_a_pipe_in_place_of_the_file_is_a_failure(tmp_path: Path, size: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for name in ("pipe", "link"):
        options = Options(path=str(tmp_path / name), max_size=ByteSize.parse(size))
        finding = await check_file(tmp_path / f"ctx-{name}", options)
        is_bad(finding, "failure", "is not a regular file", "standard output")


async def test_a_character_device_is_ok_as_for_the_sink(tmp_path: Path) -> None:
    finding = await check_file(tmp_path, Options(path="/dev/null"))
    assert finding.verdict is Verdict.OK
