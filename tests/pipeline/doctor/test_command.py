"""`podgpu doctor`, as a user meets it."""

import argparse
import io
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pipeline.cli.doctor import command, configuring
from pipeline.cli.doctor.arguments import add
from pipeline.doctor.checks import CHECKS
from pipeline.doctor.context import DoctorContext
from pipeline.doctor.findings import Finding
from pipeline.doctor.processes import options_behind
from pipeline.logs import ROOT
from tests.pipeline.doctor.support import healthy, in_this_container, process, write

GOOD = (
    "node: gpu-1\nsources: {r: {kind: replay, path: 'builtin:demo'}}\nsinks: {l: {kind: jsonl}}\n"
)
ROOT_FOLDER = Path(__file__).parents[3]


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add(parser.add_subparsers())
    return parser.parse_args(["doctor", *words])


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    arguments = parsed(*words)
    status: int = arguments.command(arguments)
    return status, capsys.readouterr().out


@pytest.fixture(autouse=True)
def small_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine's processes and clock are none of these tests'."""
    roots = healthy(tmp_path / "node")

    def context(config: object) -> DoctorContext:
        made: DoctorContext = DoctorContext(
            config,  # type: ignore[arg-type]
            roots=roots,
            environ={},
            synchronised=lambda: True,
        )
        return made

    monkeypatch.setattr("pipeline.doctor.context.DoctorContext", context)


def test_a_node_that_is_well_ends_with_0_and_a_line_for_each_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "podgpu.yaml", GOOD)
    status, out = run(capsys, "-c", str(path))
    assert status == 0, out
    assert f"on gpu-1, {path}" in out.splitlines()[0]
    assert "ok        replay.recording (source r): builtin:demo" in out
    assert out.splitlines()[-1] == "7 ok, 1 skipped"


def test_failures_end_with_2_and_json_says_so_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = GOOD.replace("builtin:demo", f"{tmp_path}/none")
    status, out = run(capsys, "-c", str(write(tmp_path / "podgpu.yaml", text)), "--json")
    told = json.loads(out)
    assert status == told["status"] == 2
    (bad,) = [each for each in told["findings"] if each["verdict"] == "failure"]
    assert bad["check"] == "replay.recording"
    assert bad["component"] == "source r"
    assert bad["mend"]


def test_warnings_alone_end_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def diagnose(_: DoctorContext) -> list[Finding]:
        return [CHECKS["clock"].warning("here", "off", "run chrony")]

    monkeypatch.setattr("pipeline.doctor.general.diagnose", diagnose)
    status, out = run(capsys, "-c", str(write(tmp_path / "podgpu.yaml", GOOD)))
    assert status == 1
    assert "WARNING   clock: here: off" in out
    assert "mend: run chrony" in out


WRONG = [
    ("sources: {a: {kind: nvmll}}\n", 2),
    ("- a list\n", 1),
    (None, 1),
    (GOOD + "nope: 1\nneither: 2\n", 2),
]


@pytest.mark.parametrize(("text", "count"), WRONG)
def test_a_file_that_is_wrong_is_a_failure_for_each_of_its_faults(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None, count: int
) -> None:
    path = tmp_path / "podgpu.yaml"
    if text is not None:
        write(path, text)
    status, out = run(capsys, "-c", str(path), "--json")
    told = json.loads(out)["findings"]
    assert status == 2
    assert [each["check"] for each in told] == ["config"] * count
    for each in told:
        assert each["looked_at"] == str(path)
        assert "\n" not in each["saw"]
        assert "podgpu check" in each["mend"]


# -- which configuration ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["-", "/dev/stdin"])
def test_a_configuration_is_taken_from_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    for text, expected in ((GOOD, 0), ("sources: [", 2)):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        status, out = run(capsys, "-c", name)
        assert status == expected, out
        assert "standard input" in out.splitlines()[0]


EXPORTER = ("-a", "127.0.0.1:0", "-k=false")


def test_dcgm_exporter_s_options_are_looked_at_as_they_would_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "c.csv", "DCGM_FI_DEV_GPU_UTIL, gauge, a\n")
    _, out = run(capsys, "--json", "dcgm-exporter", "-f", str(path), *EXPORTER)
    told = json.loads(out)
    assert told["origin"] == f"dcgm-exporter -f {path} {' '.join(EXPORTER)}"
    places = {each["check"]: each["looked_at"] for each in told["findings"]}
    assert places["http.port"] == "127.0.0.1:0"
    assert places["counters"] == str(path)


@pytest.mark.parametrize("words", [["--nope"], ["-c", "soon"], ["--help"], ["--version"]])
def test_options_that_dcgm_exporter_has_not_are_a_failure(
    capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    status, out = run(capsys, "--json", "dcgm-exporter", *words)
    (told,) = json.loads(out)["findings"]
    assert (status, told["check"], told["verdict"]) == (2, "config", "failure")


def test_its_variables_count_where_no_file_is_as_in_the_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(configuring, "PLACES", (tmp_path / "podgpu.yaml",))
    monkeypatch.setattr(configuring, "_PROC", tmp_path)
    monkeypatch.setenv("DCGM_EXPORTER_LISTEN", "127.0.0.1:0")
    _, out = run(capsys, "--json")
    told = json.loads(out)
    assert told["origin"] == "dcgm-exporter's variables (DCGM_EXPORTER_LISTEN)"
    assert "127.0.0.1:0" in [each["looked_at"] for each in told["findings"]]
    # A file says more than variables that may be left over.
    path = write(tmp_path / "podgpu.yaml", GOOD)
    assert json.loads(run(capsys, "--json", "-c", str(path))[1])["origin"] == str(path)
    monkeypatch.chdir(tmp_path)
    assert json.loads(run(capsys, "--json")[1])["origin"] == "podgpu.yaml"


def test_a_daemon_behind_its_command_line_is_looked_at_with_its_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(configuring, "_PROC", tmp_path)
    process(tmp_path, 7, "/opt/python3", "/opt/podgpu", "dcgm-exporter", *EXPORTER)
    in_this_container(tmp_path, 7)
    told = json.loads(run(capsys, "--json")[1])
    assert told["origin"] == f"dcgm-exporter {' '.join(EXPORTER)}, as process 7 runs"
    assert "127.0.0.1:0" in [each["looked_at"] for each in told["findings"]]
    path = write(tmp_path / "podgpu.yaml", GOOD)
    assert json.loads(run(capsys, "--json", "-c", str(path))[1])["origin"] == str(path)


def test_one_of_another_container_is_none_of_this_one_s(tmp_path: Path) -> None:
    process(tmp_path, 7, "podgpu", "dcgm-exporter", *EXPORTER)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    in_this_container(tmp_path, 7, elsewhere)
    assert options_behind("dcgm-exporter", tmp_path) is None
    assert options_behind("run", tmp_path) is None


CONTRADICTIONS = [
    (["--kubeconfig", "x"], "--kubeconfig is for --cluster"),
    (["--namespace", "x"], "--namespace is for --cluster"),
    (["--cluster", "-c", "x"], "--cluster looks at no configuration"),
    (["--cluster", "dcgm-exporter"], "--cluster looks at no configuration"),
    (["-c", "x", "dcgm-exporter", "-a", ":1"], "give one of the two"),
    (["nonsense", "-k"], "unrecognized arguments: nonsense -k"),
]


@pytest.mark.parametrize(("words", "told"), CONTRADICTIONS)
def test_nothing_that_is_said_is_ignored(
    capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        run(capsys, *words)
    assert caught.value.code == 2
    assert told in capsys.readouterr().err


# -- what becomes of its output -------------------------------------------------------------------

PODGPU = [sys.executable, "-m", "pipeline"]


def podgpu(*words: str, **more: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*PODGPU, *words], cwd=ROOT_FOLDER, stderr=subprocess.PIPE, timeout=25, check=False, **more
    )


def plain(folder: Path, node: str = "gpu-1") -> str:
    return str(write(folder / "podgpu.yaml", GOOD.replace("gpu-1", node)))


def test_a_name_that_the_terminal_cannot_show_is_no_bug(tmp_path: Path) -> None:
    environ = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = podgpu("doctor", "-c", plain(tmp_path, "n\u00f6"), env=environ, stdout=subprocess.PIPE)
    assert done.returncode in {0, 1}, done.stderr
    assert b" on n?, " in done.stdout
    assert done.stderr == b""


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_path_of_bytes_that_are_no_text_is_no_bug(tmp_path: Path, more: tuple[str, ...]) -> None:
    path = os.fsencode(tmp_path) + b"/\xff.yaml"
    done = podgpu("doctor", "-c", path, *more, stdout=subprocess.PIPE)  # type: ignore[arg-type]
    assert (done.returncode, done.stderr) == (2, b"")
    assert b"there is no such file" in b" ".join(done.stdout.split())


def test_a_disk_that_is_full_is_neither_a_warning_nor_a_failure_of_the_node(tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = podgpu("doctor", "-c", plain(tmp_path), stdout=full)
    assert done.returncode == 3
    assert b"can't be written: No space left" in done.stderr
    assert b"Traceback" not in done.stderr


def test_a_reader_who_has_gone_leaves_the_status_as_it_is(tmp_path: Path) -> None:
    end, begin = os.pipe()
    os.close(end)
    text = GOOD.replace("builtin:demo", f"{tmp_path}/none")
    done = podgpu("doctor", "-c", str(write(tmp_path / "c.yaml", text)), stdout=begin)
    os.close(begin)
    assert (done.returncode, done.stderr) == (2, b"")


def test_a_bug_has_a_status_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: object) -> str:
        raise RuntimeError("of its own")

    monkeypatch.setattr(command, "as_text", breaks)
    arguments = parsed("-c", plain(tmp_path))
    assert arguments.command(arguments) == 3
    assert "RuntimeError: of its own" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["doctor"], ["check"]])
def test_a_signal_is_no_answer(tmp_path: Path, words: list[str]) -> None:
    """It waits for a pipe that nobody writes to, or for a port that answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        listens = GOOD.replace("{kind: jsonl}", f'{{kind: prometheus, listen: "127.0.0.1:{port}"}}')
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
from pipeline.cli import main
import pipeline.cli.main as commands

