"""Paths that may not even be looked at: told as such by every check, and no check's bug."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.diagnostics.path_access import access_problem, is_socket
from tests.podgpu.doctor.support import unix_socket, write

ROOT = Path(__file__).parents[3]
SOURCE = "sources: {r: {kind: replay, path: 'builtin:demo'}}\n"
SINK = "sinks: {l: {kind: jsonl}}\n"
PLACES = {
    "queue.folder": SOURCE + "sinks: {o: {kind: jsonl, queue: {path: CLOSED/a/q}}}\n",
    "podlist.target": SOURCE + "sinks: {o: {kind: podlist, path: CLOSED/a/p.json}}\n",
    "jsonl.file": SOURCE + "sinks: {o: {kind: jsonl, path: CLOSED/a/x.jsonl}}\n",
    "ledger.file": SOURCE + "sinks: {o: {kind: ledger, path: CLOSED/a/u.db}}\n",
    "textfile.folder": SOURCE + "sinks: {o: {kind: textfile, path: CLOSED/a/x.prom}}\n",
    "podresources.socket": "sources: {k: {kind: podresources, sockets: [CLOSED/a/k.sock]}}\n"
    + SINK,
    "checkpoint.file": "sources: {k: {kind: checkpoint, path: CLOSED/a/c}}\n" + SINK,
    "podlist.file": "sources: {k: {kind: podlist, path: CLOSED/a/p.json}}\n" + SINK,
    "nri.socket": "sources: {k: {kind: nri, socket: CLOSED/a/n.sock}}\n" + SINK,
    "dcgm.page": "sources: {k: {kind: dcgm, path: CLOSED/a/x.prom}}\n" + SINK,
    "replay.recording": "sources: {k: {kind: replay, path: CLOSED/a/x.gz}}\n" + SINK,
    "counters": "counters: {file: CLOSED/a/c.csv}\n" + SOURCE + SINK,
    "http.web_config": "http: {web_config: CLOSED/a/web.yml}\n" + SOURCE + SINK,
}
"""By check: a configuration whose path is below a folder of somebody else's."""

PROGRAM = """
import asyncio, json, os, sys
from config.loader import parse
from pipeline.diagnostics.context import DoctorContext
from podgpu.doctor.node_checks import diagnose
from pipeline.component.registry import RegisteredKinds

def looked(text):
    made = parse(text, RegisteredKinds(), env={}, origin="test")
    found = asyncio.run(diagnose(DoctorContext(made, environ={}, synchronised=lambda: True)))
    return [[each.check, each.verdict.value, each.observed, each.fix] for each in found]

texts = json.load(sys.stdin)
for text in texts.values():
    looked(text)  # all modules are loaded, from wherever they are
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
print(json.dumps({"uid": os.geteuid(), **{name: looked(text) for name, text in texts.items()}}))
"""


def test_a_folder_of_someone_else_s_is_reported_by_each_check(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    (closed / "a").mkdir(parents=True)
    closed.chmod(0o700 if os.geteuid() == 0 else 0)
    texts = {check: text.replace("CLOSED", str(closed)) for check, text in PLACES.items()}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        input=json.dumps(texts),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    closed.chmod(0o700)
    assert done.returncode == 0, done.stderr
    given_out = json.loads(done.stdout)
    uid = given_out.pop("uid")
    for check, findings in given_out.items():
        assert "check.bug" not in [each[0] for each in findings], findings
        (found,) = [each for each in findings if each[0] == check]
        _, verdict, saw, repair = found
        assert verdict == "failure", found
        reported_why = re.search(f"permission denied (to|for) uid {uid}|no permission to read", saw)
        assert reported_why, found
        assert "does not exist" not in saw, found
        assert repair, found


def test_what_is_there_or_is_not_is_no_fault(tmp_path: Path) -> None:
    file = write(tmp_path / "file")
    for path in (tmp_path, file, tmp_path / "none", tmp_path / "none/deep", file / "below"):
        assert access_problem(path) == ""


LOOPS = [("loop", "symbolic links"), ("x" * 300, "too long"), ("a\0b", "null byte")]


@pytest.mark.parametrize(("name", "given_out"), LOOPS)
def test_other_paths_that_cannot_be_looked_at_are_reported_in_words(
    tmp_path: Path, name: str, given_out: str
) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert given_out in access_problem(tmp_path / name)
    assert not is_socket(tmp_path / name)


def test_a_socket_is_one(tmp_path: Path) -> None:
    with unix_socket(tmp_path / "s"):
        assert is_socket(tmp_path / "s")
    assert not is_socket(write(tmp_path / "f"))
