"""R13: commands run code that a configuration names only if an option allows it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from podgpu.cli.commands import run_command
from tests.pipeline.component.configured_code import (
    ENGINE,
    USES,
    Program,
    Trap,
    program,
    textfile,
    trap,
    with_library,
)
from tests.pipeline.kube.conftest import kubeconfig
from tests.podgpu.doctor.support import in_this_container, process, write

__all__ = ["program", "trap"]


def status_of(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    status = run_command(words)
    captured = capsys.readouterr()
    return status, captured.out + captured.err


@pytest.mark.slow
def test_r13_check_reports_code_and_obeys_the_options(
    program: Program, trap: Trap, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = kubeconfig(tmp_path / "config", "http://x", program.exec())
    file = tmp_path / "podgpu.yaml"
    for written, place in (
        (with_library(trap.path), ENGINE),
        *((u(path), p) for p, u in USES.items()),
    ):
        file.write_text(written)
        status, output = status_of(capsys, "check", "-c", str(file))
        assert (status, f"{file}: {place}: " in output) == (2, True), output
        status, output = status_of(capsys, "check", "-c", str(file), "--allow-configured-code")
        assert status == 0, output
    file.write_text(with_library(trap.path))
    words = ("check", "-c", str(file), "--allow-library")
    assert status_of(capsys, *words, str(trap.path))[0] == 0
    assert status_of(capsys, *words, str(tmp_path / "other.so"))[0] == 2
    assert not program.has_run
    assert not trap.was_loaded


@pytest.mark.slow
@pytest.mark.parametrize("command", ["run", "record"])
def test_r13_run_and_record_end_with_status_2(
    program: Program, trap: Trap, tmp_path: Path, command: str
) -> None:
    path = kubeconfig(tmp_path / "config", "http://x", program.exec())
    file = tmp_path / "podgpu.yaml"
    file.write_text(
        f"sources: {{p: {{kind: pods, kubeconfig: {path}}}, "
        f"h: {{kind: hostengine, library: {trap.path}}}}}\n{textfile(tmp_path)}"
    )
    more = ["-o", str(tmp_path / "out"), "--for", "5s"] if command == "record" else []
    done = subprocess.run(
        [sys.executable, "-m", "podgpu", command, "-c", str(file), *more],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "sources.p.kubeconfig: " in done.stderr
    assert f"{ENGINE}: " in done.stderr
    assert "Traceback" not in done.stderr
    assert not program.has_run
    assert not trap.was_loaded


@pytest.mark.slow
def test_r13_run_with_the_option_runs_the_code(
    program: Program, trap: Trap, tmp_path: Path
) -> None:
    path = kubeconfig(tmp_path / "config", "http://127.0.0.1:1", program.exec())
    file = tmp_path / "podgpu.yaml"
    file.write_text(
        f"sources: {{p: {{kind: pods, kubeconfig: {path}}}, "
        f"h: {{kind: hostengine, library: {trap.path}}}}}\n{textfile(tmp_path)}"
    )
    words = [sys.executable, "-m", "podgpu", "run", "-c", str(file), "--allow-configured-code"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, env=os.environ) as running:
        for _ in range(200):
            if program.has_run and trap.was_loaded:
                break
            assert running.poll() is None
            try:
                running.wait(0.05)
            except subprocess.TimeoutExpired:
                continue
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=20)
    assert program.has_run
    assert trap.was_loaded


@pytest.mark.slow
def test_r13_the_doctor_runs_no_code_and_reports_it(
    program: Program, trap: Trap, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = kubeconfig(tmp_path / "config", "http://127.0.0.1:1", program.exec())
    file = tmp_path / "podgpu.yaml"
    engine = f"h: {{kind: hostengine, address: '127.0.0.1:1', library: {trap.path}}}"
    file.write_text(
        f"sources: {{p: {{kind: pods, kubeconfig: {path}}}, {engine}}}\n"
        f"sinks: {{n: {{kind: node, kubeconfig: {path}}}, e: {{kind: events, kubeconfig: {path}}}, "
        f"a: {{kind: pods, kubeconfig: {path}}}}}\n"
        f"counters: {{configmap: 'ns:list', kubeconfig: {path}}}\n"
    )
    status, out = status_of(capsys, "doctor", "-c", str(file), "--json")
    found: list[dict[str, Any]] = json.loads(out)["findings"]
    assert status == 2
    assert not program.has_run
    assert not trap.was_loaded
    findings = {each["check"]: each for each in found}
    assert ENGINE in findings["config"]["saw"]
    assert "--allow-library" in findings["config"]["mend"]
    assert findings["hostengine.library"]["verdict"] == "skipped"
    for check in ("pods.server", "node.rbac", "events.rbac", "pods.patch"):
        assert findings[check]["verdict"] == "failure"
        assert "--allow-configured-code" in findings[check]["mend"], findings[check]
    status_of(capsys, "doctor", "-c", str(file), "--allow-configured-code", "--json")
    assert program.has_run
    assert trap.was_loaded


def test_r13_an_option_of_another_process_does_not_apply_to_the_doctor(
    program: Program,
    trap: Trap,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A user who can run programs on the node can start one that looks like podgpu with it."""
    path = kubeconfig(tmp_path / "config", "http://127.0.0.1:1", program.exec())
    file = write(
        tmp_path / "podgpu.yaml",
        f"sources: {{p: {{kind: pods, kubeconfig: {path}}}, "
        f"h: {{kind: hostengine, address: '127.0.0.1:1', library: {trap.path}}}}}\n"
        f"{textfile(tmp_path)}",
    )
    proc = tmp_path / "proc"
    process(proc, 7, "podgpu", "run", "--allow-configured-code", "-c", str(file))
    in_this_container(proc, 7)
    (proc / "7" / "cwd").symlink_to("/")
    monkeypatch.setattr("podgpu.cli.doctor.config_selection._PROC", proc)
    status, out = status_of(capsys, "doctor", "--json")
    assert json.loads(out)["origin"] == f"{file}, used by process 7"
    assert status == 2
    assert not program.has_run
    assert not trap.was_loaded


def test_r13_a_kubeconfig_named_by_the_command_line_or_environment_may_run_code(
    program: Program,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = kubeconfig(tmp_path / "config", "http://127.0.0.1:1", program.exec())
    status_of(capsys, "doctor", "--cluster", "--kubeconfig", str(path))
    assert program.has_run
    (tmp_path / "trace").unlink()
    monkeypatch.setenv("KUBECONFIG", str(path))
    status_of(capsys, "doctor", "--cluster")
    assert program.has_run
