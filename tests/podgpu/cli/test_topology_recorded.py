"""A recording that is made like the demo's contains the topology, for the command and a replay."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pipeline.model import ClaimsReplaced, TopologyRead
from pipeline.recording import RecordingError, RecordingReader
from tests.demo.merge import merge, read_all
from tests.fakes.nvml import FakeNvml
from tests.fakes.nvml.fixtures import fake_nvml
from tests.fakes.nvml.topologies import hgx
from tests.pipeline.status_page.test_topology_running import holding, running
from tests.podgpu.cli.topology_command import Result, run_in_thread

__all__ = ["fake_nvml"]

ROOT = Path(__file__).resolve().parents[3]
RENAMED = [f"GPU-{index:08x}-5eed-4a5e-9c0d-10{index:010d}" for index in range(4)]
CONFIG = """\
sources:
  gpus: {{kind: nvml, interval: 1s, slow_interval: 10s}}
  podlist: {{kind: podlist, path: {podlist}}}
sinks:
  unused: {{kind: jsonl, path: "-"}}
"""


def has_everything(path: Path) -> bool:
    try:
        with RecordingReader(path) as reader:
            events = [envelope.event for envelope in reader]
    except (OSError, RecordingError):
        return False
    claimed = any(isinstance(event, ClaimsReplaced) and event.claims for event in events)
    return claimed and any(isinstance(event, TopologyRead) for event in events)


@pytest.fixture
def recorded(fake_nvml: FakeNvml, tmp_path: Path) -> Path:
    """Record four GPUs, one of them held by a pod, as the demo's recording is made."""
    fake_nvml.set(hgx(4))
    names = ("podlist.json", "c.yaml", "one.gz", "demo.gz")
    podlist, config, path, output = (tmp_path / name for name in names)
    holding(podlist, "pretrain-0", 2)
    config.write_text(CONFIG.format(podlist=podlist))
    words = [sys.executable, "-m", "podgpu", "record", "-c", str(config), "-o", str(path)]
    recorder = subprocess.Popen(words, cwd=ROOT, env={**os.environ, **fake_nvml.env()})
    try:
        deadline = time.monotonic() + 20
        while not has_everything(path):
            assert recorder.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        recorder.send_signal(signal.SIGTERM)
        status = recorder.wait(10)
    assert status == 0
    merge(read_all([path]), output, 60)
    return output


def document_of(result: Result) -> dict[str, Any]:
    status, out, err = result
    assert (status, err) == (0, "")
    return without_notes(out)


def without_notes(body: str) -> dict[str, Any]:
    """Return a document without its notes, which must say that it is a recording."""
    document: dict[str, Any] = json.loads(body)
    assert document.pop("notes")[0].startswith("This is a recording, not this machine")
    return document


@pytest.mark.slow
async def test_the_command_shows_a_recording_as_a_daemon_that_replays_it(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = document_of(await run_in_thread(capsys, "--recording", str(recorded), "--json"))
    assert [card["uuid"] for card in expected["gpus"]] == RENAMED
    assert expected["nvlink"] == [{"kind": "switch", "mask": "f"}]
    assert expected["free"] == "b"
    _, text, _ = await run_in_thread(capsys, "--recording", str(recorded))
    assert "held; ml/pretrain-0 (main)" in text
    # The page of a daemon that replays the recording, as `podgpu demo` does.
    player = f"  player: {{kind: replay, path: {recorded}, speed: 100, loop: true}}\n"
    async with running(player) as client, asyncio.timeout(15):
        status, replayed = 0, ""
        while status != 200 or without_notes(replayed) != expected:
            await asyncio.sleep(0.02)
            status, replayed = await client.get("/topology")
        best = without_notes((await client.get("/topology/best?n=2"))[1])
    result = await run_in_thread(capsys, "best", "-n", "2", "--recording", str(recorded), "--json")
    assert document_of(result) == best
