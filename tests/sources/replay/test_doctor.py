"""What the doctor says of a recording, each fault provoked."""

from pathlib import Path

import pytest

from pipeline.component.findings import Finding, Verdict
from sources.replay.doctor import examine
from sources.replay.options import DEMO, Options
from tests.podgpu.doctor.support import context, is_bad, of, write


async def looked(folder: Path, path: str) -> Finding:
    return of(await examine(Options(path=path), context(folder / "ctx")), "replay.recording")


async def test_the_demo_s_recording_is_well(tmp_path: Path) -> None:
    given_out = await looked(tmp_path, DEMO)
    assert given_out.verdict is Verdict.OK
    assert "recorded on node" in given_out.observed


@pytest.mark.parametrize("text", ["", "no recording", "{}\n"])
async def test_what_is_no_recording(tmp_path: Path, text: str) -> None:
    given_out = await looked(tmp_path, str(write(tmp_path / "a.podgpu.gz", text)))
    is_bad(given_out, "failure", "", "podgpu record wrote")


async def test_no_file(tmp_path: Path) -> None:
    given_out = await looked(tmp_path, str(tmp_path / "none"))
    is_bad(given_out, "failure", "no such file", "podgpu record wrote")
