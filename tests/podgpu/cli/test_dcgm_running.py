"""A daemon with dcgm-exporter's command line, with a driver, a kubelet and a counters file."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.processes import Process, free_ports, get, wait_until
from tests.fakes.kubelet import FakeKubelet, pod
from tests.fakes.nvml import FakeNvml, h100s

ROOT = Path(__file__).resolve().parents[3]
LIST = """\
# What this node shows
DCGM_FI_DEV_GPU_TEMP, gauge, Temperature.
DCGM_FI_DEV_POWER_USAGE , gauge, Power.
DCGM_FI_DEV_FB_USED, gauge, Memory.
DCGM_FI_DRIVER_VERSION, label, Driver.
"""
FAMILIES = {"DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_FB_USED"}
LABELS = {"gpu", "UUID", "pci_bus_id", "device", "modelName", "Hostname", "DCGM_FI_DRIVER_VERSION"}

Page = dict[str, list[dict[str, str]]]


@pytest.fixture
def node(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a node with two GPUs, without variables of dcgm-exporter."""
    return {
        **FakeNvml(h100s(2), tmp_path).env(),
        "PYTHONPATH": str(ROOT),
        "NODE_NAME": "node-1",
    }


@pytest.fixture
def counters(tmp_path: Path) -> Path:
    path = tmp_path / "counters.csv"
    path.write_text(LIST)
    return path


class Exporter(Process):
    """podgpu, started with dcgm-exporter's options."""

    def __init__(self, words: list[str], folder: Path, env: dict[str, str]) -> None:
        self.port = free_ports(1)[0]
        command = [sys.executable, "-m", "podgpu", "dcgm-exporter", *words]
        super().__init__(
            [*command, "-a", f"127.0.0.1:{self.port}", "-c", "200"], folder / "output.log", env
        )

    def page(self) -> Page:
        """Return the labels of each series by family, of DCGM's families only."""
        response = self.answers(self.port, "/metrics")
        text = response.body.decode() if response else ""
        return {
            family.name: [dict(sample.labels) for sample in family.samples]
            for family in text_string_to_metric_families(text)
            if family.name.startswith("DCGM_")
        }

    def wait_for(self, families: set[str]) -> Page:
        return wait_until(
            lambda: page if (page := self.page()).keys() >= families else None, "page"
        )


@contextmanager
def exporter(words: list[str], folder: Path, env: dict[str, str]) -> Iterator[Exporter]:
    running = Exporter(words, folder, env)
    try:
        yield running
    finally:
        status = running.stop()
    assert status == 0, running.output()
    assert "Traceback" not in running.output()


@pytest.mark.slow
def test_the_page_has_the_listed_families_with_labels_of_dcgm_exporter(
    tmp_path: Path, node: dict[str, str], counters: Path
) -> None:
    with exporter(["-f", str(counters), "--dump-enabled"], tmp_path, node) as running:
        page = running.wait_for(FAMILIES)
        assert page.keys() == FAMILIES
        for series in page.values():
            assert [labels["gpu"] for labels in series] == ["0", "1"]
            for labels in series:
                assert labels.keys() == LABELS
                assert labels["Hostname"] == "node-1"
    assert "not needed in podgpu: --dump-enabled; see docs/migrating.md" in running.output()


TEXT = "text/plain; charset=utf-8"
PATHS = [
    ("/metrics", 200, "text/plain; version=0.0.4; charset=utf-8", b"\nDCGM_FI_DEV_GPU_TEMP{"),
    ("/health", 200, TEXT, b"ok\n"),
    ("/", 200, "text/html; charset=utf-8", b"/metrics"),
    ("/metric", 404, TEXT, b""),
    ("/debug/pprof/", 404, TEXT, b""),
]
"""A path, with the status, the content type and a part of the body of its response."""


@pytest.mark.slow
def test_a_path_has_the_status_and_type_of_dcgm_exporter(
    tmp_path: Path, node: dict[str, str], counters: Path
) -> None:
    with exporter(["-f", str(counters)], tmp_path, node) as running:
        running.wait_for(FAMILIES)
        found = [get(running.port, path) for path, *_ in PATHS]
    assert [
        (path, answer.status, answer.headers["content-type"], part if part in answer.body else None)
        for (path, *_, part), answer in zip(PATHS, found, strict=True)
    ] == PATHS
    assert b"pprof" not in found[2].body


