"""podgpu replaces dcgm-exporter: arguments, variables and the counters file stay the same."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.exporter import COUNTERS, READING, Exporter, exporting
from tests.e2e.page_watcher import Watcher
from tests.e2e.processes import wait_until
from tests.e2e.prometheus import HONOURED, Server
from tests.e2e.scenes import distinct
from tests.fakes.kubelet import FakeKubelet, pod
from tests.fakes.nvml import Ramp, Scenario, h100s, linked

DRIVER: Final = "DCGM_FI_DRIVER_VERSION"

OWN_LABELS: Final = {"DCGM_FI_DEV_XID_ERRORS": {"err_code", "err_msg"}}
"""Additional labels of single families."""

ROWS: Final = [
    [cell.strip() for cell in line.split(",", 2)]
    for line in COUNTERS.read_text().splitlines()
    if line and not line.startswith("#")
]
HELP: Final = {name: text for name, kind, text in ROWS if kind != "label"}

NO_GPU_HAS_IT: Final = """\
DCGM_EXP_GPU_HEALTH_STATUS, gauge, Health.
DCGM_FI_DEV_GPU_TEMQ, gauge, A slip.
"""


def node() -> Scenario:
    """Return two GPUs with all readings of NVML, including NVLink."""
    return h100s(2, **linked(sent=Ramp(0, 1000), received=Ramp(0, 2000)))


@pytest.fixture
def exporter(prometheus: Server, tmp_path: Path) -> Iterator[Exporter]:
    before = len(prometheus.problems())
    with exporting(prometheus, tmp_path / "exporter", node()) as exporter:
        yield exporter
    assert prometheus.problems()[before:] == []


def scraped(exporter: Exporter) -> dict[str, float]:
    """Return the number of series in Prometheus by DCGM name."""
    all_of_them = '{__name__=~"DCGM_.*", $i}'
    return exporter.by(
        "name", f'count by (name) (label_replace({all_of_them}, "name", "$1", "__name__", "(.*)"))'
    )


def check_target(exporter: Exporter) -> None:
    """Wait until both jobs have scraped it without an error.

    An error from before podgpu listened stays until the next scrape.
    """

    def states() -> set[tuple[str, str]]:
        return {
            (target["health"], target["lastError"])
            for target in exporter.server.api("targets", state="active")["activeTargets"]
            if target["scrapeUrl"] == f"http://{exporter.address}/metrics"
        }

    wait_until(lambda: states() == {("up", "")}, f"scrapes of both jobs: {states()}")
    assert exporter.server.dropped() == {}


def test_arguments_of_the_dcgm_exporter_chart_work(exporter: Exporter, tmp_path: Path) -> None:
    counters = tmp_path / "counters.csv"
    counters.write_text(COUNTERS.read_text() + NO_GPU_HAS_IT)
    exporter.start("-f", counters)
    exporter.wait_families(set(HELP))
    # Each row has one series for each GPU.
    wait_until(
        lambda: scraped(exporter) == dict.fromkeys(HELP, 2.0), "all series are in Prometheus"
    )
    for family, series in exporter.labels().items():
        names = READING | {DRIVER} | OWN_LABELS.get(family, set())
        assert {frozenset(labels) for labels in series} == {frozenset(names)}
        assert [labels["gpu"] for labels in series] == ["0", "1"]
    described = exporter.server.api(
        "targets/metadata", match_target=f'{{job="{HONOURED}",instance="{exporter.address}"}}'
    )
    helps = {each["metric"]: each["help"] for each in described}
    assert {name: helps.get(name) for name in HELP} == HELP
    check_target(exporter)
    output = exporter.output()
    assert output.count("2 rows are ignored") == 1
    assert "DCGM_EXP_GPU_HEALTH_STATUS is not available" in output
    assert "did you mean DCGM_FI_DEV_GPU_TEMP?" in output


def test_variables_of_the_gpu_operator_work(exporter: Exporter, fake_kubelet: FakeKubelet) -> None:
    """A container without arguments, as the GPU operator starts it."""
    fake_kubelet.pods = [pod("train-0", {"nvidia.com/gpu": [node().gpus[1].uuid]})]
    exporter.start(
        name="podgpu-entrypoint",
        env={
            "DCGM_EXPORTER_KUBERNETES": "true",
            "DCGM_EXPORTER_COLLECTORS": str(COUNTERS),
            "DCGM_EXPORTER_CONFIGMAP_DATA": "none",
            "DCGM_POD_RESOURCES_KUBELET_SOCKET": str(fake_kubelet.path),
            "NODE_NAME": "worker-7",
            "NODE_IP": "10.0.0.7",
            # Variables that the kubelet sets for a Service of that name.
            "DCGM_EXPORTER_SERVICE_HOST": "10.96.0.7",
            "DCGM_EXPORTER_PORT": "tcp://10.96.0.7:9400",
        },
    )
    exporter.wait_families(set(HELP))
    exporter.wait(
        'DCGM_FI_DEV_GPU_TEMP{$i,pod="train-0",namespace="ml",container="main"}', {"1": 43}
    )
    exporter.wait('DCGM_FI_DEV_GPU_TEMP{$i,pod="",namespace="",container=""}', {"0": 43})
    check_target(exporter)
    for family, series in exporter.labels().items():
        names = READING | {DRIVER, "namespace", "pod", "container"} | OWN_LABELS.get(family, set())
        assert {frozenset(labels) for labels in series} == {frozenset(names)}
        assert {labels["Hostname"] for labels in series} == {"worker-7"}


def test_an_edited_counters_list_is_applied_without_a_gap(
    exporter: Exporter, tmp_path: Path
) -> None:
    exporter.fake.set(distinct())
    counters, new = tmp_path / "counters.csv", tmp_path / "new.csv"
    kept = ["DCGM_FI_DEV_GPU_TEMP, gauge, Temperature.", f"{DRIVER}, label, Driver."]

    def edit(*rows: str) -> None:
        new.write_text("\n".join([*kept, *rows]))
        new.replace(counters)

    edit("DCGM_FI_DEV_SM_CLOCK, gauge, Clock.")
    exporter.start("-f", counters)
    exporter.wait_scraped(2)
    began = max(exporter.times("DCGM_FI_DEV_GPU_TEMP{$i}", 0))
    watcher = Watcher(exporter.port)
    watcher.start()
    edit("DCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, Engines.", "DCGM_FI_DEV_FB_USED, gauge, Memory.")
    temperature = "DCGM_FI_DEV_GPU_TEMP"
    exporter.wait_families({temperature, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_FB_USED"})
    exporter.wait("DCGM_FI_PROF_GR_ENGINE_ACTIVE{$i}", {"0": 0, "1": 0.25, "2": 0.5, "3": 0.75})
    assert exporter.query("DCGM_FI_DEV_SM_CLOCK{$i}") == []

    # A list without a usable row is refused.
    new.write_text("DCGM_FI_DEV_GPU_TEMQ, gauge, A slip.\n")
    new.replace(counters)
    wait_until(lambda: "the previous list stays in use" in exporter.output(), "the list is refused")
    exporter.wait_scrapes_more(2)
    assert "DCGM_FI_DEV_FB_USED" in exporter.families()

    watcher.end()
    assert watcher.faults == []
    assert watcher.asked > 10
    scrapes = exporter.times("up{$i}", began)
    assert len(scrapes) >= 4
    for gpu in range(4):
        assert scrapes <= exporter.times(f'{temperature}{{$i,gpu="{gpu}"}}', began)
