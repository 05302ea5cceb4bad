"""`podgpu usage` without options after `podgpu demo`: its sample data, which is named as that."""

import csv
import io
import json
from pathlib import Path

import pytest

from podgpu.cli.demo.ledger_file import write
from podgpu.cli.demo.ledger_place import place
from podgpu.cli.doctor import config_selection
from podgpu.cli.usage import command
from tests.podgpu.cli.demo.sample_nodes import NODE, NOW
from tests.podgpu.cli.usage.usage_command import run
from tests.podgpu.doctor.support import in_this_container, process

Capsys = pytest.CaptureFixture[str]
SAMPLE = "sample data of podgpu demo, not measured"


class _Stopped:
    def now(self) -> object:
        return NOW


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder for state with the ledger of a demo."""
    folder = tmp_path_factory.mktemp("state")
    write(place("9400", {"XDG_STATE_HOME": str(folder)}), NODE, NOW)
    return folder


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Go to a folder on a machine without a configuration and without a running podgpu."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(config_selection, "PLACES", (Path("podgpu.yaml"),))
    monkeypatch.setattr(config_selection, "_PROC", tmp_path)
    monkeypatch.setattr(command, "SystemClock", _Stopped)
    return tmp_path


@pytest.fixture
def demo(state: Path, machine: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of the ledger of the demo that has run on the machine."""
    assert machine.is_dir()
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    return state / "podgpu" / "demo.db"


@pytest.mark.parametrize(
    "words", [(), ("--by", "pod"), ("--by", "label:team"), ("--since", "all"), ("--holdings",)]
)
def test_a_table_says_so_in_its_first_line(
    demo: Path, capsys: Capsys, words: tuple[str, ...]
) -> None:
    code, out, err = run(capsys, *words)
    assert code == 0
    first, second, *_ = out.splitlines()
    assert first == SAMPLE
    assert second.startswith("demo, 2026-11-")
    assert "research" in out
    assert err.startswith(f"podgpu: reading {demo}, the ledger that podgpu demo wrote last\n")


@pytest.mark.parametrize("words", [(), ("--by", "device"), ("--holdings",)])
def test_json_and_each_row_of_csv_say_so(
    demo: Path, capsys: Capsys, words: tuple[str, ...]
) -> None:
    assert demo.exists()
    _, out, _ = run(capsys, *words, "--format", "json")
    assert json.loads(out)["sample_data"] == "podgpu demo"
    _, out, _ = run(capsys, *words, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert rows
    assert {row["sample_data"] for row in rows} == {"podgpu demo"}


def test_the_file_says_so_wherever_it_is(demo: Path, capsys: Capsys) -> None:
    code, out, err = run(capsys, "--ledger", demo)
    assert (code, err) == (0, "")
    assert out.startswith(f"{SAMPLE}\n")


def test_a_configuration_comes_before_the_demo(demo: Path, machine: Path, capsys: Capsys) -> None:
    assert demo.exists()
    sinks = f"sinks: {{books: {{kind: ledger, path: {machine}/own.db}}}}"
    text = f"sources: {{gpus: {{kind: nvml}}}}\n{sinks}\n"
    (machine / "podgpu.yaml").write_text(text)
    code, out, err = run(capsys)
    assert (code, out) == (1, "")
    assert f"{machine}/own.db: does not exist" in err


@pytest.mark.usefixtures("machine")
def test_without_a_demo_the_error_says_how_to_get_a_ledger(capsys: Capsys) -> None:
    code, out, err = run(capsys)
    assert (code, out) == (2, "")
    assert "has no ledger" in err
    assert "podgpu demo writes a ledger of sample data" in err


def test_the_ledger_of_a_running_demo_on_any_port_is_read(
    machine: Path, capsys: Capsys, tmp_path: Path
) -> None:
    """The variables of the demo differ from ours."""
    env = {"XDG_STATE_HOME": str(tmp_path / "other")}
    write(place("9555", env), NODE, NOW)
    process(machine, 7, "podgpu", "demo")
    in_this_container(machine, 7)
    text = f"XDG_STATE_HOME={env['XDG_STATE_HOME']}\0PODGPU_LISTEN=:9555\0"
    (machine / "7" / "environ").write_text(text)
    code, out, err = run(capsys)
    assert (code, out.splitlines()[0]) == (0, SAMPLE)
    path = tmp_path / "other/podgpu/demo-9555.db"
    assert f"podgpu: reading {path}, the ledger of podgpu demo, process 7\n" in err


def test_several_running_daemons_are_listed_with_their_ledgers(
    demo: Path, machine: Path, capsys: Capsys
) -> None:
    sinks = f"sinks: {{books: {{kind: ledger, path: {machine}/own.db}}}}"
    (machine / "a.yaml").write_text(f"sources: {{gpus: {{kind: nvml}}}}\n{sinks}\n")
    process(machine, 7, "podgpu", "run", "-c", f"{machine}/a.yaml")
    process(machine, 8, "podgpu", "demo")
    process(machine, 9, "podgpu", "run")
    for number in (7, 8, 9):
        in_this_container(machine, number)
    (machine / "9" / "cwd").symlink_to("/")
    code, out, err = run(capsys)
    assert (code, out) == (2, "")
    for text in (
        "3 podgpu processes run here: choose the ledger of one of them",
        f"process 7 (podgpu run -c {machine}/a.yaml): podgpu usage --ledger {machine}/own.db",
        f"process 8 (podgpu demo): podgpu usage --ledger {demo}",
        "process 9 (podgpu run): sinks has no ledger",
    ):
        assert text in err
    assert run(capsys, "--ledger", demo)[0] == 0
