"""The systemd unit: systemd accepts it, and rates its hardening as documented."""

import configparser
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.deploy.places import DOCS, ROOT

UNIT = ROOT / "deploy" / "systemd" / "podgpu.service"
PROGRAM = "/opt/podgpu/bin/podgpu"
ANALYZE = shutil.which("systemd-analyze")
PAGE = (DOCS / "install.md").read_text(encoding="utf-8")


def service() -> dict[str, str]:
    read = configparser.RawConfigParser(strict=False, allow_no_value=True)
    read.optionxform = str  # type: ignore[assignment,method-assign]
    read.read_string(UNIT.read_text(encoding="utf-8"))
    return dict(read["Service"])


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit with an existing program, as systemd refuses others."""
    if ANALYZE is None:
        pytest.skip("systemd-analyze is not installed")
    text = UNIT.read_text(encoding="utf-8")
    assert text.count(PROGRAM) == 1
    path = tmp_path / UNIT.name
    path.write_text(text.replace(PROGRAM, "/bin/true"), encoding="utf-8")
    return path


def analyzed(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(ANALYZE), *map(str, words)], capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.slow
def test_systemd_accepts_the_unit(unit: Path) -> None:
    done = analyzed("verify", unit)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    unit.write_text(unit.read_text().replace("ProtectHome=yes", "ProtectHomes=yes"))
    assert "ProtectHomes" in analyzed("verify", unit).stderr, "otherwise this test proves nothing"


@pytest.mark.slow
def test_the_exposure_of_the_unit_is_the_documented_one(unit: Path) -> None:
    done = analyzed("security", "--offline=true", "--no-pager", unit)
    found = re.search(r"Overall exposure level for podgpu.service: ([0-9.]+)", done.stdout)
    assert found, done
    exposure = float(found[1])
    assert exposure < 2.0
    version = re.search(r"^systemd (\d+)", analyzed("--version").stdout)
    assert version
    documented = re.search(r"of systemd (\d+) rates the\s+unit with ([0-9]+\.[0-9])", PAGE)
    assert documented
    if version[1] == documented[1]:
        assert exposure == float(documented[2])


def test_podgpu_has_the_devices_of_the_driver_and_no_other() -> None:
    assert service()["DevicePolicy"] == "closed"
    assert service()["DeviceAllow"] == "char-nvidia* rw"
    assert "PrivateDevices" not in service()


def test_an_error_in_the_configuration_is_not_retried() -> None:
    assert service()["Restart"] == "on-failure"
    assert service()["RestartPreventExitStatus"] == "2"


def test_the_page_has_the_paths_of_the_unit() -> None:
    assert service()["ExecStart"] == f"{PROGRAM} run"
    for path in ("/opt/podgpu", "deploy/systemd/podgpu.service", "/etc/podgpu/config.yaml"):
        assert path in PAGE
