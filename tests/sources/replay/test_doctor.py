"""The doctor's findings about a recording, each fault provoked."""

from functools import partial
from pathlib import Path

import pytest

from pipeline.component.findings import Finding, Verdict
from pipeline.diagnostics.check_runner import findings_of
from sources.replay.doctor import examine
from sources.replay.options import DEMO, Options
from tests.podgpu.doctor.support import context, is_bad, of, write


async def finding_of(folder: Path, path: str) -> Finding:
    return of(
        await findings_of(partial(examine, Options(path=path), context(folder / "ctx"))),
        "replay.recording",
    )


async def test_the_recording_of_the_demo_is_ok(tmp_path: Path) -> None:
    finding = await finding_of(tmp_path, DEMO)
    assert finding.verdict is Verdict.OK
    assert "recorded on node" in finding.observed


@pytest.mark.parametrize("text", ["", "no recording", "{}\n"])
async def test_a_file_that_is_no_recording_is_a_failure(tmp_path: Path, text: str) -> None:
    finding = await finding_of(tmp_path, str(write(tmp_path / "a.podgpu.gz", text)))
    is_bad(finding, "failure", "", "podgpu record wrote")


async def test_a_missing_file_is_a_failure(tmp_path: Path) -> None:
    finding = await finding_of(tmp_path, str(tmp_path / "none"))
    is_bad(finding, "failure", "no such file", "podgpu record wrote")
