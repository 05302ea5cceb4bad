"""The command `podgpu doctor`."""

import argparse
import io
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from pipeline.base.logs import ROOT
from pipeline.component.findings import BOTH, Check, Finding
from pipeline.diagnostics.context import DoctorContext
from pipeline.diagnostics.process_lookup import Daemon, run_config_file, running_daemons
from podgpu.cli import config_commands
from podgpu.cli.arguments import add_doctor
from podgpu.cli.commands import run_command
from podgpu.cli.doctor import command, config_selection
from tests.podgpu.doctor.configs import VALID, valid_config
from tests.podgpu.doctor.support import healthy, in_this_container, process, write


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_doctor(parser.add_subparsers())
    return parser.parse_args(["doctor", *words])


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    arguments = parsed(*words)
    status: int = arguments.command(arguments)
    return status, capsys.readouterr().out


@pytest.fixture(autouse=True)
def small_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace this machine's processes and clock."""
    roots = healthy(tmp_path / "node")

    def context(config: object, **more: Any) -> DoctorContext:
        made: DoctorContext = DoctorContext(
            config,  # type: ignore[arg-type]
            roots=roots,
            environ={},
            synchronised=lambda: True,
            **more,
        )
        return made

    monkeypatch.setattr("pipeline.diagnostics.context.DoctorContext", context)


def test_a_healthy_node_exits_with_0_and_prints_a_line_for_each_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "podgpu.yaml", VALID)
    status, out = run(capsys, "-c", str(path))
    assert status == 0, out
    assert f"on gpu-1, {path}" in out.splitlines()[0]
    assert "ok        replay.recording (source r): builtin:demo" in out
    assert out.splitlines()[-1] == "7 ok, 1 skipped"


def test_failures_exit_with_2_also_in_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = VALID.replace("builtin:demo", f"{tmp_path}/none")
    status, out = run(capsys, "-c", str(write(tmp_path / "podgpu.yaml", text)), "--json")
    document = json.loads(out)
    assert status == document["status"] == 2
    (failure,) = [each for each in document["findings"] if each["verdict"] == "failure"]
    assert failure["check"] == "replay.recording"
    assert failure["component"] == "source r"
    assert failure["mend"]


def test_warnings_without_failures_exit_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def diagnose(_: DoctorContext) -> list[Finding]:
        return [Check("clock", BOTH).warning("here", "off", "run chrony")]

    monkeypatch.setattr("podgpu.doctor.node_checks.diagnose", diagnose)
    status, out = run(capsys, "-c", str(write(tmp_path / "podgpu.yaml", VALID)))
    assert status == 1
    assert "WARNING   clock: here: off" in out
    assert "fix: run chrony" in out


INVALID_CONFIGS = [
    ("sources: {a: {kind: nvmll}}\n", 2),
    ("- a list\n", 1),
    (None, 1),
    (VALID + "nope: 1\nneither: 2\n", 2),
]


@pytest.mark.parametrize(("text", "count"), INVALID_CONFIGS)
def test_each_error_of_an_invalid_configuration_file_is_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None, count: int
) -> None:
    path = tmp_path / "podgpu.yaml"
    if text is not None:
        write(path, text)
    status, out = run(capsys, "-c", str(path), "--json")
    findings = json.loads(out)["findings"]
    assert status == 2
    assert [each["check"] for each in findings] == ["config"] * count
    for each in findings:
        assert each["looked_at"] == str(path)
        assert "\n" not in each["saw"]
        assert "podgpu check" in each["mend"]


@pytest.mark.parametrize("name", ["-", "/dev/stdin"])
def test_the_configuration_may_come_from_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    for text, expected in ((VALID, 0), ("sources: [", 2)):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        status, out = run(capsys, "-c", name)
        assert status == expected, out
        assert "standard input" in out.splitlines()[0]


EXPORTER = ("-a", "127.0.0.1:0", "-k=false")


def test_options_of_dcgm_exporter_are_checked_as_the_configuration_they_make(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "c.csv", "DCGM_FI_DEV_GPU_UTIL, gauge, a\n")
    _, out = run(capsys, "--json", "dcgm-exporter", "-f", str(path), *EXPORTER)
    document = json.loads(out)
    assert document["origin"] == f"dcgm-exporter -f {path} {' '.join(EXPORTER)}"
    subjects = {each["check"]: each["looked_at"] for each in document["findings"]}
    assert subjects["http.port"] == "127.0.0.1:0"
    assert subjects["counters"] == str(path)


