"""Paths without permission: each check reports a failure, and none has an internal error."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.diagnostics.file_access import access_problem
from tests.podgpu.doctor.support import write

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
"""By check: a configuration with a path below a folder of another user."""

PROGRAM = """
import asyncio, json, os, sys
from config.loader import parse
from pipeline.diagnostics.context import DoctorContext
from podgpu.doctor.node_checks import diagnose
from pipeline.component.registry import RegisteredKinds

def check(text):
    made = parse(text, RegisteredKinds(), env={}, origin="test")
    found = asyncio.run(diagnose(DoctorContext(made, environ={}, synchronised=lambda: True)))
    return [[each.check, each.verdict.value, each.observed, each.fix] for each in found]

texts = json.load(sys.stdin)
for text in texts.values():
    check(text)  # load all modules while root may read them
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
print(json.dumps({"uid": os.geteuid(), **{name: check(text) for name, text in texts.items()}}))
"""


@pytest.mark.slow
def test_a_folder_of_another_user_is_reported_by_each_check(tmp_path: Path) -> None:
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
    findings_by_check = json.loads(done.stdout)
    uid = findings_by_check.pop("uid")
    for check, findings in findings_by_check.items():
        assert "check.bug" not in [each[0] for each in findings], findings
        (found,) = [each for each in findings if each[0] == check]
        _, verdict, observed, fix = found
        assert verdict == "failure", found
        has_reason = re.search(
            f"permission denied (to|for) uid {uid}|no permission to read", observed
        )
        assert has_reason, found
        assert "does not exist" not in observed, found
        assert fix, found


def test_existing_and_missing_paths_have_no_access_problem(tmp_path: Path) -> None:
    file = write(tmp_path / "file")
    for path in (tmp_path, file, tmp_path / "none", tmp_path / "none/deep", file / "below"):
        assert access_problem(path) == ""


UNUSABLE_PATHS = [("loop", "symbolic links"), ("x" * 300, "too long"), ("a\0b", "null byte")]


@pytest.mark.parametrize(("name", "expected"), UNUSABLE_PATHS)
def test_an_unusable_path_has_an_access_problem_with_the_reason(
    tmp_path: Path, name: str, expected: str
) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert expected in access_problem(tmp_path / name)
