"""The command line, run as a user does."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import pytest

from pipeline.component.registry import KINDS
from pipeline.fields import CATALOGUE
from podgpu.cli import main
from podgpu.cli.field_table import table
from tests.e2e.processes import catches
from tests.fakes.nvml import FakeNvml, h100s

VALID = """\
sources:
  gpus: {kind: nvml, interval: 200ms, slow_interval: 1s}
sinks:
  metrics: {kind: prometheus, listen: "127.0.0.1:0"}
"""
INVALID = """\
nod: x
sources:
  gpus: {kind: nvml, interval: 3, intervall: 5s}
sinks:
  metrics: {kind: promtheus}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "podgpu.yaml"
    path.write_text(VALID)
    return path


class TestCheck:
    def test_a_valid_file_is_accepted(
        self, config: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["check", "-c", str(config)]) == 0
        out = capsys.readouterr().out
        assert "valid: sources gpus; sinks metrics" in out
        assert f"podgpu doctor -c {config} checks whether this machine has" in out

    def test_all_errors_of_a_file_are_reported_together(
        self, config: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        config.write_text(INVALID)
        assert main(["check", "-c", str(config)]) == 2
        errors = capsys.readouterr().err
        for expected in ("nod", "write 3s or 3ms", '"interval"', '"prometheus"'):
            assert expected in errors
        assert len(errors.strip().splitlines()) == 4

    def test_a_missing_file_is_an_error(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["check", "-c", str(tmp_path / "none.yaml")]) == 2
        assert "none.yaml" in capsys.readouterr().err

    @pytest.mark.parametrize("exists", [True, False])
    def test_without_an_option_it_reports_which_configuration_it_uses(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        exists: bool,
    ) -> None:
        monkeypatch.chdir(tmp_path)
        if exists:
            (tmp_path / "podgpu.yaml").write_text(VALID)
        assert main(["check"]) == 0
        message = capsys.readouterr().err
        assert ("using podgpu.yaml" if exists else "using the built-in configuration") in message


@pytest.mark.slow
def test_the_schema_accepts_a_valid_file_and_refuses_an_invalid_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    import yaml

    assert main(["schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    validator.validate(yaml.safe_load(VALID))
    assert list(validator.iter_errors(yaml.safe_load(INVALID)))


def test_kinds_lists_every_kind_with_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kinds"]) == 0
    out = capsys.readouterr().out
    for role, kind in KINDS:
        assert f"{role} {kind}: " in out
    assert "slow_interval: duration" in out


@pytest.mark.parametrize("form", ["table", "markdown", "json"])
def test_fields_lists_every_field(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fields", "--format", form]) == 0
    out = capsys.readouterr().out
    for field in CATALOGUE:
        for word in (field.name, field.metric, field.call, field.tier.value):
            assert word in out


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (80, "name metric meaning"),
        (120, "name type unit metric MIG meaning"),
        (0, "call tier since"),
    ],
)
def test_the_table_of_fields_fits_the_terminal(width: int, columns: str) -> None:
    rows = [
        {title: f"{title} " * 9 for title in ("name", "group", "metric", "call")}
        | {"tier": "fast", "since": "1", "type": "gauge", "unit": "MHz", "MIG": "yes"}
        | {"meaning": "a long sentence " * 9}
    ]
    lines = table(rows, width)
    assert not width or max(map(len, lines)) <= width
    assert set(columns.split()) <= set(lines[0].split())
    assert width == 0 or "call" not in lines[0]


class Process:
    """A process of podgpu; killed if the test does not end it."""

    def __init__(self, *words: str, env: dict[str, str], cwd: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "podgpu", *words],
            env=os.environ | {"PYTHONPATH": str(Path.cwd())} | env,
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def wait_for_message(self, text: str) -> None:
        """Wait for a line on stderr that contains the text."""
        assert self.process.stderr is not None
        lines = iter(self.process.stderr.readline, b"")
        assert any(text in line.decode() for line in lines), "the process has ended"

    def stop(self, signum: int = signal.SIGTERM) -> tuple[int, str]:
        self.process.send_signal(signum)
        try:
            _, errors = self.process.communicate(timeout=15)
        finally:
            self.process.kill()
        return self.process.returncode, errors.decode()


def wait_until(condition, seconds: float = 15):  # type: ignore[no-untyped-def]
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "the condition did not become true in time"
        time.sleep(0.02)
    return found


@pytest.fixture
def node(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a node with two GPUs."""
    return FakeNvml(h100s(2), tmp_path).env()


LINES = """\
sources:
  gpus: {kind: nvml, interval: 200ms, slow_interval: 1s}
sinks:
  lines: {kind: jsonl, path: OUT}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{kind: replay, path: 'builtin:demo', speed: 100}", r"recorded into .*; events: .*\d+ of"),
        ("{kind: podlist, path: /nonexistent}", "r.gz is empty: no source has reported"),
    ],
)
def test_the_end_of_a_recording_says_what_it_contains(
    tmp_path: Path, source: str, message: str
) -> None:
    config, out = tmp_path / "c.yaml", tmp_path / "r.gz"
    config.write_text(f"sources:\n  it: {source}\n{VALID[VALID.index('sinks') :]}")
    running = Process(
        "record", "-c", str(config), "-o", str(out), "--for", "500ms", env={}, cwd=tmp_path
    )
    _, errors = running.process.communicate(timeout=15)
    assert running.process.returncode == 0
    assert re.search(message, errors.decode())


@pytest.mark.slow
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_process_with_status_0_after_all_data_is_written(
    tmp_path: Path, node: dict[str, str], signum: int
) -> None:
    out = tmp_path / "out.jsonl"
    config = tmp_path / "c.yaml"
    config.write_text(LINES.replace("OUT", str(out)))
    running = Process("run", "-c", str(config), env=node, cwd=tmp_path)
    wait_until(lambda: out.exists() and out.read_text().count("\n") >= 4)
    status, errors = running.stop(signum)
    assert status == 0, errors
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert {line["device"]["index"] for line in lines if line["record"] == "device"} == {0, 1}


@pytest.mark.slow
def test_a_changed_file_is_applied_and_an_invalid_one_is_not(
    tmp_path: Path, node: dict[str, str]
) -> None:
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    config = tmp_path / "c.yaml"
    config.write_text(LINES.replace("OUT", str(first)))
    running = Process("run", "-c", str(config), env=node, cwd=tmp_path)
    wait_until(lambda: first.exists() and first.stat().st_size)
    config.write_text("sources: [")
    time.sleep(0.6)
    size = first.stat().st_size
    wait_until(lambda: first.stat().st_size > size)
    new = tmp_path / "new.yaml"
    new.write_text(LINES.replace("OUT", str(second)))
    new.replace(config)
    wait_until(lambda: second.exists() and second.stat().st_size)
    status, errors = running.stop()
    assert status == 0
    assert "configuration not reloaded" in errors
    assert re.search(r"c\.yaml:\d", errors)
    assert "configuration reloaded" in errors


@pytest.mark.slow
def test_without_a_driver_podgpu_keeps_running(tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    out = tmp_path / "out.jsonl"
    config.write_text(LINES.replace("OUT", str(out)))
    running = Process("run", "-c", str(config), env={"LD_LIBRARY_PATH": ""}, cwd=tmp_path)
    running.wait_for_message("libnvidia-ml")
    assert running.process.poll() is None
    status, _ = running.stop()
    assert status == 0


@pytest.mark.slow
def test_a_port_in_use_ends_the_start_with_status_2(tmp_path: Path, node: dict[str, str]) -> None:
    import socket

    with socket.socket() as used:
        used.bind(("127.0.0.1", 0))
        used.listen()
        port = used.getsockname()[1]
        config = tmp_path / "c.yaml"
        config.write_text(VALID.replace(":0", f":{port}"))
        running = Process("run", "-c", str(config), env=node, cwd=tmp_path)
        _, errors = running.process.communicate(timeout=15)
    assert running.process.returncode == 2
    assert str(port).encode() in errors
    assert b"Traceback" not in errors


@pytest.mark.slow
@pytest.mark.parametrize("after", [0.05, 0.1, 0.2, 0.4, 0.8])
def test_a_signal_is_handled_at_any_time_after_the_start(
    tmp_path: Path, node: dict[str, str], after: float
) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(LINES.replace("OUT", str(tmp_path / "out.jsonl")))
    running = Process("run", "-c", str(config), env=node, cwd=tmp_path)
    time.sleep(after)
    handled = catches(running.process.pid, signal.SIGTERM)
    status, errors = running.stop()
    # Python handles no signal before it runs the first line of podgpu.
    assert status == 0 or (not handled and status == -signal.SIGTERM), errors
    assert "Traceback" not in errors


@pytest.mark.slow
def test_r5_a_second_signal_during_the_stop_has_no_effect(
    tmp_path: Path, node: dict[str, str]
) -> None:
    """While Python shuts down it restores the default handlers; a signal would then end it."""
    out, config = tmp_path / "out.jsonl", tmp_path / "c.yaml"
    config.write_text(LINES.replace("OUT", str(out)))
    running = Process("run", "-c", str(config), env=node, cwd=tmp_path)
    wait_until(lambda: out.exists() and out.stat().st_size)
    running.process.send_signal(signal.SIGTERM)
    running.wait_for_message("stopping")
    while running.process.poll() is None:
        for signum in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            running.process.send_signal(signum)
        time.sleep(0.001)
    status, errors = running.stop()
    assert status == 0, errors
    assert "Traceback" not in errors
