"""The compose file: the reference parser accepts it, and its Prometheus scrapes the demo.

Grafana does not run here: only its files are checked.
"""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.base.version import VERSION
from tests.deploy.places import ROOT
from tests.e2e import peers
from tests.e2e.node import PODGPU
from tests.e2e.processes import Process, free_ports, wait_until
from tests.e2e.promql import QueriedPrometheus

FOLDER = ROOT / "deploy" / "compose"
FILE = FOLDER / "compose.yaml"
TARGET = "podgpu:9400"


def parsed(file: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [peers.compose(), "-format", "json", file],
        cwd=file.parent,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin"},
        timeout=60,
    )


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    done = parsed(FILE)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["services"]
    return found


def mounts(service: dict[str, Any]) -> dict[str, Path]:
    """Return the files and folders of this machine by their paths in the container."""
    return {each["target"]: Path(each["source"]) for each in service["volumes"]}


def loaded(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def test_the_parser_refuses_an_unknown_key(tmp_path: Path) -> None:
    """Otherwise the other tests would prove nothing."""
    wrong = tmp_path / "compose.yaml"
    wrong.write_text(FILE.read_text().replace("cap_drop:", "cap_drops:", 1))
    done = parsed(wrong)
    assert done.returncode != 0
    assert "cap_drops" in done.stderr


def test_everything_that_is_mounted_exists_and_is_read_only(services: dict[str, Any]) -> None:
    volumes = [each for service in services.values() for each in service.get("volumes", [])]
    assert len(volumes) == 6
    for each in volumes:
        assert Path(each["source"]).exists(), each
        assert each["read_only"] is True
        assert each["type"] == "bind"


def test_ports_are_those_of_loopback_because_there_is_no_password(
    services: dict[str, Any],
) -> None:
    ports = {name: service["ports"] for name, service in services.items()}
    assert {name: [each["target"] for each in found] for name, found in ports.items()} == {
        "podgpu": [9400],
        "prometheus": [9090],
        "grafana": [3000],
    }
    assert {each["host_ip"] for found in ports.values() for each in found} == {"127.0.0.1"}


def test_the_image_is_built_here_and_has_podgpus_version(services: dict[str, Any]) -> None:
    podgpu = services["podgpu"]
    assert podgpu["image"] == f"podgpu:{VERSION}"
    assert Path(podgpu["build"]["context"]) == ROOT
    assert podgpu["command"] == ["demo"]


def test_grafana_finds_prometheus_and_all_dashboards(services: dict[str, Any]) -> None:
    at = mounts(services["grafana"])
    (source,) = loaded(at["/etc/grafana/provisioning/datasources/podgpu.yaml"])["datasources"]
    (port,) = services["prometheus"]["ports"]
    assert source["url"] == f"http://prometheus:{port['target']}"
    (provider,) = loaded(at["/etc/grafana/provisioning/dashboards/podgpu.yaml"])["providers"]
    folder = at[provider["options"]["path"]]
    assert folder == ROOT / "deploy" / "chart" / "files" / "dashboards"
    home = Path(services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert (folder / home.relative_to(provider["options"]["path"])).is_file()


@pytest.fixture(scope="module")
def container(services: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of Prometheus as they are in its container."""
    folder = tmp_path_factory.mktemp("prometheus")
    for target, source in mounts(services["prometheus"]).items():
        assert Path(target).parent == Path("/etc/prometheus")
        shutil.copy(source, folder / Path(target).name)
    return folder


def test_promtool_accepts_the_configuration_and_the_rules(container: Path) -> None:
    command: list[str | Path] = [peers.prometheus().promtool, "check", "config"]
    command.append(container / "prometheus.yml")
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("rules found") == 2


@pytest.fixture
def prometheus(container: Path, tmp_path: Path) -> Iterator[QueriedPrometheus]:
    """Prometheus with this configuration, beside a demo on another port."""
    demo_port, port = free_ports(2)
    config = container / "loopback.yml"
    text = (container / "prometheus.yml").read_text()
    assert text.count(TARGET) == 1
    config.write_text(text.replace(TARGET, f"127.0.0.1:{demo_port}"))
    # As in the container, where the user has no home.
    env = {"HOME": "/", "XDG_STATE_HOME": "", "TMPDIR": str(tmp_path), "LD_LIBRARY_PATH": ""}
    listen = f"127.0.0.1:{demo_port}"
    demo = Process([PODGPU, "demo", "--listen", listen], tmp_path / "demo.log", env)
    server = QueriedPrometheus(
        Process(
            [
                peers.prometheus().server,
                f"--config.file={config}",
                f"--storage.tsdb.path={tmp_path / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            tmp_path / "prometheus.log",
        ),
        port,
    )
    try:
        server.wait_ready()
        yield server
    finally:
        server.process.stop()
        demo.stop()
        print(demo.output()[-3000:])


def test_prometheus_scrapes_the_demo_and_evaluates_the_rules(
    prometheus: QueriedPrometheus,
) -> None:
    def gpus() -> set[tuple[str, str]]:
        found = prometheus.query("podgpu_device_info")
        return {(each.labels["Hostname"], each.labels["node"]) for each in found}

    wait_until(lambda: gpus() == {("demo", "demo")}, "the demo's devices", seconds=60)
    holders = prometheus.query("podgpu_device_holder_info")
    assert {each.labels["namespace"] for each in holders} > {"chat", "search"}, "labels are kept"

    def evaluated() -> list[Any]:
        groups = prometheus.api("rules")["groups"]
        return [rule for group in groups for rule in group["rules"] if rule["health"] == "ok"]

    wait_until(lambda: len(evaluated()) > 10, "evaluated rules", seconds=60)
    groups = prometheus.api("rules")["groups"]
    errors = [rule for group in groups for rule in group["rules"] if rule["health"] == "err"]
    assert errors == []
