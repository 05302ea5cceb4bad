"""Every command of podgpu has something to show while `podgpu demo` runs."""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Final

import pytest

from podgpu.cli.commands import command_parser, run_command
from tests.e2e.processes import free_ports

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

ROOT: Final = Path(__file__).resolve().parents[4]
CONFIG: Final = str(ROOT / "config" / "demo.yaml")
TRAINING: Final = "research/llama-train-0"
FIRST_LINE: Final = "sample data of podgpu demo, not measured"
PAGES: Final = ("/", "/status", "/metrics", "/topology?format=text")


@dataclass(frozen=True)
class Demo:
    """A running demo: its address, the file with its log, and a folder for files."""

    url: str
    log: Path
    folder: Path


def page(demo: Demo, path: str) -> str:
    connection = HTTPConnection(demo.url.removeprefix("http://"), timeout=10)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        text = response.read().decode()
    finally:
        connection.close()
    assert response.status == 200, text
    return text


def shows_pods(demo: Demo) -> bool:
    try:
        # The page queries the ledger in the background.
        return "not measured" in page(demo, "/") and "llama-train-0" in page(demo, "/metrics")
    except (OSError, HTTPException, AssertionError):
        return False


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    folder = tmp_path_factory.mktemp("demo")
    (folder / "archive").mkdir()
    address = f"127.0.0.1:{free_ports(1)[0]}"
    found = Demo(f"http://{address}", folder / "log", folder)
    words = [sys.executable, "-m", "podgpu", "demo", "--listen", address]
    env = {**os.environ, "XDG_STATE_HOME": str(folder), "PYTHONPATH": str(ROOT)}
    with found.log.open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log, env=env, cwd=folder)
    try:
        end = time.monotonic() + 60
        while not shows_pods(found):
            assert process.poll() is None, found.log.read_text()
            assert time.monotonic() < end, found.log.read_text()
            time.sleep(0.2)
        yield found
    finally:
        process.terminate()
        assert process.wait(30) == 0


@pytest.fixture(autouse=True)
def here(demo: Demo, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the commands where the demo runs."""
    monkeypatch.setenv("XDG_STATE_HOME", str(demo.folder))
    monkeypatch.chdir(demo.folder)


COMMANDS: Final[dict[str, list[tuple[tuple[str, ...], tuple[str, ...]]]]] = {
    "archive": [
        (("--once", "--to", "ARCHIVE", "--cluster", "east", "--ledger", "LEDGER"), ()),
        (("compact", "ARCHIVE"), ("east",)),
    ],
    "check": [(("-c", CONFIG), ("recording", "usage"))],
    "completion": [(("bash",), ("demo", "usage"))],
    "dcgm-exporter": [(("--print-config",), ("nvml", ":9400"))],
    "doctor": [(("-c", CONFIG), ("recorded on node demo",))],
    "extender": [(("--help",), ("topology",))],
    "fields": [(("gpu_util",), ("DCGM_FI_DEV_GPU_UTIL",))],
    "kinds": [(("replay",), ("builtin:demo",))],
    "record": [
        (("-c", CONFIG, "-o", "again.gz", "--for", "4s"), ()),
    ],
    "run": [(("--help",), ("daemon",))],
    "schema": [((), ("builtin:demo", "ledger"))],
    "top": [(("--once", "--url", "URL"), ("H100", "llama-train-0", "(simulated)"))],
    "topology": [
        (("--url", "URL"), (TRAINING, "NV18")),
        (("--json", "--url", "URL"), ('"index":7', "nvlinks")),
        (("--dot", "--url", "URL"), ("graph",)),
        (("--recording", "builtin:demo"), (TRAINING,)),
        (("--recording", "again.gz"), (TRAINING,)),
        (("best", "-n", "1", "--url", "URL"), ("GPU-",)),
    ],
    "usage": [
        (("--ledger", "LEDGER"), (FIRST_LINE, "research", "(total)")),
        (("--ledger", "LEDGER", "--by", "pod", "--since", "all"), (FIRST_LINE, TRAINING)),
        (("--ledger", "LEDGER", "--by", "device"), (FIRST_LINE, "(simulated)", "1g.10gb")),
        (("--ledger", "LEDGER", "--holdings"), (FIRST_LINE, TRAINING, "so far")),
        (("--ledger", "LEDGER", "--format", "csv"), ("research", "sample_data")),
        (("--ledger", "LEDGER", "--format", "json"), ('"sample_data": "podgpu demo"',)),
        (("--from", "ARCHIVE", "--by", "cluster"), (FIRST_LINE, "east", "(total)")),
    ],
}
"""Each command with its options, and what its output contains. The order matters: a recording
and an archive are made before they are read. `run` and `extender` would need GPUs and a cluster."""


def test_the_table_has_every_command() -> None:
    (commands,) = [
        action.choices
        for action in command_parser()._actions
        if isinstance(action, argparse._SubParsersAction)
    ]
    assert {*COMMANDS, "demo"} == set(commands)


def test_the_log_of_the_demo_says_what_to_do_next(demo: Demo) -> None:
    log = demo.log.read_text()
    for text in (
        f"open {demo.url.replace('127.0.0.1', 'localhost')}/",
        "podgpu top",
        "podgpu usage",
    ):
        assert text in log
    assert "replaying builtin:demo, recorded on node demo" in log
    assert str(ROOT) not in log
    assert "Traceback" not in log


@pytest.mark.parametrize("path", PAGES)
def test_every_page_names_the_pods_of_the_demo(demo: Demo, path: str) -> None:
    assert "llama-train-0" in page(demo, path)


@pytest.mark.parametrize(
    ("command", "words", "expected"),
    [(name, words, texts) for name, cases in COMMANDS.items() for words, texts in cases],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value,
)
def test_a_command_shows_the_demo(
    demo: Demo,
    capfd: pytest.CaptureFixture[str],
    command: str,
    words: tuple[str, ...],
    expected: tuple[str, ...],
) -> None:
    (ledger,) = (demo.folder / "podgpu").glob("demo-*.db")
    meant = {"URL": demo.url, "LEDGER": str(ledger), "ARCHIVE": str(demo.folder / "archive")}
    try:
        status = run_command([command, *(meant.get(word, word) for word in words)])
    except SystemExit as error:
        status = int(error.code or 0)
    out, err = capfd.readouterr()
    # The checks of this machine may find problems.
    assert status == 0 or command == "doctor", err
    assert out or command in ("record", "archive")
    for text in expected:
        assert text in out
