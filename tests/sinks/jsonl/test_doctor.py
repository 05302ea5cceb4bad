"""What the doctor says of the file of JSON lines, each fault provoked."""

import os
from pathlib import Path

import pytest

from config.value_types import ByteSize
from pipeline.component.findings import Finding, Verdict
from pipeline.diagnostics import write_access
from sinks.jsonl.doctor import examine
from sinks.jsonl.options import Options
from tests.podgpu.doctor.support import context, is_bad, of, write


async def looked(folder: Path, options: Options) -> Finding:
    return of(await examine(options, context(folder / "ctx")), "jsonl.file")


async def test_standard_output_and_a_file_are_well(tmp_path: Path) -> None:
    assert (await looked(tmp_path / "a", Options())).verdict is Verdict.OK
    given_out = await looked(tmp_path / "b", Options(path=str(tmp_path / "gpu.jsonl")))
    assert given_out.verdict is Verdict.OK
    assert not (tmp_path / "gpu.jsonl").exists()


async def test_no_folder(tmp_path: Path) -> None:
    given_out = await looked(tmp_path, Options(path=str(tmp_path / "none/gpu.jsonl")))
    is_bad(given_out, "failure", f"folder {tmp_path}/none does not exist", "mkdir -p")


async def test_the_folder_is_that_of_the_file_behind_a_link(tmp_path: Path) -> None:
    link = tmp_path / "gpu.jsonl"
    link.symlink_to(tmp_path / "none/real.jsonl")
    given_out = await looked(tmp_path, Options(path=str(link)))
    is_bad(given_out, "failure", f"folder {tmp_path}/none does not exist", "mkdir -p")


@pytest.mark.parametrize("size", ["64MiB", "0B"])
async def test_a_file_that_may_not_be_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: str
) -> None:
    """Root may write to any: that it may not is the call's word here."""
    path = write(tmp_path / "gpu.jsonl")
    ctx = context(tmp_path / "ctx")
    monkeypatch.setattr(write_access.os, "access", lambda *_: False)  # type: ignore[attr-defined]
    options = Options(path=str(path), max_size=ByteSize.parse(size))
    given_out = of(await examine(options, ctx), "jsonl.file")
    is_bad(given_out, "failure", "is not writable", "mount the folder")


@pytest.mark.parametrize("size", ["64MiB", "0B"])
async def test_what_lines_cannot_be_written_to(tmp_path: Path, size: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for name in ("pipe", "link"):
        options = Options(path=str(tmp_path / name), max_size=ByteSize.parse(size))
        given_out = await looked(tmp_path / f"ctx-{name}", options)
        is_bad(given_out, "failure", "is not a regular file", "standard output")


async def test_a_device_will_do_as_it_does_for_the_sink(tmp_path: Path) -> None:
    given_out = await looked(tmp_path, Options(path="/dev/null"))
    assert given_out.verdict is Verdict.OK
