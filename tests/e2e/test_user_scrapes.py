"""Scrape configurations of users for dcgm-exporter give the expected labels with podgpu.

The files in `tests/podgpu/cli/users/scrapes` have the keys and values of files in public
repositories, with other comments.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e import debian
from tests.e2e.exporter import COUNTERS
from tests.e2e.kube.background import Background
from tests.e2e.node import FAST, PODGPU
from tests.e2e.processes import Process, free_ports, wait_until
from tests.e2e.scenes import distinct
from tests.e2e.scrapers import EVERY, Scraping, prometheus
from tests.fakes.kubelet import FakeKubelet, pod
from tests.fakes.nvml import FakeNvml

JOBS = Path(__file__).parents[1] / "podgpu" / "cli" / "users" / "scrapes"
NODE = "worker-1-np-ab12"
HOLDER = {"namespace": "ml", "pod": "train-0", "container": "main"}
ITSELF = {"namespace": "gpu-operator", "pod": "podgpu-x7k2p", "container": "podgpu"}

DISCOVERED = {
    "__meta_kubernetes_namespace": ITSELF["namespace"],
    "__meta_kubernetes_pod_name": ITSELF["pod"],
    "__meta_kubernetes_pod_container_name": ITSELF["container"],
    "__meta_kubernetes_pod_ip": "127.0.0.1",
    "__meta_kubernetes_pod_node_name": NODE,
    "__meta_kubernetes_endpoint_node_name": NODE,
    "__meta_kubernetes_pod_label_app": "dcgm-exporter",
    "__meta_kubernetes_service_name": "dcgm-exporter",
    "__meta_kubernetes_service_label_app_kubernetes_io_name": "dcgm-exporter",
}
"""Labels of Kubernetes service discovery, which the Prometheus programs here do not contain."""

OPERATOR = {**ITSELF, "service": "dcgm-exporter", "endpoint": "metrics"}
"""Labels that the Prometheus operator adds for a ServiceMonitor."""


def exported(labels: dict[str, str]) -> dict[str, str]:
    """Return labels of the page under the names that they have beside those of the target."""
    return {f"exported_{name}": value for name, value in labels.items()}


EXPECTED: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "static": ({**HOLDER, "cluster": "ml", "datacenter": "dc1"}, {}),
    "pods": ({**HOLDER, "node": NODE}, {}),
    "pod-addresses": (
        {
            "namespace": ITSELF["namespace"],
            "pod": ITSELF["pod"],
            "exported_namespace": "ml",
            "exported_pod": "train-0",
            "container": "main",
            "workspace": "default",
        },
        {"namespace": ITSELF["namespace"], "pod": ITSELF["pod"]},
    ),
    "cost": ({**HOLDER, "provenance": "dcgm", "kubernetes_namespace": ITSELF["namespace"]}, {}),
    "service-monitor": ({**OPERATOR, **exported(HOLDER)}, OPERATOR),
    "service-monitor-relabelings": (
        {
            **OPERATOR,
            **exported({**HOLDER, "Hostname": "gpu-node"}),
            "Hostname": NODE,
            "node": NODE,
            "nodepool": "np-ab12",
            "instance": "127.0.0.1",
        },
        {**OPERATOR, "Hostname": NODE, "exported_Hostname": "gpu-node"},
    ),
    "service-monitor-honor": ({**OPERATOR, **HOLDER}, {"service": "dcgm-exporter"}),
}
"""Labels of a GPU that a pod holds, and of a free GPU."""


def snake(name: str) -> str:
    return re.sub(r"([A-Z])", lambda found: f"_{found[1].lower()}", name)


def of_monitor(endpoint: dict[str, Any]) -> dict[str, Any]:
    """Return the job that the Prometheus operator makes of an endpoint of a ServiceMonitor."""
    labels = [
        {"target_label": name, "replacement": value}
        for name, value in {**OPERATOR, "endpoint": "metrics"}.items()
    ]
    more = [
        {snake(key): value for key, value in rule.items()}
        for rule in endpoint.get("relabelings", ())
    ]
    return {
        "honor_labels": endpoint.get("honorLabels", False),
        "metrics_path": endpoint.get("path", "/metrics"),
        "kubernetes_sd_configs": [{"role": "endpoints"}],
        "relabel_configs": [*labels, *more],
    }


def job_of(file: Path, port: int) -> dict[str, Any]:
    """Return the job of a file, with the test's interval, and without service discovery."""
    # The files have the usual port.
    loaded = yaml.safe_load(file.read_text().replace(":9400", f":{port}"))
    job = loaded[0] if isinstance(loaded, list) else of_monitor(loaded["spec"]["endpoints"][0])
    if job.pop("kubernetes_sd_configs", None):
        job["static_configs"] = [{"targets": [f"127.0.0.1:{port}"], "labels": DISCOVERED}]
    return {
        **job,
        "job_name": file.stem,
        "scrape_interval": f"{EVERY}s",
        "scrape_timeout": f"{EVERY}s",
    }


