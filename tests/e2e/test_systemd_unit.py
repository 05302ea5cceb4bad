"""podgpu works with the restrictions of its systemd unit."""

import shutil
import sys
from pathlib import Path

import pytest

from tests.deploy.test_systemd import UNIT
from tests.e2e import confined
from tests.e2e.podgpu import Podgpu
from tests.e2e.processes import Process, wait_until
from tests.fakes.nvml import h100s

RUN: list[str | Path] = [sys.executable, confined.__file__, UNIT]


class Confined(Podgpu):
    """The daemon with the unit's restrictions."""

    def command(self) -> list[str | Path]:
        return [*RUN, *super().command()]


@pytest.fixture(autouse=True)
def _needed() -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")


def test_the_daemon_reads_gpus_serves_and_stores_usage(tmp_path: Path) -> None:
    podgpu = Confined(tmp_path, h100s(2))
    sources = {"gpus": {"kind": "nvml", "interval": "200ms", "usage_interval": "1s"}}
    ledger = tmp_path / "usage.db"
    podgpu.configure("node1", sources, {"usage": {"kind": "ledger", "path": str(ledger)}})
    with podgpu.running():
        wait_until(lambda: len(podgpu.of("DCGM_FI_DEV_GPU_TEMP")) == 2, "readings of both GPUs")
        podgpu.wait_value("podgpu_source_up", 1, source="gpus")
        podgpu.wait_value("podgpu_sink_up", 1, sink="usage")
    assert ledger.stat().st_size > 0
    assert "Operation not permitted" not in podgpu.output()


@pytest.mark.parametrize(
    "code",
    [
        "import socket; socket.socket(socket.AF_NETLINK)",
        "import os; os.chroot('/')",
        "import os; os.sched_setaffinity(0, {0})",
        "import mmap; mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)",
    ],
    ids=["netlink", "chroot", "affinity", "executable memory"],
)
def test_other_calls_are_refused(tmp_path: Path, code: str) -> None:
    """Otherwise the test above would prove nothing."""
    process = Process([*RUN, sys.executable, "-c", code], tmp_path / "log")
    process.wait()
    assert "PermissionError" in process.output()
