"""The image of the Dockerfile: its content, its required permissions, and its stop."""

import os
import signal
import tarfile
from pathlib import Path, PurePosixPath

import pytest

from pipeline.base.version import VERSION
from tests.e2e.image import CREATED, REVISION, Image
from tests.e2e.image_pods import container_id, execute, podgpu_pod, wait_page
from tests.e2e.kube.cluster import Cluster
from tests.e2e.scenes import distinct
from tests.fakes.nvml import FakeNvml

SCENE = distinct()


@pytest.fixture
def fake(tmp_path: Path) -> FakeNvml:
    # The scenario has to be readable for other users than root.
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(folder.stat().st_mode | 0o055)
    return FakeNvml(SCENE, tmp_path)


# The content.


def test_the_image_has_opencontainers_labels(image: Image) -> None:
    begin = "org.opencontainers.image."
    labels = {
        key.removeprefix(begin): text
        for key, text in image.config["Labels"].items()
        if key.startswith(begin)
    }
    assert labels.pop("description")
    assert labels == {
        "title": "podgpu",
        "licenses": "Apache-2.0",
        "version": VERSION,
        "revision": REVISION,
        "created": CREATED,
        "base.name": "localhost/base",
    }


def test_the_image_config_has_a_non_root_user_and_nvidia_variables(image: Image) -> None:
    env = dict(each.split("=", 1) for each in image.config["Env"])
    assert env["NVIDIA_VISIBLE_DEVICES"] == "all"
    assert env["NVIDIA_DRIVER_CAPABILITIES"] == "utility"
    assert env["PYTHONSAFEPATH"] == "1"
    assert image.config["User"] == "65532:0"
    assert image.config["Entrypoint"] == ["podgpu-entrypoint"]
    assert image.config.get("Cmd") is None
    assert image.config.get("Volumes") is None
    assert set(image.config["ExposedPorts"]) == {"9400/tcp"}


@pytest.fixture(scope="module")
def added(image: Image) -> list[tarfile.TarInfo]:
    """The files that the image adds to its base."""
    _base, *ours = image.layers()
    return [member for layer in ours for member in layer]


def test_the_image_contains_podgpu_and_no_build_tools(added: list[tarfile.TarInfo]) -> None:
    paths = {
        PurePosixPath(member.name.removeprefix("./")) for member in added if not member.isdir()
    }
    places = {path.parts[:2] for path in paths}
    assert places == {("opt", "podgpu"), ("etc", "dcgm-exporter"), ("usr", "local"), ("usr", "bin")}
    packages = {path.parts[5] for path in paths if "site-packages" in path.parts}
    assert {"podgpu", "pipeline", "sources", "sinks", "config", "pynvml.py"} <= packages
    made_it = {"pip", "setuptools", "wheel", "hatchling", "pathspec", "tests", "deploy", "docs"}
    assert not packages & made_it
    assert not any(path.suffix == ".whl" for path in paths)
    # Half of it is DuckDB and obstore, for the archive.
    assert sum(member.size for member in added) < 170_000_000


def test_the_image_has_the_entry_points_of_dcgm_exporter(added: list[tarfile.TarInfo]) -> None:
    links = {f"/{member.name}": member.linkname for member in added if member.issym()}
    for name in (
        "/usr/bin/dcgm-exporter",
        "/usr/bin/dcgm-exporter-entrypoint.sh",
        "/usr/local/dcgm/dcgm-exporter-entrypoint.sh",
    ):
        assert links[name] == "/usr/local/bin/podgpu-entrypoint"


def test_only_root_can_change_added_files(added: list[tarfile.TarInfo]) -> None:
    assert {(member.uid, member.gid) for member in added} == {(0, 0)}
    for member in added:
        if not member.issym():
            assert not member.mode & 0o6022, (member.name, oct(member.mode))


def test_all_added_files_are_world_readable(added: list[tarfile.TarInfo]) -> None:
    for member in added:
        wanted = 0o555 if member.isdir() else 0o444
        assert member.mode & wanted == wanted, (member.name, oct(member.mode))


# Running containers.


def test_the_image_runs_without_capabilities_and_stops_on_sigterm(
    loaded: Image, kube: Cluster, fake: FakeNvml
) -> None:
    made = kube.run(podgpu_pod("alone", fake=fake))
    for gpu in SCENE.gpus:
        wait_page(kube, made, rf'^DCGM_FI_DEV_GPU_TEMP{{[^}}]*UUID="{gpu.uuid}"')
    first = Path(f"/proc/{kube.containerd.pid_of(container_id(made))}")
    assert b"/opt/podgpu/bin/podgpu\0run\0" in (first / "cmdline").read_bytes()
    status = dict(line.split(":\t", 1) for line in (first / "status").read_text().splitlines())
    assert status["Uid"].split() == ["65532"] * 4
    assert status["NSpid"].split()[-1] == "1"
    assert {int(status[each], 16) for each in ("CapInh", "CapPrm", "CapEff", "CapBnd")} == {0}
    assert status["NoNewPrivs"] == "1"
    assert execute(kube, made, "touch", "/opt/podgpu/new").returncode != 0
    # The ledger needs a module of the base image.
    keeps = "import sqlite3; sqlite3.connect(':memory:').execute('select 1')"
    assert execute(kube, made, "/opt/podgpu/bin/python", "-c", keeps).returncode == 0
    os.kill(int(first.name), signal.SIGTERM)
    ended = kube.api.wait_phase("alone", "Succeeded", "Failed")
    (container,) = ended["status"]["containerStatuses"]
    assert container["state"]["terminated"]["exitCode"] == 0, kube.pod_log("alone")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ((), ("-f", "/etc/dcgm-exporter/dcp-metrics-included.csv", "-a", ":9400")),
        (("/usr/local/dcgm/dcgm-exporter-entrypoint.sh",), ("-a", ":9400")),
    ],
    ids=["args only", "entry point of dcgm-exporter"],
)
def test_the_image_replaces_the_one_of_dcgm_exporter(
    loaded: Image,
    kube: Cluster,
    fake: FakeNvml,
    command: tuple[str, ...],
    words: tuple[str, ...],
) -> None:
    env = {"NODE_NAME": kube.node}
    made = kube.run(podgpu_pod("exporter", *words, command=command, fake=fake, env=env))
    wait_page(kube, made, r'^DCGM_FI_DEV_GPU_TEMP{gpu="0",.*} 41$')


def test_modules_in_the_working_directory_are_not_imported(
    loaded: Image, kube: Cluster, fake: FakeNvml, tmp_path: Path
) -> None:
    trap = tmp_path / "trap"
    trap.mkdir()
    for name in ("podgpu", "config", "pipeline", "sources", "sinks", "json"):
        (trap / f"{name}.py").write_text("raise SystemExit('it was taken from here')\n")
    made = podgpu_pod("trapped", "kinds", folders={"/trap": str(trap)}, inside="/trap")
    kube.run(made, "Succeeded", "Failed")
    output = kube.pod_log("trapped")
    assert "podresources" in output
    assert kube.api.pod("trapped")["status"]["phase"] == "Succeeded", output


def test_without_a_driver_the_doctor_reports_a_failure(loaded: Image, kube: Cluster) -> None:
    kube.run(podgpu_pod("patient", "doctor"), "Succeeded", "Failed")
    output = " ".join(kube.pod_log("patient").split())
    assert "FAILURE nvml.driver" in output
    assert "fix:" in output
    (container,) = kube.api.pod("patient")["status"]["containerStatuses"]
    assert container["state"]["terminated"]["exitCode"] == 2
