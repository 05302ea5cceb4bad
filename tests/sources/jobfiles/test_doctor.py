"""The check `jobfiles.folder`."""

import os
from pathlib import Path

from pipeline.component.findings import Verdict
from sources.jobfiles.doctor import examine
from sources.jobfiles.options import Options
from tests.podgpu.doctor.support import context, is_bad
from tests.sources.jobfiles.contract import options


def test_a_folder_with_files_is_ok(tmp_path: Path) -> None:
    finding = examine(options(tmp_path), context(tmp_path))
    assert (finding.verdict, finding.observed) == (Verdict.OK, "lists the jobs of 1 devices")


def test_a_missing_folder_is_a_failure(tmp_path: Path) -> None:
    finding = examine(Options(path=tmp_path / "none"), context(tmp_path))
    assert finding.check == "jobfiles.folder"
    is_bad(finding, "failure", "no such folder", "let the prolog of a job write")


def test_a_file_that_cannot_be_read_is_a_warning(tmp_path: Path) -> None:
    made = options(tmp_path)
    os.mkfifo(made.path / "1")
    finding = examine(made, context(tmp_path))
    assert finding.check == "jobfiles.folder"
    is_bad(finding, "warning", "gpu-jobs/1: is not a regular file", "let podgpu's user read")
