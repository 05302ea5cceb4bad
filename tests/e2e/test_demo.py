"""The dashboard with `podgpu demo`, which plays the built-in recording without a GPU."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.node import PODGPU
from tests.e2e.processes import Process, wait_until
from tests.e2e.prometheus import Server
from tests.e2e.test_dashboard import AVERAGE, PANELS, TOTAL, filled

GPUS = ["0", "1", "2", "3", "5", "6", "7"]
"""The GPUs without MIG: this dashboard does not know instances."""

# Plausible readings of an H100 or an H200.
PLAUSIBLE = {
    "GPU Temperature": (15, 95),
    "GPU Power Usage": (30, 800),
    "GPU SM Clocks": (100e6, 2100e6),
    "GPU Utilization": (0, 100),
    "GPU Framebuffer Mem Used": (0, 144_000),
    "Tensor Core Utilization": (0, 1),
}


@pytest.fixture
def instance(prometheus: Server, tmp_path: Path) -> Iterator[str]:
    """The address of a running demo."""
    port = prometheus.take_target()
    address = f"127.0.0.1:{port}"
    # An empty library path: the demo needs no driver.
    env = {"LD_LIBRARY_PATH": "", "XDG_STATE_HOME": str(tmp_path)}
    demo = Process([PODGPU, "demo", "--listen", address], tmp_path / "demo.log", env)
    try:
        demo.wait_for_answer(port, "/healthz")
        wait_until(
            lambda: (
                (found := demo.answers(port, "/metrics")) is not None
                and b"DCGM_FI_DEV_GPU_TEMP{" in found.body
            ),
            f"the demo's GPUs:\n{demo.output()[-2000:]}",
            seconds=20,
        )
        yield address
    finally:
        status = demo.stop()
        print(demo.output()[-5000:])
    assert status == 0


def test_the_dashboard_shows_the_demo(prometheus: Server, instance: str) -> None:
    def values(query: str) -> dict[str, float]:
        found = prometheus.query(filled(query, [instance], GPUS))
        by_gpu = {series.labels.get("gpu", ""): series.value for series in found}
        assert len(by_gpu) == len(found)
        return by_gpu

    def complete(title: str) -> bool:
        return sorted(values(PANELS[title])) == GPUS

    for title, (least, most) in PLAUSIBLE.items():
        # Profiling fields need two readings, so that they come with a later scrape.
        wait_until(partial(complete, title), title)
        found = values(PANELS[title])
        assert all(least <= value <= most for value in found.values()), (title, found)
    (average,) = values(AVERAGE).values()
    assert 15 <= average <= 95
    (total,) = values(TOTAL).values()
    assert len(GPUS) * 30 <= total <= len(GPUS) * 800