def slow(argv):
    print("begun", flush=True)
    time.sleep(60)

commands.run_command = slow
sys.exit(main())
"""


def test_what_a_component_logs_on_the_way_is_not_printed_and_the_log_is_as_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = logging.getLogger(ROOT).level
    run(capsys, "-c", str(write(tmp_path / "podgpu.yaml", GOOD)))
    assert logging.getLogger(ROOT).level == before
    assert capsys.readouterr().err == ""


def test_a_cluster_that_cannot_be_asked_ends_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kubeconfig = write(tmp_path / "kubeconfig", "{}")
    status, out = run(capsys, "--cluster", "--kubeconfig", str(kubeconfig), "--json")
    told = json.loads(out)
    assert (status, told["node"], told["origin"]) == (2, "", str(kubeconfig))
    assert [each["check"] for each in told["findings"]] == ["cluster.server"]


def test_a_cluster_without_credentials_names_the_option_that_gives_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    status, out = run(capsys, "--cluster", "--json")
    (told,) = json.loads(out)["findings"]
    assert (status, told["check"], told["looked_at"]) == (2, "cluster.server", "--kubeconfig")
    assert "--kubeconfig ~/.kube/config" in told["mend"]


def test_the_variable_of_kubectl_is_heeded_and_the_option_goes_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    there, named = write(tmp_path / "a", "{}"), write(tmp_path / "b", "{}")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/none:{there}")
    assert json.loads(run(capsys, "--cluster", "--json")[1])["origin"] == str(there)
    words = ("--cluster", "--json", "--kubeconfig", str(named))
    assert json.loads(run(capsys, *words)[1])["origin"] == str(named)
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/none")
    assert json.loads(run(capsys, "--cluster", "--json")[1])["origin"] == f"{tmp_path}/none"


def test_what_a_plugin_says_does_not_reach_the_terminal_by_itself(tmp_path: Path) -> None:
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
    assert b"process returned 3" in done.stdout
    assert b"\033" not in done.stdout


def test_on_a_machine_without_a_driver_it_says_so_in_seconds(tmp_path: Path) -> None:
    """A process of its own, where nobody has loaded a driver's library before."""
    path = write(
        tmp_path / "podgpu.yaml",
        "sources: {gpus: {kind: nvml}}\nsinks: {l: {kind: jsonl}}\n",
    )
    code = (
        "import sys, argparse; from pipeline.cli.doctor.arguments import add\n"
        "parser = argparse.ArgumentParser(); add(parser.add_subparsers())\n"
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
    told = {each["check"]: each["verdict"] for each in json.loads(done.stdout)["findings"]}
    assert "check.bug" not in told, done.stdout
    if told["nvml.driver"] == "ok":
        pytest.skip("this machine has one")
    assert done.returncode == 2
    assert told["nvml.driver"] == "failure"
    assert told["nvml.library"] in {"skipped", "ok"}
    assert told["nvml.nodes"] == "skipped"


def test_a_disk_that_hangs_does_not_keep_it_from_ending(tmp_path: Path) -> None:
    """A call in a thread that never ends, of those that a component makes."""
    code = (
        "import asyncio, time, pipeline.doctor.general as general\n"
        "from pipeline.cli.doctor import command\n"
        "from pipeline.cli.doctor.arguments import add\n"
        "from pipeline.doctor.examining import Examination, run\n"
        "async def hangs(): await asyncio.to_thread(time.sleep, 3600)\n"
        "async def diagnose(ctx): return await run([Examination('a disk', hangs)], 0.2)\n"
        "general.diagnose = diagnose\n"
        "import argparse, sys; parser = argparse.ArgumentParser(); add(parser.add_subparsers())\n"
        "arguments = parser.parse_args(sys.argv[1:]); sys.exit(arguments.command(arguments))\n"
    )
    path = write(tmp_path / "podgpu.yaml", GOOD)
    done = subprocess.run(
        [sys.executable, "-c", code, "doctor", "-c", str(path)],
        cwd=ROOT_FOLDER,
        capture_output=True,
        text=True,
        timeout=25,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "FAILURE   check.deadline: a disk: no answer within 0.2 s" in done.stdout


def test_it_loads_next_to_nothing_until_it_is_called() -> None:
    code = (
        "import sys; import pipeline.cli.doctor.arguments\n"
        "print([name for name in sys.modules if name.startswith(('pipeline.doctor', 'aiohttp'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT_FOLDER, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
