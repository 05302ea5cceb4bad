"""podgpu itself in a container of a real Docker or Podman: docs/sources/docker.md.

The container has podgpu's image, the daemon's socket, the pid namespace of the host and no
capability. The driver's library is simulated, and is mounted as NVIDIA's container toolkit does it.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.container_daemon import GPUS, ContainerDaemon
from tests.e2e.image import REFERENCE, Image
from tests.e2e.processes import get, wait_until
from tests.e2e.test_containers import BUSY, LABELS, ContainerPodgpu

_DRIVER, _PLAYED, _STATE = "/opt/driver", "/opt/played", "/var/lib/podgpu"
NAME = "podgpu"


class PodgpuInAContainer(ContainerPodgpu):
    """A podgpu in a container of the daemon that it follows.

    Args:
        daemon: the daemon; it has podgpu's image.
        folder: existing folder for its files.
    """

    def __init__(self, daemon: ContainerDaemon, folder: Path) -> None:
        super().__init__(daemon, folder)
        self._daemon = daemon
        state = folder / "state"
        state.mkdir()
        path = f"{_STATE}/usage.db"
        self.add_sinks(usage={"kind": "ledger", "path": path, "commit_interval": "1s"})

    def launch(self) -> None:
        assert self.fake is not None
        mounts = {
            str(self._daemon.socket): f"{self._daemon.socket}:ro",
            str(self.config): "/etc/podgpu/config.yaml:ro",
            str(self.fake.library_folder): f"{_DRIVER}:ro",
            str(self.fake.path.parent): f"{_PLAYED}:ro",
            str(self.folder / "state"): _STATE,
        }
        self._daemon(
            *("run", "--detach", "--name", NAME, "--network=host", "--pid=host", "--user=0"),
            *("--cap-drop=ALL", "--read-only", self._all_gpus()),
            *(f"--volume={source}:{target}" for source, target in mounts.items()),
            f"--env=LD_LIBRARY_PATH={_DRIVER}",
            f"--env=FAKENVML_SCENARIO={_PLAYED}/{self.fake.path.name}",
            REFERENCE,
        )
        wait_until(self._is_alive, "podgpu in its container")

    def start(self) -> None:
        self.launch()
        wait_until(lambda: get(self.port, "/readyz").status == 200, "that podgpu is ready")

    def stop(self) -> int:
        self._daemon("stop", "--time", "15", NAME)
        return int(self._daemon.inspect(NAME, ".State.ExitCode"))

    def output(self) -> str:
        done = self._client("logs", NAME)
        return (done.stdout + done.stderr).decode()

    def command_in_it(self, *words: str) -> str:
        """Run podgpu's command in the container, and return what it prints, not its errors."""
        return self._client("exec", NAME, "podgpu", *words).stdout.decode()

    def _client(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            (*self._daemon.client, *words),
            env={**os.environ, **self._daemon.env},
            capture_output=True,
            check=False,
            timeout=60,
        )

    def _all_gpus(self) -> str:
        # To read the state of all GPUs is not to hold them.
        if self._daemon.runtime == "docker":
            return "--gpus=all,capabilities=utility"
        return "--device=nvidia.com/gpu=all"

    def _is_alive(self) -> bool:
        try:
            return get(self.port, "/healthz").status == 200
        except OSError:
            return False


@pytest.fixture(scope="module", params=["docker", "podman"])
def daemon(request: pytest.FixtureRequest, image: Image) -> ContainerDaemon:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, ContainerDaemon)
    found("load", "--input", str(image.archive))
    return found


@pytest.fixture
def podgpu(daemon: ContainerDaemon, tmp_path: Path) -> Iterator[PodgpuInAContainer]:
    with PodgpuInAContainer(daemon, tmp_path).running() as started:
        started.wait_for()
        yield started
        assert "Traceback" not in started.output()
    daemon.remove_all()


def test_it_sees_the_other_containers_and_holds_nothing_itself(
    daemon: ContainerDaemon, podgpu: PodgpuInAContainer
) -> None:
    daemon.run("web", daemon.gpu(0), *LABELS)
    daemon.run("other")
    podgpu.wait_for({"web"})
    daemon("exec", "--detach", "web", "sleep", "999")
    wait_until(lambda: len(daemon.pids("web")) == 2, "both processes")
    podgpu.work(0, *daemon.pids("web"), daemon.pid("other"))

    def busy(name: str) -> float:
        return podgpu.value(BUSY, gpu="0", container=name) or 0

    wait_until(lambda: busy("other") > 1, "busy time")
    assert busy("web") == pytest.approx(2 * busy("other"), rel=0.2)

    daemon("restart", "--time", "0", "web")
    before = busy("web")
    podgpu.work(0, daemon.pid("web"))
    wait_until(lambda: busy("web") > before + 1, "more busy time of the restarted container")
    daemon("kill", "web")
    podgpu.wait_for()
    assert podgpu.value("podgpu_device_free_seconds_total", gpu=str(GPUS - 1))


def test_its_ledger_has_the_containers(daemon: ContainerDaemon, podgpu: PodgpuInAContainer) -> None:
    daemon.run("web", daemon.gpu(1), *LABELS)
    podgpu.wait_for(set(), {"web"})
    podgpu.work(1, daemon.pid("web"))
    wait_until(lambda: (podgpu.value(BUSY, gpu="1", container="web") or 0) > 1, "busy time")
    daemon("kill", "web")
    podgpu.wait_for()
    for group, expected in (
        ("image", "localhost/busybox:1"),
        ("label:compose_project", "lab"),
        ("label:compose_service", "web"),
    ):
        wait_until(lambda: expected in _report(podgpu, group), group, 60)  # noqa: B023
    names = _report(podgpu, "pod")
    assert '"web"' in names
    assert f'"{NAME}"' not in names


def test_doctor_finds_nothing_wrong_with_the_daemon(podgpu: PodgpuInAContainer) -> None:
    output = podgpu.command_in_it("doctor", "-c", "/etc/podgpu/config.yaml")
    found = [line.split()[0] for line in output.splitlines() if " docker." in line]
    assert found
    assert set(found) == {"ok"}, output


def _report(podgpu: PodgpuInAContainer, group: str) -> str:
    """Return the rows of a report."""
    words = ("usage", "--by", group, "--since", "1h", "--format", "json")
    output = podgpu.command_in_it(*words)
    return json.dumps(json.loads(output)["rows"]) if output else ""
