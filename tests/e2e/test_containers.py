"""Containers of a real Docker and a real Podman: holders, accounts, errors; no Kubernetes."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.container_daemon import GPUS, IMAGE, ContainerDaemon
from tests.e2e.podgpu import Podgpu
from tests.e2e.podman_node import Podman
from tests.e2e.processes import wait_until
from tests.fakes.nvml import Load, Proc, h100s

READING = "DCGM_FI_DEV_POWER_USAGE"
COMPOSE = ("com.docker.compose.project=lab", "com.docker.compose.service=web")
LABELS = tuple(f"--label={each}" for each in COMPOSE)
BUSY = "podgpu_container_busy_seconds_total"


class ContainerPodgpu(Podgpu):
    """A podgpu that follows a daemon, and the simulated processes on its GPUs."""

    def __init__(self, daemon: ContainerDaemon, folder: Path) -> None:
        super().__init__(folder, h100s(GPUS))
        self.env = {**self.env, "PYTHONPROFILEIMPORTTIME": "1"}
        gpus = {"kind": "nvml", "interval": "500ms", "usage_interval": "1s"}
        containers = {"kind": "docker", "socket": str(daemon.socket)}
        self._sources = {"gpus": gpus, "containers": containers}
        self.add_sinks()

    def add_sinks(self, **sinks: dict[str, str]) -> None:
        """Configure sinks next to the page."""
        self.configure("host-1", self._sources, sinks)

    def names(self, gpu: int) -> dict[str, str]:
        """Return the labels of a GPU's reading that name its holder, without empty ones."""
        names = ("container", "image", "compose_project", "compose_service", "pod", "namespace")
        ((labels, _),) = self.of(READING, gpu=str(gpu))
        return {name: labels[name] for name in names if labels.get(name)}

    def holders(self, gpu: int) -> dict[str, dict[str, str]]:
        """Return the labels of the holders of a GPU, by the names of the containers."""
        found = [labels for labels, _ in self.of("podgpu_device_holder_info", gpu=str(gpu))]
        return {labels["container"]: labels for labels in found}

    def wait_for(self, *held: set[str]) -> None:
        """Wait until the GPUs have exactly these holders."""
        expected = [*held, *([set()] * (GPUS - len(held)))]
        shown = lambda: [self.holders(gpu).keys() for gpu in range(GPUS)] == expected  # noqa: E731
        wait_until(shown, f"holders {expected}")

    def work(self, gpu: int, *pids: int) -> None:
        """Simulate that processes use a GPU."""
        assert self.fake is not None
        scenario = self.fake.scenario
        processes, loads = [Proc(pid) for pid in pids], [Load(pid) for pid in pids]
        changed = replace(scenario.gpus[gpu], processes=processes, loads=loads)
        gpus = [changed if place == gpu else one for place, one in enumerate(scenario.gpus)]
        self.fake.set(replace(scenario, gpus=gpus))


@pytest.fixture(params=["docker", "podman"])
def daemon(request: pytest.FixtureRequest) -> ContainerDaemon:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, ContainerDaemon)
    return found


@pytest.fixture
def podgpu(daemon: ContainerDaemon, tmp_path: Path) -> Iterator[ContainerPodgpu]:
    with ContainerPodgpu(daemon, tmp_path).running() as started:
        started.wait_for()
        yield started
        assert "Traceback" not in started.output()
    daemon.remove_all()


def test_a_container_holds_its_gpus_while_it_runs(
    daemon: ContainerDaemon, podgpu: ContainerPodgpu
) -> None:
    daemon.run("web", daemon.gpu(1), *LABELS)
    podgpu.wait_for(set(), {"web"})
    assert podgpu.names(1) == {
        "container": "web",
        "image": IMAGE,
        "compose_project": "lab",
        "compose_service": "web",
    }
    first = podgpu.holders(1)["web"]
    assert first["owner_uid"] == f"{daemon.runtime}://{daemon.inspect('web', '.Id')}"
    assert (first["evidence"], first["pod_uid"]) == ("device_request", "")
    daemon("restart", "--time", "0", "web")
    podgpu.wait_for(set(), {"web"})
    assert podgpu.holders(1)["web"] == first
    daemon("rename", "web", "api")
    podgpu.wait_for(set(), {"api"})
    daemon("kill", "api")
    podgpu.wait_for()
    assert podgpu.names(1) == {}


def test_a_paused_container_holds_its_gpu(daemon: ContainerDaemon, podgpu: ContainerPodgpu) -> None:
    daemon.run("web", daemon.gpu(1))
    daemon("pause", "web")
    daemon.run("later", daemon.gpu(0))
    podgpu.wait_for({"later"}, {"web"})
    # A podgpu that starts finds it in the list.
    podgpu.stop()
    podgpu.start()
    podgpu.wait_for({"later"}, {"web"})
    daemon("unpause", "web")


