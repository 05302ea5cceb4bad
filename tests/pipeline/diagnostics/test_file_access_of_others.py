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


def findings_as_other_user(checks: dict[Path, str]) -> dict[Path, list[str]]:
    """Run the check of each folder as user 65534; return its verdict, observation and fix."""
    texts = {
        str(folder): SOURCE + SINKS[check].replace("HERE", str(folder))
        for folder, check in checks.items()
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        input=json.dumps(texts),
        capture_output=True,
        text=True,
        timeout=28,
        check=True,
    )
    findings = json.loads(done.stdout)
    results = {}
    for folder, check in checks.items():
        (found,) = [each for each in findings[str(folder)] if each[0] == check]
        results[folder] = [str(each) for each in found[1:]]
    return results


def make_folder(place: Path) -> Path:
    """Create a folder that all users can reach."""
    place.mkdir()
    place.chmod(0o777)
    return place


def make_file(folder: Path, name: str, mode: int, owner: int = 0) -> None:
    path = write(folder / name)
    path.chmod(mode)
    os.chown(path, owner, owner)


@pytest.mark.slow
def test_files_of_a_queue_have_to_be_readable_and_writable(here: Path) -> None:
    folders = {}
    for name in ("lock", "cursor", "00000000000000000001.seg"):
        for mode in (0o600, 0o444, 0o222):
            folder = make_folder(here / f"{name}-{mode:o}")
            make_file(folder, name, mode)
            folders[folder] = name
    found = findings_as_other_user(dict.fromkeys(folders, "queue.folder"))
    for folder, name in folders.items():
        verdict, observed, fix = found[folder]
        assert verdict == "failure", folder
        assert observed == f"{name} may not be read and written by uid {OTHER}", folder
        assert fix.startswith(f"chown -R {OTHER} {folder}"), folder


@pytest.mark.slow
def test_own_files_are_ok_and_of_other_files_one_is_named_and_the_rest_counted(here: Path) -> None:
    own, mixed = (make_folder(here / name) for name in ("own", "mixed"))
    names = ["lock", "cursor", "00000000000000000001.seg", "00000000000000000002.seg"]
    for name in names:
        make_file(own, name, 0o600, OTHER)
        make_file(mixed, name, 0o600, OTHER if name == "lock" else 0)
    found = findings_as_other_user(dict.fromkeys((own, mixed), "queue.folder"))
    assert found[own][0] in {"ok", "warning"}
    assert found[mixed][1].startswith("cursor and 2 more may not be read")


FILES = {
    "queue.folder": "lock",
    "podlist.target": "p.json",
    "textfile.folder": "x.prom",
    "jsonl.file": "x.jsonl",
}
CASES = [(0o1777, 0, 0, True), (0o1777, OTHER, 0, False), (0o1777, 0, OTHER, False)]
CASES.append((0o777, 0, 0, False))


@pytest.mark.slow
def test_in_a_sticky_folder_files_of_other_users_cannot_be_replaced(here: Path) -> None:
    checks, is_failure = {}, {}
    for check in SINKS:
        for mode, folder_owner, file_owner, failure in CASES:
            folder = make_folder(here / f"{check}-{mode:o}-{folder_owner}-{file_owner}")
            make_file(folder, FILES[check], 0o666, file_owner)
            folder.chmod(mode)
            os.chown(folder, folder_owner, folder_owner)
            checks[folder], is_failure[folder] = check, failure
    for folder, (verdict, observed, fix) in findings_as_other_user(checks).items():
        assert (verdict == "failure") == is_failure[folder], (folder, observed)
        if is_failure[folder]:
            expected = f"{folder} is sticky (mode 1777): uid {OTHER} may not replace it"
            assert expected in observed, folder
            assert "chown" in fix, folder


def test_root_may_replace_and_read_all_files(here: Path) -> None:
    make_file(here, "x.prom", 0o666, OTHER)
    here.chmod(0o1777)
    os.chown(here, OTHER, OTHER)
    assert not_replaceable_reason(here / "x.prom") == ""
    assert inaccessible([here / "x.prom", here / "none"]) == []