@contextmanager
def running_podgpu(folder: Path, port: int, held: str, fake: FakeNvml) -> Iterator[None]:
    """Run podgpu with dcgm-exporter's command line, and with one held GPU."""
    background, kubelet = Background(), FakeKubelet(folder / "kubelet.sock")
    kubelet.pods = [pod("train-0", {"nvidia.com/gpu": [held]})]
    background.do(kubelet.start())
    process = Process(
        [PODGPU, "dcgm-exporter", "-f", COUNTERS, "-k", "-c", f"{FAST * 1000:g}"],
        folder / "podgpu.log",
        {
            **fake.env(),
            "NODE_NAME": "gpu-node",
            "DCGM_EXPORTER_LISTEN": f"127.0.0.1:{port}",
            "DCGM_POD_RESOURCES_KUBELET_SOCKET": str(kubelet.path),
        },
    )
    try:
        process.wait_for_answer(port, "/metrics")
        yield
    finally:
        status = process.stop()
        print(process.output()[-3000:])
        background.do(kubelet.stop())
        background.stop()
    assert status == 0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraping]:
    """A Prometheus with a job for each file, and a podgpu with one held GPU."""
    folder = tmp_path_factory.mktemp("scrapes")
    (port,) = free_ports(1)
    scene = distinct()
    with running_podgpu(folder, port, scene.gpus[1].uuid, FakeNvml(scene, folder)):
        jobs = [job_of(file, port) for file in sorted(JOBS.iterdir())]
        with prometheus(debian.prometheus().server, folder / "prometheus", jobs) as server:
            yield server


def test_there_is_a_row_for_each_file() -> None:
    assert {file.stem for file in JOBS.iterdir()} == EXPECTED.keys()


@pytest.mark.parametrize("name", EXPECTED)
def test_a_scrape_has_the_labels_that_dcgm_exporter_would_have(server: Scraping, name: str) -> None:
    held, free = EXPECTED[name]
    metric = "DCGM_FI_DEV_FB_USED"

    def found(gpu: str) -> list[dict[str, str]]:
        series = server.query(f'{metric}{{job="{name}",gpu="{gpu}"}}')
        return [dict(each.labels) for each in series]

    wait_until(lambda: found("1"), f"scrapes: {json.dumps(server.api('targets'))[:2000]}")
    (labels,) = found("1")
    kept = {key: labels.get(key) for key in held}
    assert kept == held
    of_free = found("0")
    assert len(of_free) == (name != "cost")
    for labels in of_free:
        ownership = {*HOLDER, *exported(HOLDER), *free}
        assert {key: labels[key] for key in ownership if key in labels} == free
    if name == "cost":
        names = server.query(f'count by (__name__) ({{job="{name}",__name__=~".*_.*"}})')
        assert {each.name for each in names} >= {metric, "DCGM_FI_DEV_FB_FREE"}
        assert not server.query(f'DCGM_FI_DEV_GPU_TEMP{{job="{name}"}}')
    assert (server.refused(), server.problems()) == ({}, [])