def test_cdi_names_are_resolved(podman: Podman, tmp_path: Path) -> None:
    with ContainerPodgpu(podman, tmp_path).running() as podgpu:
        podman.run("one", "--device=nvidia.com/gpu=2")
        podgpu.wait_for(set(), set(), {"one"})
        podman.run("every", "--device=nvidia.com/gpu=all")
        podgpu.wait_for({"every"}, {"every"}, {"one", "every"})
        assert podgpu.value("podgpu_attribution_conflicts", gpu="2") == 0
        podman("kill", "every")
        podgpu.wait_for(set(), set(), {"one"})
    podman.remove_all()


def test_processes_count_for_their_container(
    daemon: ContainerDaemon, podgpu: ContainerPodgpu
) -> None:
    daemon.run("web", daemon.gpu(0))
    daemon.run("other")
    daemon("exec", "--detach", "web", "sleep", "999")
    pids = wait_until(lambda: _two(daemon.pids("web")), "both processes")
    podgpu.work(0, *pids, daemon.pid("other"))
    wait_until(lambda: (podgpu.value(BUSY, gpu="0", container="other") or 0) > 1, "busy time")
    busy = {labels["container"]: value for labels, value in podgpu.of(BUSY, gpu="0")}
    assert busy["web"] == pytest.approx(2 * busy["other"], rel=0.2)
    assert podgpu.value("podgpu_container_held_seconds_total", gpu="0", container="other") == 0

    assert podgpu.fake is not None
    podgpu.fake.push_xid(0, 31)
    errors = "podgpu_container_xid_errors_total"
    wait_until(lambda: podgpu.value(errors, gpu="0", container="web", xid="31") == 1, "the error")

    # A container that restarts continues its account.
    daemon("restart", "--time", "0", "web")
    before = podgpu.value(BUSY, gpu="0", container="web") or 0
    podgpu.work(0, daemon.pid("web"))
    wait_until(lambda: (podgpu.value(BUSY, gpu="0", container="web") or 0) > before + 1, "more")
    assert podgpu.value(errors, gpu="0", container="web", xid="31") == 1


def test_containers_are_listed_again_after_a_restart_of_the_daemon(
    daemon: ContainerDaemon, podgpu: ContainerPodgpu
) -> None:
    daemon.run("web", daemon.gpu(0))
    daemon.run("db", daemon.gpu(2))
    podgpu.wait_for({"web"}, set(), {"db"})
    daemon.stop()
    wait_until(lambda: podgpu.value("podgpu_source_up", source="containers") == 0, "the loss")
    podgpu.wait_for({"web"}, set(), {"db"})
    daemon.start()
    daemon("kill", "db")
    wait_until(lambda: podgpu.value("podgpu_source_up", source="containers") == 1, "the connection")
    podgpu.wait_for({"web"})


def test_accounts_continue_after_a_restart_of_podgpu(podman: Podman, tmp_path: Path) -> None:
    podgpu = ContainerPodgpu(podman, tmp_path)
    ledger, lines = tmp_path / "ledger.db", tmp_path / "lines.jsonl"
    podgpu.add_sinks(
        ledger={"kind": "ledger", "path": str(ledger)},
        lines={"kind": "jsonl", "path": str(lines)},
    )
    podman.run("web", podman.gpu(0), *LABELS)
    with podgpu.running():
        podgpu.work(0, podman.pid("web"))
        wait_until(lambda: (podgpu.value(BUSY, gpu="0", container="web") or 0) > 2, "busy time")
    with podgpu.running():
        podgpu.wait_for({"web"})
        [(labels, _)] = podgpu.of(BUSY, gpu="0", container="web")
        wait_until(lambda: (podgpu.value(BUSY, gpu="0", container="web") or 0) > 2, "its account")
        podman("kill", "web")
        podgpu.wait_for()
        wait_until(lambda: '"record":"holding"' in lines.read_text(), "its holding", 30)
    podman.remove_all()
    ended = [json.loads(line) for line in lines.read_text().splitlines() if '"holding"' in line]
    [holding] = [one for one in ended if one.get("record") == "holding"]
    assert holding["uid"] == labels["owner_uid"] == f"podman://{holding['uid'][9:]}"
    assert holding["gap_nanoseconds"] > 0
    assert holding["busy_nanoseconds"] > 2 * 10**9
    known = {name: holding[name] for name in ("kind", "runtime", "container", "compose_project")}
    assert known == {
        "kind": "container",
        "runtime": "podman",
        "container": "web",
        "compose_project": "lab",
    }


def test_no_library_of_kubernetes_is_loaded(
    daemon: ContainerDaemon, podgpu: ContainerPodgpu
) -> None:
    daemon.run("web", daemon.gpu(0))
    podgpu.wait_for({"web"})
    imported = {
        line.rpartition("|")[2].strip().partition(".")[0]
        for line in podgpu.output().splitlines()
        if line.startswith("import time:")
    }
    assert "pynvml" in imported
    assert imported.isdisjoint({"kubernetes_asyncio", "grpc", "google", "opentelemetry"})


def _two(pids: list[int]) -> list[int]:
    return pids if len(pids) == 2 else []