@pytest.mark.parametrize("words", [["--nope"], ["-c", "soon"], ["--help"], ["--version"]])
def test_options_that_dcgm_exporter_does_not_have_are_a_failure(
    capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    status, out = run(capsys, "--json", "dcgm-exporter", *words)
    (finding,) = json.loads(out)["findings"]
    assert (status, finding["check"], finding["verdict"]) == (2, "config", "failure")


def test_without_a_file_the_variables_of_dcgm_exporter_are_used_as_in_the_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(config_selection, "PLACES", (tmp_path / "podgpu.yaml",))
    monkeypatch.setattr(config_selection, "_PROC", tmp_path)
    monkeypatch.setenv("DCGM_EXPORTER_LISTEN", "127.0.0.1:0")
    _, out = run(capsys, "--json")
    document = json.loads(out)
    assert document["origin"] == "dcgm-exporter's variables (DCGM_EXPORTER_LISTEN)"
    assert "127.0.0.1:0" in [each["looked_at"] for each in document["findings"]]
    # A file takes precedence over variables, which may be left over.
    path = write(tmp_path / "podgpu.yaml", VALID)
    assert json.loads(run(capsys, "--json", "-c", str(path))[1])["origin"] == str(path)
    monkeypatch.chdir(tmp_path)
    assert json.loads(run(capsys, "--json")[1])["origin"] == "podgpu.yaml"


def test_the_options_of_a_running_dcgm_exporter_mode_daemon_are_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(config_selection, "_PROC", tmp_path)
    process(tmp_path, 7, "/opt/python3", "/opt/podgpu", "dcgm-exporter", *EXPORTER)
    in_this_container(tmp_path, 7)
    document = json.loads(run(capsys, "--json")[1])
    assert document["origin"] == f"dcgm-exporter {' '.join(EXPORTER)}, used by process 7"
    assert "127.0.0.1:0" in [each["looked_at"] for each in document["findings"]]
    path = write(tmp_path / "podgpu.yaml", VALID)
    assert json.loads(run(capsys, "--json", "-c", str(path))[1])["origin"] == str(path)


def test_a_daemon_of_another_container_is_ignored(tmp_path: Path) -> None:
    process(tmp_path, 7, "podgpu", "dcgm-exporter", *EXPORTER)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    in_this_container(tmp_path, 7, elsewhere)
    assert running_daemons(tmp_path) == []


FILES = [
    (("-c", "/a/b.yaml"), "/a/b.yaml"),
    (("--config", "/a/b.yaml"), "/a/b.yaml"),
    (("--config=/a/b.yaml",), "/a/b.yaml"),
    (("-c/a/b.yaml",), "/a/b.yaml"),
    (("-c=/a/b.yaml",), "/a/b.yaml"),
    (("--allow-configured-code", "-c", "/a/b.yaml"), "/a/b.yaml"),
    (("-c", "/a/b.yaml", "--allow-library", "/a/lib.so"), "/a/b.yaml"),
    (("-c=-",), None),
    (("--config", "/dev/stdin"), None),
    (("-c", "/dev/fd/0"), None),
    (("-c", "/proc/self/fd/0"), None),
    (("-c", "/dev//stdin"), None),
    (("-c", "/dev/fd/3"), "/dev/fd/3"),
    (("-c", "/x.yaml", "-c", "/a/b.yaml"), "/a/b.yaml"),
    (("-c", "b.yaml"), "HERE/b.yaml"),
    (("-c", "-"), None),
    (("-c",), None),
    ((), None),
]


@pytest.mark.parametrize(("words", "file"), FILES)
def test_the_configuration_file_of_a_daemon_is_found_in_its_command_line(
    tmp_path: Path, words: tuple[str, ...], file: str | None
) -> None:
    process(tmp_path, 7, "podgpu", "run", *words)
    in_this_container(tmp_path, 7)
    (tmp_path / "7" / "cwd").symlink_to(tmp_path)
    expected = None if file is None else Path(file.replace("HERE", str(tmp_path)))
    assert [run_config_file(each, tmp_path) for each in running_daemons(tmp_path)] == [expected]


@pytest.mark.parametrize("words", [words for words, file in FILES if file and words])
def test_podgpu_run_reads_the_same_file_from_that_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    read: list[Path] = []

    def fake_run(arguments: argparse.Namespace) -> int:
        read.append(arguments.config)
        return 0

    monkeypatch.setattr(config_commands, "run", fake_run)
    assert run_command(["run", *words]) == 0
    process(tmp_path, 7, "podgpu", "run", *words)
    in_this_container(tmp_path, 7)
    (tmp_path / "7" / "cwd").symlink_to("/")
    assert run_config_file(Daemon(7, "run", words), tmp_path) == "/" / read[0]


def test_the_configuration_file_of_a_running_daemon_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(config_selection, "_PROC", tmp_path)
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "podgpu.yaml", VALID.replace("gpu-1", "gpu-2"))
    path = write(tmp_path / "elsewhere/other.yaml", VALID)
    process(tmp_path, 7, "/opt/python3", "/opt/podgpu", "run", "-c", str(path))
    in_this_container(tmp_path, 7)
    document = json.loads(run(capsys, "--json")[1])
    assert (document["origin"], document["node"]) == (f"{path}, used by process 7", "gpu-1")
    path.unlink()
    status, out = run(capsys, "--json")
    assert (status, json.loads(out)["findings"][0]["check"]) == (2, "config")


