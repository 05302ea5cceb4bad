"""`podgpu doctor` as a process: its output, its exit status, and which modules it loads."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.podgpu.doctor.configs import VALID, valid_config
from tests.podgpu.doctor.support import write

ROOT_FOLDER = Path(__file__).parents[3]
PODGPU = [sys.executable, "-m", "podgpu"]


def podgpu(*words: str, **more: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*PODGPU, *words], cwd=ROOT_FOLDER, stderr=subprocess.PIPE, timeout=25, check=False, **more
    )


@pytest.mark.slow
def test_a_node_name_that_the_terminal_cannot_encode_is_replaced(tmp_path: Path) -> None:
    environ = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = podgpu(
        "doctor", "-c", valid_config(tmp_path, "n\u00f6"), env=environ, stdout=subprocess.PIPE
    )
    assert done.returncode in {0, 1}, done.stderr
    assert b" on n?, " in done.stdout
    assert done.stderr == b""


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_path_that_is_not_valid_utf8_is_reported_as_missing(
    tmp_path: Path, more: tuple[str, ...]
) -> None:
    path = os.fsencode(tmp_path) + b"/\xff.yaml"
    done = podgpu("doctor", "-c", path, *more, stdout=subprocess.PIPE)  # type: ignore[arg-type]
    assert (done.returncode, done.stderr) == (2, b"")
    assert b"there is no such file" in b" ".join(done.stdout.split())


@pytest.mark.slow
def test_output_that_cannot_be_written_exits_with_3(tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = podgpu("doctor", "-c", valid_config(tmp_path), stdout=full)
    assert done.returncode == 3
    assert b"can't be written: No space left" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.slow
def test_a_closed_output_pipe_does_not_change_the_exit_status(tmp_path: Path) -> None:
    end, begin = os.pipe()
    os.close(end)
    text = VALID.replace("builtin:demo", f"{tmp_path}/none")
    done = podgpu("doctor", "-c", str(write(tmp_path / "c.yaml", text)), stdout=begin)
    os.close(begin)
    assert (done.returncode, done.stderr) == (2, b"")


@pytest.mark.slow
@pytest.mark.parametrize("words", [["doctor"], ["check"]])
def test_a_process_that_is_terminated_by_a_signal_exits_with_its_number(
    tmp_path: Path, words: list[str]
) -> None:
    """The command waits for a server that never responds when the signal arrives."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        listens = VALID.replace(
            "{kind: jsonl}", f'{{kind: prometheus, listen: "127.0.0.1:{port}"}}'
        )
        path = write(tmp_path / "podgpu.yaml", listens)
        running = subprocess.Popen(
            [sys.executable, "-c", SLOW, *words, "-c", str(path)],
            cwd=ROOT_FOLDER,
            stdout=subprocess.PIPE,
        )
        assert running.stdout is not None
        assert running.stdout.readline() == b"begun\n"
        running.send_signal(signal.SIGTERM)
        out, _ = running.communicate(timeout=20)
    assert (running.returncode, out) == (128 + signal.SIGTERM, b"")


SLOW = """
import sys, time
from podgpu.cli import main
import podgpu.cli.commands as commands

def slow(argv):
    print("begun", flush=True)
    time.sleep(60)

commands.run_command = slow
sys.exit(main())
"""


@pytest.mark.slow
def test_output_of_a_credential_plugin_is_not_printed(tmp_path: Path) -> None:
    user = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "sh",
            "args": ["-c", "printf '\\033[2Jsaid' >&2; exit 3"],
            "interactiveMode": "Never",
        }
    }
    text = {
        "current-context": "t",
        "contexts": [{"name": "t", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": user}],
    }
    path = write(tmp_path / "kubeconfig", json.dumps(text))
    done = podgpu("doctor", "--cluster", "--kubeconfig", str(path), stdout=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (2, b"")
    output = b" ".join(done.stdout.split())
    assert b"the credential plugin sh ended with status 3; its output may contain secrets" in output
    assert b"\033" not in done.stdout
    assert b"said" not in done.stdout


@pytest.mark.slow
def test_a_machine_without_a_driver_is_reported_within_seconds(tmp_path: Path) -> None:
    """Runs in its own process, which has not loaded a driver's library before."""
    path = write(
        tmp_path / "podgpu.yaml",
        "sources: {gpus: {kind: nvml}}\nsinks: {l: {kind: jsonl}}\n",
    )
    code = (
        "import sys, argparse; from podgpu.cli.arguments import add_doctor\n"
        "parser = argparse.ArgumentParser(); add_doctor(parser.add_subparsers())\n"
        "arguments = parser.parse_args(sys.argv[1:]); sys.exit(arguments.command(arguments))\n"
    )
    environ = {key: text for key, text in os.environ.items() if key != "LD_LIBRARY_PATH"}
    done = subprocess.run(
        [sys.executable, "-c", code, "doctor", "-c", str(path), "--json"],
        cwd=ROOT_FOLDER,
        env=environ,
        capture_output=True,
        text=True,
        timeout=25,
        check=False,
    )
    found_verdicts = {
        each["check"]: each["verdict"] for each in json.loads(done.stdout)["findings"]
    }
    assert "check.bug" not in found_verdicts, done.stdout
    if found_verdicts["nvml.driver"] == "ok":
        pytest.skip("this machine has a driver")
    assert done.returncode == 2
    assert found_verdicts["nvml.driver"] == "failure"
    assert found_verdicts["nvml.library"] in {"skipped", "ok"}
    assert found_verdicts["nvml.nodes"] == "skipped"


@pytest.mark.slow
def test_a_check_that_hangs_in_a_thread_does_not_prevent_the_exit(tmp_path: Path) -> None:
    """A component calls a blocking function in a thread, and the function never returns."""
    code = (
        "import asyncio, time, podgpu.doctor.node_checks as general\n"
        "from podgpu.cli.doctor import command\n"
        "from podgpu.cli.arguments import add_doctor\n"
        "from pipeline.diagnostics.check_runner import Examination, run\n"
        "async def hangs(): await asyncio.to_thread(time.sleep, 3600)\n"
        "async def diagnose(ctx): return await run([Examination('a disk', hangs)], 0.2)\n"
        "general.diagnose = diagnose\n"
        "import argparse, sys; parser = argparse.ArgumentParser()\n"
        "add_doctor(parser.add_subparsers())\n"
        "arguments = parser.parse_args(sys.argv[1:]); sys.exit(arguments.command(arguments))\n"
    )
    path = write(tmp_path / "podgpu.yaml", VALID)
    done = subprocess.run(
        [sys.executable, "-c", code, "doctor", "-c", str(path)],
        cwd=ROOT_FOLDER,
        capture_output=True,
        text=True,
        timeout=25,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "FAILURE   check.deadline: a disk: no result within 0.2 s" in done.stdout


def test_the_argument_parser_loads_no_checks() -> None:
    code = (
        "import sys; import podgpu.cli.arguments\n"
        "heavy = ('podgpu.doctor', 'pipeline.diagnostics', 'aiohttp')\n"
        "print([name for name in sys.modules if name.startswith(heavy)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT_FOLDER, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
