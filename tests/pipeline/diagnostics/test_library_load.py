"""Libraries that hang or break as they are loaded: told, and the doctor comes to its end."""

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


def test_one_that_hangs_is_left_behind(tmp_path: Path) -> None:
    saw, repair = try_loading(str(library(tmp_path / "it.so", HANGS)), 0.7)
    assert saw == "loading it hangs: it takes longer than 0.7 s"
    assert "file system" in repair


def test_one_that_breaks_does_not_take_the_doctor_with_it(tmp_path: Path) -> None:
    saw, repair = try_loading(str(library(tmp_path / "it.so", BREAKS)), 20)
    assert saw == "loading it crashes the process: SIGABRT"
    assert "reinstall it" in repair


@pytest.mark.parametrize("text", ["no library", None])
def test_what_the_linker_refuses_is_for_who_loads_it_to_say(
    tmp_path: Path, text: str | None
) -> None:
    if text is not None:
        write(tmp_path / "it.so", text)
    assert try_loading(str(tmp_path / "it.so"), 20) == ("", "")
    assert try_loading(str(library(tmp_path / "good.so", ";")), 20) == ("", "")


WORDS = """
import sys
import pipeline.diagnostics.context as context
from podgpu.cli import main
init = context.DoctorContext.__init__
context.DoctorContext.__init__ = lambda self, config, **more: init(
    self, config, deadline=6.0, **more
)
sys.exit(main(sys.argv[1:]))
"""
KINDS = [
    ("hostengine.library", "libdcgm.so.4", "hostengine, address: '127.0.0.1:1'", "WHERE"),
    ("hostengine.library", "libdcgm.so.4", "hostengine, address: '127.0.0.1:1'", ""),
    ("nvml.library", "libnvidia-ml.so.1", "nvml", ""),
]


@pytest.mark.parametrize("row", KINDS, ids=lambda row: f"{row[0]} {row[3]}")
@pytest.mark.parametrize("does", [HANGS, BREAKS, ""], ids=["hangs", "breaks", "is a pipe"])
def test_each_source_s_library_costs_its_own_check_alone(
    tmp_path: Path, row: tuple[str, str, str, str], does: str
) -> None:
    check, name, kind, named = row
    path = tmp_path / name
    library(path, does) if does else os.mkfifo(path)
    option = f", library: {path}" if named else ""
    text = f"sources: {{s: {{kind: {kind}{option}}}}}\nsinks: {{l: {{kind: jsonl}}}}\n"
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            WORDS,
            "doctor",
            "-c",
            str(write(tmp_path / "c.yaml", text)),
            "--json",
            *(["--allow-library", str(path)] if named else []),
        ],
        cwd=ROOT,
        env={**os.environ, "LD_LIBRARY_PATH": "" if named else str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=28,
        check=False,
    )
    found = json.loads(done.stdout)["findings"]
    (given_out,) = [each for each in found if each["check"] == check]
    assert given_out["verdict"] == "failure"
    saw = {HANGS: "loading it hangs", BREAKS: "SIGABRT", "": "is not a regular file"}[does]
    assert saw in given_out["saw"], given_out


HOLDS = """
import ctypes, sys
from podgpu.cli import main
from podgpu.cli.doctor.command import _end_on_signal
import podgpu.cli.commands as commands

def held(argv):
    with _end_on_signal(float(sys.argv[2])):
        print("begun", flush=True)
        ctypes.CDLL(sys.argv[1])

commands.run_command = held
main(["doctor"])
"""
ENDS = [("60", signal.SIGTERM), ("0.3", signal.SIGALRM)]


@pytest.mark.parametrize(("seconds", "by"), ENDS)
def test_the_doctor_ends_by_a_signal_while_the_interpreter_s_lock_is_held(
    tmp_path: Path, seconds: str, by: signal.Signals
) -> None:
    path = library(tmp_path / "it.so", f'write(1, "held\\n", 5); {HANGS}')
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(path), seconds], cwd=ROOT, stdout=subprocess.PIPE
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"begun\n"
        if by is signal.SIGTERM:
            assert running.stdout.readline() == b"held\n"
            running.send_signal(by)
        running.communicate(timeout=25)
    assert running.returncode == -by


@pytest.mark.parametrize(("pid", "handler"), [(1, command._end), (4711, signal.SIG_DFL)])
def test_process_1_has_a_handler_since_the_kernel_throws_other_signals_away(
    monkeypatch: pytest.MonkeyPatch, pid: int, handler: object
) -> None:
    monkeypatch.setattr(command.os, "getpid", lambda: pid)  # type: ignore[attr-defined]
    both = (signal.SIGTERM, signal.SIGALRM)
    before = [signal.getsignal(each) for each in both]
    with command._end_on_signal(60):
        assert [signal.getsignal(each) for each in both] == [handler] * 2
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 50
    assert [signal.getsignal(each) for each in both] == before
