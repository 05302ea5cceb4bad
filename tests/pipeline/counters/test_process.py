"""The setting in a separate process: exit statuses and SIGHUP."""

import json
import signal
from pathlib import Path

import pytest

from tests.pipeline.counters.test_list_follower import ONE, TWO
from tests.podgpu.cli.test_main import Process, node, wait_until

__all__ = ["node"]

CONFIG = """\
sources: {gpus: {kind: nvml, interval: 200ms, slow_interval: 1s}}
sinks: {lines: {kind: jsonl, path: OUT}}
counters: {file: LIST, own: false}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "c.csv").write_text(ONE)
    path = tmp_path / "c.yaml"
    out, counters = tmp_path / "out.jsonl", tmp_path / "c.csv"
    path.write_text(CONFIG.replace("OUT", str(out)).replace("LIST", str(counters)))
    return path


def readings(out: Path) -> set[str]:
    """Return the names of the readings in the newest line of a device."""
    lines = out.read_text().splitlines() if out.exists() else []
    devices = [found for found in map(json.loads, lines) if found["record"] == "device"]
    return set(devices[-1]["readings"]) if devices else set()


@pytest.mark.slow
def test_a_changed_list_and_a_sighup_reload_the_counters(
    tmp_path: Path, config: Path, node: dict[str, str]
) -> None:
    out = tmp_path / "out.jsonl"
    running = Process("run", "-c", str(config), env=node, cwd=tmp_path)
    wait_until(lambda: readings(out) == {"gpu_utilization_percent"})
    (tmp_path / "c.csv").write_text(TWO)
    wait_until(lambda: readings(out) == {"gpu_utilization_percent", "memory_used_bytes"})
    running.process.send_signal(signal.SIGHUP)
    size = out.stat().st_size
    wait_until(lambda: out.stat().st_size > 2 * size)
    status, errors = running.stop()
    assert status == 0, errors
    assert "counters list reloaded: 2 fields: 1 added, 0 removed" in errors
    assert "configuration unchanged" in errors
    assert "counters list unchanged" in errors


@pytest.mark.slow
def test_a_missing_list_ends_the_start_with_status_2(
    tmp_path: Path, config: Path, node: dict[str, str]
) -> None:
    (tmp_path / "c.csv").unlink()
    running = Process("run", "-c", str(config), env=node, cwd=tmp_path)
    _, errors = running.process.communicate(timeout=15)
    assert running.process.returncode == 2
    assert b"c.csv: no such file" in errors
    assert b"Traceback" not in errors
