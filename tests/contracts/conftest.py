import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.fakes.nvml.fixtures import fake_nvml as fake_nvml  # noqa: PLC0414 - a fixture
from tests.sources.docker.contract import SOCKET as DOCKER
from tests.sources.nri.contract import SOCKET as RUNTIME
from tests.sources.podresources.contract import SOCKET as KUBELET
from tests.support.warning_check import warnings_are_on_the_status_page

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _check_warnings() -> Iterator[None]:
    """Check that each warning that a component logs is on the status page too."""
    with warnings_are_on_the_status_page():
        yield


@contextmanager
def separate_process(module: str, path: Path) -> Iterator[Path]:
    """Serve a socket from another process, so that its tasks and threads are not counted here."""
    with subprocess.Popen([sys.executable, "-m", module, path], cwd=ROOT) as process:
        deadline = time.monotonic() + 10
        while not path.exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        yield path
        process.kill()


@pytest.fixture(scope="session")
def kubelet_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with separate_process(
        "tests.fakes.kubelet", tmp_path_factory.mktemp("kubelet") / KUBELET
    ) as path:
        yield path


@pytest.fixture(scope="session")
def runtime_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with separate_process("tests.fakes.nri", tmp_path_factory.mktemp("runtime") / RUNTIME) as path:
        yield path


@pytest.fixture(scope="session")
def docker_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with separate_process("tests.fakes.docker", tmp_path_factory.mktemp("docker") / DOCKER) as path:
        yield path


@pytest.fixture
def fake_daemons(
    fake_kubelet: None, fake_runtime: None, docker_process: Path, tmp_path: Path
) -> None:
    (tmp_path / DOCKER).symlink_to(docker_process)


@pytest.fixture
def fake_kubelet(tmp_path: Path, kubelet_process: Path) -> None:
    (tmp_path / KUBELET).symlink_to(kubelet_process)


@pytest.fixture
def fake_runtime(tmp_path: Path, runtime_process: Path) -> None:
    (tmp_path / RUNTIME).symlink_to(runtime_process)
