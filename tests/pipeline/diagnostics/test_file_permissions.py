"""Files of somebody else's that podgpu may see and not use, looked at as a user who isn't root."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.diagnostics.file_permissions import inaccessible, not_replaceable_reason
from tests.pipeline.diagnostics.test_path_access import PROGRAM, ROOT, SOURCE
from tests.podgpu.doctor.support import write

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="root alone can make others' files")
SINKS = {
    "queue.folder": "sinks: {o: {kind: jsonl, queue: {path: HERE}}}\n",
    "podlist.target": "sinks: {o: {kind: podlist, path: HERE/p.json}}\n",
    "textfile.folder": "sinks: {o: {kind: textfile, path: HERE/x.prom}}\n",
    "jsonl.file": "sinks: {o: {kind: jsonl, path: HERE/x.jsonl, max_size: 1MiB}}\n",
}
OTHER = 65534


@pytest.fixture
def here() -> Iterator[Path]:
    """A folder that everybody may reach."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name)


def looked(folder: Path, check: str) -> list[str]:
    """Return verdict, what was seen and the mend, as user 65534 is told."""
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


def made(folder: Path, name: str, mode: int, owner: int = 0) -> None:
    path = write(folder / name)
    path.chmod(mode)
    os.chown(path, owner, owner)


@pytest.mark.parametrize("name", ["lock", "cursor", "00000000000000000001.seg"])
@pytest.mark.parametrize("mode", [0o600, 0o444, 0o222])
def test_a_queue_s_files_have_to_be_read_and_written(here: Path, name: str, mode: int) -> None:
    made(here, name, mode)
    verdict, saw, repair = looked(here, "queue.folder")
    assert verdict == "failure"
    assert saw == f"{name} may not be read and written by uid {OTHER}"
    assert repair.startswith(f"chown -R {OTHER} {here}")


def test_of_many_files_one_is_named_and_one_s_own_are_well(here: Path) -> None:
    names = ["lock", "cursor", "00000000000000000001.seg", "00000000000000000002.seg"]
    for name in names:
        made(here, name, 0o600, OTHER)
    assert looked(here, "queue.folder")[0] in {"ok", "warning"}
    for name in names[1:]:
        made(here, name, 0o600)
    assert looked(here, "queue.folder")[1].startswith("cursor and 2 more may not be read")


FILES = {
    "queue.folder": "lock",
    "podlist.target": "p.json",
    "textfile.folder": "x.prom",
    "jsonl.file": "x.jsonl",
}
CASES = [(0o1777, 0, 0, True), (0o1777, OTHER, 0, False), (0o1777, 0, OTHER, False)]
CASES.append((0o777, 0, 0, False))


@pytest.mark.parametrize(("mode", "folder_of", "file_of", "bad"), CASES)
@pytest.mark.parametrize("check", SINKS)
def test_a_sticky_folder_lets_no_one_replace_another_s_file(
    here: Path, check: str, mode: int, folder_of: int, file_of: int, *, bad: bool
) -> None:
    made(here, FILES[check], 0o666, file_of)
    here.chmod(mode)
    os.chown(here, folder_of, folder_of)
    verdict, saw, repair = looked(here, check)
    assert (verdict == "failure") == bad, saw
    if bad:
        assert f"{here} is sticky (mode 1777): uid {OTHER} may not replace it" in saw
        assert "chown" in repair


def test_root_may_do_all_as_long_as_it_has_the_capability(here: Path) -> None:
    made(here, "x.prom", 0o666, OTHER)
    here.chmod(0o1777)
    os.chown(here, OTHER, OTHER)
    assert not_replaceable_reason(here / "x.prom") == ""
    assert inaccessible([here / "x.prom", here / "none"]) == []
