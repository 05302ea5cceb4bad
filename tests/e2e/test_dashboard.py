"""The queries of Grafana's dashboard 12239, which is for dcgm-exporter, return results."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

import pytest

from tests.e2e import debian
from tests.e2e.conftest import serving
from tests.e2e.exporter import COUNTERS, Exporter, exporting
from tests.e2e.node import Node, running
from tests.e2e.processes import wait_until
from tests.e2e.scenes import ALL, distinct, mixed

SELECT: Final = '{instance=~"$instance", gpu=~"$gpu"}'

PANELS: Final = {
    "GPU Temperature": f"DCGM_FI_DEV_GPU_TEMP{SELECT}",
    "GPU Power Usage": f"DCGM_FI_DEV_POWER_USAGE{SELECT}",
    "GPU SM Clocks": f"DCGM_FI_DEV_SM_CLOCK{SELECT} * 1000000",
    "GPU Utilization": f"DCGM_FI_DEV_GPU_UTIL{SELECT}",
    "GPU Framebuffer Mem Used": f"DCGM_FI_DEV_FB_USED{SELECT}",
    "Tensor Core Utilization": f"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{SELECT}",
}
AVERAGE: Final = f"avg(DCGM_FI_DEV_GPU_TEMP{SELECT})"
TOTAL: Final = f"sum(DCGM_FI_DEV_POWER_USAGE{SELECT})"

VALUES: Final = {
    "GPU Temperature": [41.0, 42.0, 43.0, 44.0],
    "GPU Power Usage": [100.5, 101.5, 102.5, 103.5],
    "GPU SM Clocks": [1100e6, 1101e6, 1102e6, 1103e6],
    "GPU Utilization": [10.0, 20.0, 30.0, 40.0],
    "GPU Framebuffer Mem Used": [1024.0, 1025.0, 1026.0, 1027.0],
    "Tensor Core Utilization": [0.125, 0.25, 0.375, 0.5],
}


def filled(panel: str, instances: list[str], gpus: list[str]) -> str:
    """Replace the variables in a query as Grafana does: by escaped alternatives."""
    for variable, values in (("$instance", instances), ("$gpu", gpus)):
        escaped = [re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\\\1", value) for value in values]
        joined = f"({'|'.join(escaped)})" if len(escaped) > 1 else escaped[0]
        panel = panel.replace(variable, joined)
    return panel


class Dashboard:
    def __init__(self, node: Node | Exporter) -> None:
        self.node = node
        self.instance = f"127.0.0.1:{node.port}"

    def variable(self, label: str) -> list[str]:
        """Return label_values(DCGM_FI_DEV_GPU_TEMP, label)."""
        match = {"match[]": 'DCGM_FI_DEV_GPU_TEMP{job="podgpu"}'}
        found = self.node.server.api(f"label/{label}/values", **match)
        assert isinstance(found, list)
        return found

    def panel(self, query: str, *gpus: str) -> dict[str, float]:
        """Return a panel's values by the label of its legend, which is `GPU {{gpu}}`."""
        return self.node.gpus(filled(query, [self.instance], list(gpus or ALL)))


@pytest.fixture(scope="module", params=["in dcgm-exporter's place", "with pods"])
def dashboard(
    request: pytest.FixtureRequest,
    programs: debian.Prometheus,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Dashboard]:
    """The dashboard with a separate Prometheus, because variables list all of its series."""
    folder = tmp_path_factory.mktemp("dashboard")
    node: Node | Exporter
    with ExitStack() as stack:
        server = stack.enter_context(serving(programs, folder, 1))
        if request.param == "with pods":
            node = stack.enter_context(running(server, folder / "node", distinct()))
            first, second = (gpu.uuid for gpu in distinct().gpus[:2])
            node.hold({"train-0": [first, second], "train-1": [second]})
            node.wait("count by (pod) (DCGM_FI_DEV_GPU_TEMP{$i})", {"train-0": 1, "": 3}, "pod")
        else:
            node = stack.enter_context(exporting(server, folder / "node", distinct()))
            node.start("-f", COUNTERS)
        node.wait_scraped(3, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE")
        yield Dashboard(node)


def test_variables_list_the_expected_values(dashboard: Dashboard) -> None:
    assert dashboard.variable("gpu") == ALL
    assert dashboard.variable("instance") == [dashboard.instance]


@pytest.mark.parametrize("title", list(PANELS))
def test_a_panel_has_one_line_for_each_gpu(dashboard: Dashboard, title: str) -> None:
    assert dashboard.panel(PANELS[title]) == dict(zip(ALL, VALUES[title], strict=True))


@pytest.mark.parametrize("title", list(PANELS))
def test_a_panel_can_select_gpus(dashboard: Dashboard, title: str) -> None:
    assert dashboard.panel(PANELS[title], "2") == {"2": VALUES[title][2]}
    assert list(dashboard.panel(PANELS[title], "1", "3")) == ["1", "3"]


def test_the_average_temperature_is_correct(dashboard: Dashboard) -> None:
    assert dashboard.panel(AVERAGE) == {"": 42.5}


def test_the_total_power_is_correct(dashboard: Dashboard) -> None:
    assert dashboard.panel(TOTAL) == {"": 408.0}
    assert dashboard.panel(TOTAL, "0", "1") == {"": 202.0}


def test_mig_instances(dashboard: Dashboard) -> None:
    """GPUs with MIG have no utilisation. In dcgm-exporter's place, their instances repeat the rest.

    Otherwise, instances only add series of memory.
    """
    node = dashboard.node
    node.fake.set(mixed())

    def by_gpu(aggregation: str, title: str) -> dict[str, float]:
        return dashboard.panel(f"{aggregation} by (gpu) ({PANELS[title]})")

    try:
        wait_until(lambda: by_gpu("max", "GPU Utilization").keys() == {"0", "2"}, "MIG")
        replaces = isinstance(node, Exporter)
        lines = {"0": 1, "1": 3 if replaces else 1, "2": 1, "3": 1}
        for title in ("GPU Temperature", "GPU Power Usage", "GPU SM Clocks"):
            values = dict(zip(ALL, VALUES[title], strict=True))
            assert by_gpu("min", title) == by_gpu("max", title) == values
            assert by_gpu("count", title) == lines
        watts = by_gpu("max", "GPU Power Usage")
        assert dashboard.panel(TOTAL) == {"": sum(watts[gpu] * lines[gpu] for gpu in ALL)}
        used = PANELS["GPU Framebuffer Mem Used"].replace("{", '{GPU_I_ID="",')
        found = by_gpu("count", "GPU Framebuffer Mem Used")
        if replaces:
            # With -d f, values of instances are not reported for their GPU as well.
            assert dashboard.panel(used).keys() == {"0", "2"}
            assert found == lines
        else:
            assert dashboard.panel(used).keys() == set(ALL)
            assert found == {"0": 1, "1": 4, "2": 1, "3": 2}
    finally:
        node.fake.set(distinct())
        wait_until(lambda: len(dashboard.panel(PANELS["GPU Utilization"])) == 4, "no MIG")