CONTRADICTIONS = [
    (["--kubeconfig", "x"], "--kubeconfig needs --cluster"),
    (["--namespace", "x"], "--namespace needs --cluster"),
    (["--cluster", "-c", "x"], "--cluster reads no configuration"),
    (["--cluster", "dcgm-exporter"], "--cluster reads no configuration"),
    (["-c", "x", "dcgm-exporter", "-a", ":1"], "give only one"),
    (["nonsense", "-k"], "only dcgm-exporter and its options can follow here"),
    (["dcgm-exproter", "-k"], 'did you mean "dcgm-exporter"?'),
]


@pytest.mark.parametrize(("words", "message"), CONTRADICTIONS)
def test_options_that_would_be_ignored_are_refused(
    capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        run(capsys, *words)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def test_a_bug_exits_with_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_error(*_: object) -> str:
        raise RuntimeError("a bug")

    monkeypatch.setattr(command, "as_text", raise_error)
    arguments = parsed("-c", valid_config(tmp_path))
    assert arguments.command(arguments) == 3
    assert "RuntimeError: a bug" in capsys.readouterr().err


def test_logs_of_components_are_not_printed_and_the_log_level_is_restored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = logging.getLogger(ROOT).level
    run(capsys, "-c", str(write(tmp_path / "podgpu.yaml", VALID)))
    assert logging.getLogger(ROOT).level == before
    assert capsys.readouterr().err == ""


def test_a_cluster_that_cannot_be_queried_exits_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kubeconfig = write(tmp_path / "kubeconfig", "{}")
    status, out = run(capsys, "--cluster", "--kubeconfig", str(kubeconfig), "--json")
    document = json.loads(out)
    assert (status, document["node"], document["origin"]) == (2, "", str(kubeconfig))
    assert [each["check"] for each in document["findings"]] == ["cluster.server"]


def test_without_credentials_for_the_cluster_the_option_for_them_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    status, out = run(capsys, "--cluster", "--json")
    (finding,) = json.loads(out)["findings"]
    assert (status, finding["check"], finding["looked_at"]) == (
        2,
        "cluster.server",
        "--kubeconfig",
    )
    assert "--kubeconfig ~/.kube/config" in finding["mend"]


def test_kubeconfig_of_the_environment_is_used_and_the_option_takes_precedence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    existing, named = write(tmp_path / "a", "{}"), write(tmp_path / "b", "{}")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/none:{existing}")
    assert json.loads(run(capsys, "--cluster", "--json")[1])["origin"] == str(existing)
    words = ("--cluster", "--json", "--kubeconfig", str(named))
    assert json.loads(run(capsys, *words)[1])["origin"] == str(named)
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/none")
    assert json.loads(run(capsys, "--cluster", "--json")[1])["origin"] == f"{tmp_path}/none"
