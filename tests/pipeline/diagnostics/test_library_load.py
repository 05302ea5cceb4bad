"""Libraries that hang or crash when they are loaded: the check reports it, and the doctor ends."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.diagnostics.library_load import try_loading
from podgpu.cli.doctor import command
from tests.podgpu.doctor.libraries import BREAKS, HANGS, library
from tests.podgpu.doctor.support import write

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_loading_a_library_that_hangs_ends_after_a_timeout(tmp_path: Path) -> None:
    observed, fix = try_loading(str(library(tmp_path / "it.so", HANGS)), 0.7)
    assert observed == "loading the library hangs: it takes longer than 0.7 s"
    assert "file system" in fix


def test_a_library_that_crashes_does_not_crash_the_doctor(tmp_path: Path) -> None:
    observed, fix = try_loading(str(library(tmp_path / "it.so", BREAKS)), 20)
    assert observed == "loading the library crashes the process: SIGABRT"
    assert "reinstall it" in fix


@pytest.mark.parametrize("text", ["no library", None])
def test_errors_of_the_linker_are_left_to_the_component_that_loads_it(
    tmp_path: Path, text: str | None
) -> None:
    if text is not None:
        write(tmp_path / "it.so", text)
    assert try_loading(str(tmp_path / "it.so"), 20) == ("", "")
    assert try_loading(str(library(tmp_path / "good.so", ";")), 20) == ("", "")


PROGRAM = """
import sys
import pipeline.diagnostics.context as context
from podgpu.cli import main
init = context.DoctorContext.__init__
context.DoctorContext.__init__ = lambda self, config, **more: init(
    self, config, deadline=6.0, **more
)
sys.exit(main(sys.argv[1:]))
"""
SOURCES = """
sources:
  configured: {kind: hostengine, address: "127.0.0.1:1", library: FOLDER/configured.so}
  found: {kind: hostengine, address: "127.0.0.1:1"}
  gpus: {kind: nvml}
sinks: {lines: {kind: jsonl}}
"""
CHECKS = {
    "source configured": ("hostengine.library", "configured.so"),
    "source found": ("hostengine.library", "libdcgm.so.4"),
    "source gpus": ("nvml.library", "libnvidia-ml.so.1"),
}
"""Each source's check, and its library: one from an option, two found by the linker."""


@pytest.mark.slow
@pytest.mark.parametrize("code", [HANGS, BREAKS, ""], ids=["hangs", "breaks", "is a pipe"])
def test_a_broken_library_fails_only_the_check_of_its_source(tmp_path: Path, code: str) -> None:
    paths = [tmp_path / name for _, name in CHECKS.values()]
    for path in paths:
        library(path, code) if code else os.mkfifo(path)
    config = write(tmp_path / "c.yaml", SOURCES.replace("FOLDER", str(tmp_path)))
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            PROGRAM,
            "doctor",
            "-c",
            str(config),
            "--json",
            "--allow-library",
            str(paths[0]),
        ],
        cwd=ROOT,
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=28,
        check=False,
    )
    findings = json.loads(done.stdout)["findings"]
    texts = {HANGS: "loading the library hangs", BREAKS: "SIGABRT", "": "is not a regular file"}
    expected = texts[code]
    for source, (check, _) in CHECKS.items():
        found = [each for each in findings if each["component"] == source]
        (finding,) = [each for each in found if each["check"] == check]
        assert finding["verdict"] == "failure", source
        assert expected in finding["saw"], finding


HOLDING_PROGRAM = """
import ctypes, sys
from podgpu.cli import main
from podgpu.cli.doctor.command import _end_on_signal
import podgpu.cli.commands as commands

def load_library(argv):
    with _end_on_signal(float(sys.argv[2])):
        print("begun", flush=True)
        ctypes.CDLL(sys.argv[1])

commands.run_command = load_library
main(["doctor"])
"""
SIGNALS = [("60", signal.SIGTERM), ("0.3", signal.SIGALRM)]


@pytest.mark.slow
@pytest.mark.parametrize(("seconds", "expected"), SIGNALS)
def test_a_signal_ends_the_doctor_while_a_library_holds_the_interpreter_lock(
    tmp_path: Path, seconds: str, expected: signal.Signals
) -> None:
    path = library(tmp_path / "it.so", f'write(1, "held\\n", 5); {HANGS}')
    with subprocess.Popen(
        [sys.executable, "-c", HOLDING_PROGRAM, str(path), seconds],
        cwd=ROOT,
        stdout=subprocess.PIPE,
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"begun\n"
        if expected is signal.SIGTERM:
            assert running.stdout.readline() == b"held\n"
            running.send_signal(expected)
        running.communicate(timeout=25)
    assert running.returncode == -expected


@pytest.mark.parametrize(("pid", "handler"), [(1, command._end), (4711, signal.SIG_DFL)])
def test_process_1_has_handlers_since_the_kernel_ignores_default_actions(
    monkeypatch: pytest.MonkeyPatch, pid: int, handler: object
) -> None:
    monkeypatch.setattr(command.os, "getpid", lambda: pid)  # type: ignore[attr-defined]
    both = (signal.SIGTERM, signal.SIGALRM)
    before = [signal.getsignal(each) for each in both]
    with command._end_on_signal(60):
        assert [signal.getsignal(each) for each in both] == [handler] * 2
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 50
    assert [signal.getsignal(each) for each in both] == before