NAMES = "gpu UUID pci_bus_id device modelName Hostname DCGM_FI_DRIVER_VERSION"
ORDERS = [
    ("", NAMES),
    ("--no-hostname", NAMES.replace(" Hostname", "")),
    ("--use-old-namespace", NAMES.replace("UUID", "uuid")),
    ("--labels dcgm-hostname", NAMES.replace("Hostname", "hostname")),
    ("-k", f"{NAMES} namespace pod container"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("words", "names"), ORDERS, ids=[words for words, _ in ORDERS])
def test_labels_have_the_order_of_dcgm_exporter(
    words: str, names: str, tmp_path: Path, node: dict[str, str], counters: Path
) -> None:
    with exporter(["-f", str(counters), *words.split()], tmp_path, node) as running:
        running.wait_for(FAMILIES)
        body = get(running.port, "/metrics").body.decode()
    labels = re.findall(r"^DCGM_FI_DEV_FB_USED\{(.*)\}", body, re.MULTILINE)
    assert [re.findall(r'(\w+)="', each) for each in labels] == [names.split()] * 2


@pytest.mark.slow
def test_readings_have_the_jobs_that_a_batch_system_lists(
    tmp_path: Path, node: dict[str, str], counters: Path
) -> None:
    folder = tmp_path / "jobs"
    folder.mkdir()
    (folder / "1").write_text("4711\n4712_3\n")
    env = node | {"DCGM_HPC_JOB_MAPPING_DIR": str(folder)}
    with exporter(["-f", str(counters)], tmp_path, env) as running:

        def jobs() -> dict[str, list[tuple[str, str | None]]]:
            return {
                family: [(labels["gpu"], labels.get("hpc_job")) for labels in series]
                for family, series in running.page().items()
            }

        expected = [("0", None), ("1", "4711"), ("1", "4712_3")]
        wait_until(lambda: jobs() == dict.fromkeys(FAMILIES, expected), "two jobs")
        (folder / "1").write_text("")
        (folder / "0").write_text("4713")
        moved = [("0", "4713"), ("1", None)]
        wait_until(lambda: jobs() == dict.fromkeys(FAMILIES, moved), "one job")


@pytest.mark.slow
def test_variables_select_other_labels_and_devices(
    tmp_path: Path, node: dict[str, str], counters: Path
) -> None:
    env = node | {
        "DCGM_EXPORTER_COLLECTORS": str(counters),
        "DCGM_EXPORTER_USE_OLD_NAMESPACE": "true",
        "DCGM_EXPORTER_NO_HOSTNAME": "1",
        "DCGM_EXPORTER_DEVICES_STR": "g:1",
    }
    with exporter([], tmp_path, env) as running:
        [labels] = running.wait_for(FAMILIES)["DCGM_FI_DEV_FB_USED"]
    assert labels.keys() == LABELS - {"UUID", "Hostname"} | {"uuid"}
    assert labels["gpu"] == "1"


@pytest.mark.slow
async def test_with_a_kubelet_series_have_labels_of_pods(
    tmp_path: Path, node: dict[str, str], counters: Path
) -> None:
    socket = tmp_path / "kubelet.sock"
    words = ["-f", str(counters), "-k", "--pod-resources-kubelet-socket", str(socket)]
    async with FakeKubelet(socket) as kubelet:
        kubelet.pods = [pod("train-0", {"nvidia.com/gpu": [h100s(2).gpus[1].uuid]})]

        def held() -> list[dict[str, str]]:
            with exporter(words, tmp_path, node) as running:

                def named() -> list[dict[str, str]] | None:
                    series = running.page().get("DCGM_FI_DEV_GPU_TEMP", [])
                    return series if any(each.get("pod") for each in series) else None

                return wait_until(named, "a pod's name")

        series = await asyncio.to_thread(held)
    named = {each["gpu"]: (each["namespace"], each["pod"], each["container"]) for each in series}
    assert named == {"0": ("", "", ""), "1": ("ml", "train-0", "main")}
    assert all(each.keys() == LABELS | {"namespace", "pod", "container"} for each in series)


@pytest.mark.slow
def test_the_counters_file_is_read_again_on_a_change_and_on_sighup(
    tmp_path: Path, node: dict[str, str], counters: Path
) -> None:
    with exporter(["-f", str(counters)], tmp_path, node) as running:
        running.wait_for(FAMILIES)
        counters.write_text("DCGM_FI_DEV_SM_CLOCK, gauge, Clock.\n")
        wait_until(lambda: running.page().keys() == {"DCGM_FI_DEV_SM_CLOCK"}, "the new list")
        os.kill(running.pid, signal.SIGHUP)
        running.wait_for({"DCGM_FI_DEV_SM_CLOCK"})


@pytest.mark.slow
def test_printing_the_configuration_loads_no_large_library() -> None:
    code = """
import sys
from podgpu.cli import main
assert main(["dcgm-exporter", "-k", "--kubernetes-enable-pod-labels", "--print-config"]) == 0
print(*sys.modules)
"""
    import subprocess

    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    heavy = {"aiohttp", "pynvml", "asyncinotify", "aiofiles", "grpc", "kubernetes_asyncio"}
    assert heavy & {name.split(".")[0] for name in done.stdout.split()} == set()
