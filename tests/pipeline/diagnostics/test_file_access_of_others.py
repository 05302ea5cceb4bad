"""Files of another user that podgpu can see and not use, checked as a user who is not root."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.diagnostics.file_access import inaccessible, not_replaceable_reason
from tests.pipeline.diagnostics.test_file_access import PROGRAM, ROOT, SOURCE
from tests.podgpu.doctor.support import write

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can create others' files")
SINKS = {
    "queue.folder": "sinks: {o: {kind: jsonl, queue: {path: HERE}}}\n",
    "podlist.target": "sinks: {o: {kind: podlist, path: HERE/p.json}}\n",
    "textfile.folder": "sinks: {o: {kind: textfile, path: HERE/x.prom}}\n",
    "jsonl.file": "sinks: {o: {kind: jsonl, path: HERE/x.jsonl, max_size: 1MiB}}\n",
}
OTHER = 65534


@pytest.fixture
def here() -> Iterator[Path]:
    """Return a folder that all users can reach."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name)


def finding_as_other_user(folder: Path, check: str) -> list[str]:
    """Return the verdict, the observation and the fix of a check that runs as user 65534."""
    text = SOURCE + SINKS[check].replace("HERE", str(folder))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        input=json.dumps({check: text}),
        capture_output=True,
        text=True,
        timeout=28,
        check=True,
    )
    (found,) = [each for each in json.loads(done.stdout)[check] if each[0] == check]
    return [str(each) for each in found[1:]]


def make_file(folder: Path, name: str, mode: int, owner: int = 0) -> None:
    path = write(folder / name)
    path.chmod(mode)
    os.chown(path, owner, owner)


@pytest.mark.parametrize("name", ["lock", "cursor", "00000000000000000001.seg"])
@pytest.mark.parametrize("mode", [0o600, 0o444, 0o222])
def test_files_of_a_queue_have_to_be_readable_and_writable(
    here: Path, name: str, mode: int
) -> None:
    make_file(here, name, mode)
    verdict, observed, fix = finding_as_other_user(here, "queue.folder")
    assert verdict == "failure"
    assert observed == f"{name} may not be read and written by uid {OTHER}"
    assert fix.startswith(f"chown -R {OTHER} {here}")


def test_own_files_are_ok_and_of_other_files_one_is_named_and_the_rest_counted(here: Path) -> None:
    names = ["lock", "cursor", "00000000000000000001.seg", "00000000000000000002.seg"]
    for name in names:
        make_file(here, name, 0o600, OTHER)
    assert finding_as_other_user(here, "queue.folder")[0] in {"ok", "warning"}
    for name in names[1:]:
        make_file(here, name, 0o600)
    assert finding_as_other_user(here, "queue.folder")[1].startswith(
        "cursor and 2 more may not be read"
    )


FILES = {
    "queue.folder": "lock",
    "podlist.target": "p.json",
    "textfile.folder": "x.prom",
    "jsonl.file": "x.jsonl",
}
CASES = [(0o1777, 0, 0, True), (0o1777, OTHER, 0, False), (0o1777, 0, OTHER, False)]
CASES.append((0o777, 0, 0, False))


@pytest.mark.parametrize(("mode", "folder_owner", "file_owner", "is_failure"), CASES)
@pytest.mark.parametrize("check", SINKS)
def test_in_a_sticky_folder_files_of_other_users_cannot_be_replaced(
    here: Path, check: str, mode: int, folder_owner: int, file_owner: int, *, is_failure: bool
) -> None:
    make_file(here, FILES[check], 0o666, file_owner)
    here.chmod(mode)
    os.chown(here, folder_owner, folder_owner)
    verdict, observed, fix = finding_as_other_user(here, check)
    assert (verdict == "failure") == is_failure, observed
    if is_failure:
        assert f"{here} is sticky (mode 1777): uid {OTHER} may not replace it" in observed
        assert "chown" in fix


def test_root_may_replace_and_read_all_files(here: Path) -> None:
    make_file(here, "x.prom", 0o666, OTHER)
    here.chmod(0o1777)
    os.chown(here, OTHER, OTHER)
    assert not_replaceable_reason(here / "x.prom") == ""
    assert inaccessible([here / "x.prom", here / "none"]) == []
