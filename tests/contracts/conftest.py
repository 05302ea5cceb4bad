import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.cases import KUBELET
from tests.fakes.nvml.fixtures import fake_nvml as fake_nvml  # noqa: PLC0414 - a fixture

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def kubelet_elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A kubelet in a process of its own: its tasks and threads are none of the source's."""
    path = tmp_path_factory.mktemp("kubelet") / KUBELET
    with subprocess.Popen([sys.executable, "-m", "tests.fakes.kubelet", path], cwd=ROOT) as process:
        deadline = time.monotonic() + 10
        while not path.exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        yield path
        process.kill()


@pytest.fixture
def fake_kubelet(tmp_path: Path, kubelet_elsewhere: Path) -> None:
    (tmp_path / KUBELET).symlink_to(kubelet_elsewhere)
