"""`podgpu doctor` for a newcomer: a running demo, and a machine without GPU and Kubernetes."""

from pathlib import Path

import pytest

from pipeline.component.findings import FAILS, Check, Finding
from pipeline.diagnostics.context import Roots
from podgpu.cli import config_commands
from podgpu.cli.commands import run_command
from podgpu.cli.demo.ledger_place import place
from podgpu.cli.doctor import config_selection
from podgpu.cli.doctor.config_selection import configured
from podgpu.doctor.missing_parts import missing_parts
from podgpu.doctor.report import Subject, as_text
from tests.podgpu.doctor.configs import VALID
from tests.podgpu.doctor.support import context, in_this_container, process, write

DRIVER = Check("nvml.driver", FAILS)
NO_DRIVER = DRIVER.failure("/proc", "no NVIDIA driver on the host", "install it")
KUBELET = "sources: {gpus: {kind: nvml}, kubelet: {kind: podresources}}\n"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a machine on which `podgpu demo` runs on port 9555."""
    for module in (config_selection, config_commands):
        monkeypatch.setattr(module, "PLACES", (tmp_path / "podgpu.yaml",))
    monkeypatch.setattr(config_selection, "_PROC", tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    process(tmp_path, 7, "/opt/python3", "/opt/podgpu", "demo", "--listen", "127.0.0.1:9555")
    in_this_container(tmp_path, 7)
    return tmp_path


def test_a_running_demo_is_checked(machine: Path) -> None:
    path = place("9555", {"XDG_STATE_HOME": str(machine / "state")})
    path.touch()
    config, origin = configured(None, ())
    assert origin == "podgpu demo, process 7"
    assert config.node == "demo"
    assert str(config.sinks["metrics"].options.listen) == "127.0.0.1:9555"  # type: ignore[attr-defined]
    assert config.sinks["usage"].options.path == path  # type: ignore[attr-defined]


@pytest.mark.usefixtures("machine")
def test_a_demo_without_a_ledger_is_checked_without_one() -> None:
    assert list(configured(None, ())[0].sinks) == ["metrics"]


def test_a_configuration_file_comes_before_a_running_demo(machine: Path) -> None:
    write(machine / "podgpu.yaml", VALID)
    assert configured(None, ())[1] == str(machine / "podgpu.yaml")


def test_one_of_several_running_daemons_has_to_be_chosen(
    machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    process(machine, 8, "podgpu", "run", "-c", "a.yaml")
    in_this_container(machine, 8)
    assert run_command(["doctor"]) == 2
    text = " ".join(capsys.readouterr().out.split())
    assert "2 podgpu processes run here: process 7 (podgpu demo --listen" in text
    assert "process 8 (podgpu run -c a.yaml)" in text
    assert "give the configuration of one as -c FILE" in text


@pytest.mark.parametrize(
    ("text", "environ", "found", "expected"),
    [
        ("", {}, [NO_DRIVER], "no NVIDIA driver on this machine: "),
        (KUBELET, {}, [NO_DRIVER], "no NVIDIA driver and no Kubernetes on this machine: "),
        (
            KUBELET,
            {"KUBERNETES_SERVICE_HOST": "10.0.0.1"},
            [NO_DRIVER],
            "no NVIDIA driver on this machine: ",
        ),
        (KUBELET, {}, [DRIVER.ok("/proc", "driver 580")], ""),
        (KUBELET, {}, [], ""),
    ],
)
def test_the_first_line_says_what_the_machine_lacks(
    tmp_path: Path, text: str, environ: dict[str, str], found: list[Finding], expected: str
) -> None:
    empty = Roots(*(tmp_path / name for name in ("proc", "sys", "dev", "host")))
    lead = missing_parts(context(tmp_path, text, roots=empty, environ=environ), found)
    assert lead.startswith(expected)
    assert bool(lead) == bool(expected)
    if lead:
        assert lead.endswith("podgpu demo needs none")
        first, second, *_ = as_text(Subject("gpu-1", "a file", lead), found).splitlines()
        assert first == lead
        assert second.endswith(" on gpu-1, a file")


def test_a_driver_that_fails_is_not_missing(tmp_path: Path) -> None:
    assert missing_parts(context(tmp_path, KUBELET), [NO_DRIVER]) == ""


def test_a_kubelet_of_any_distribution_is_kubernetes(tmp_path: Path) -> None:
    roots = Roots(*(tmp_path / name for name in ("proc", "sys", "dev", "host")))
    (roots.host / "var/lib/k0s/kubelet").mkdir(parents=True)
    lead = missing_parts(context(tmp_path, KUBELET, roots=roots, environ={}), [NO_DRIVER])
    assert lead.startswith("no NVIDIA driver on this machine: ")
