"""The systemd unit of the archive: systemd accepts it, and it is as restricted as podgpu's."""

import configparser
import shlex
from pathlib import Path

import pytest

from podgpu.cli.commands import command_parser
from tests.deploy.places import ROOT
from tests.deploy.test_systemd import ANALYZE, PROGRAM, analyzed
from tests.deploy.test_systemd import UNIT as PODGPUS

UNIT = ROOT / "deploy" / "systemd" / "podgpu-archive.service"


def service(path: Path) -> dict[str, str]:
    read = configparser.RawConfigParser(strict=False, allow_no_value=True)
    read.optionxform = str  # type: ignore[assignment,method-assign]
    read.read_string(path.read_text(encoding="utf-8"))
    return dict(read["Service"])


@pytest.mark.slow
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    if ANALYZE is None:
        pytest.skip("systemd-analyze is not installed")
    environment = tmp_path / "archive.env"
    environment.touch()
    path = tmp_path / UNIT.name
    text = UNIT.read_text(encoding="utf-8").replace(PROGRAM, "/bin/true")
    path.write_text(text.replace("/etc/podgpu/archive.env", str(environment)), encoding="utf-8")
    done = analyzed("verify", path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_it_is_as_restricted_as_podgpu_and_has_no_devices() -> None:
    own, podgpus = service(UNIT), service(PODGPUS)
    different = {name for name in own.keys() | podgpus.keys() if own.get(name) != podgpus.get(name)}
    assert different == {
        "DeviceAllow",
        "EnvironmentFile",
        "ExecReload",
        "ExecStart",
        "KillMode",
        "RestartSec",
        "TimeoutStopSec",
        "User",
    }
    assert own["User"] == PODGPUS.stem, "the dynamic user of a unit has the unit's name"


def test_its_command_is_valid_and_ends_in_time() -> None:
    program, *words = shlex.split(service(UNIT)["ExecStart"])
    assert program == PROGRAM
    words = [
        word.replace("${ARCHIVE_TO}", "s3://b/p").replace("${ARCHIVE_CLUSTER}", "east")
        for word in words
    ]
    arguments = command_parser().parse_args(words)
    assert (arguments.to, arguments.cluster) == ("s3://b/p", "east")
    stop = int(service(UNIT)["TimeoutStopSec"].removesuffix("s"))
    assert stop == float(arguments.grace) + 5
