"""OpenCost's GPU queries, which are written for dcgm-exporter, return the expected results."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.exporter import COUNTERS, Exporter, exporting
from tests.e2e.processes import wait_until
from tests.e2e.prometheus import EXPORTER, Server
from tests.e2e.scenes import distinct
from tests.fakes.kubelet import FakeKubelet, pod
from tests.fakes.nvml.profiles import NAME

# The cluster label of OpenCost is configurable; this is the default.
HOLDER: Final = "container, pod, namespace, uid, cluster_id"

ENGINE: Final = 'DCGM_FI_PROF_GR_ENGINE_ACTIVE{container!="", $i}[2m]'
DECODER: Final = 'DCGM_FI_DEV_DEC_UTIL{container!="", $i}[2m]'
AVERAGE: Final = f"avg by ({HOLDER}) (avg_over_time({ENGINE}))"
MOST: Final = f"max by ({HOLDER}) (max_over_time({ENGINE}))"
INFO: Final = f"avg by (device, modelName, UUID, {HOLDER}) (avg_over_time({DECODER}))"

IDS: Final = [gpu.uuid for gpu in distinct().gpus]
GPU: Final = "nvidia.com/gpu"

Who = tuple[str, str, str]
"""Namespace, pod and container."""


def who(labels: dict[str, str]) -> Who:
    return labels["namespace"], labels["pod"], labels["container"]


def usage(exporter: Exporter, query: str) -> dict[Who, float]:
    """Return the load by holder, from 0 to 1, as OpenCost queries it."""
    found = {}
    for series in exporter.query(query):
        labels = dict(series.labels)
        # dcgm-exporter has no `uid`, and there is no cluster label here.
        assert labels.keys() == {"namespace", "pod", "container"}
        found[who(labels)] = series.value
    return found


def info(exporter: Exporter) -> dict[tuple[Who, str, str], float]:
    """Return information about GPUs by holder, uuid and device."""
    found = {}
    for series in exporter.query(INFO):
        labels = dict(series.labels)
        assert labels["modelName"] == NAME
        found[who(labels), labels["UUID"], labels["device"]] = series.value
    return found


def wait_usage(exporter: Exporter, expected: dict[Who, float]) -> None:
    last: dict[Who, float] = {}

    def fits() -> bool:
        nonlocal last
        last = usage(exporter, AVERAGE)
        return last == expected

    try:
        wait_until(fits, "the answer")
    except AssertionError:
        raise AssertionError(f"{expected} wanted, {last} found; {exporter.output()}") from None


@pytest.fixture
def exporter(prometheus: Server, tmp_path: Path) -> Iterator[Exporter]:
    with exporting(prometheus, tmp_path / "exporter", distinct()) as exporter:
        yield exporter


def with_pods(kubelet: FakeKubelet) -> dict[str, str]:
    return {
        "DCGM_EXPORTER_KUBERNETES": "true",
        "DCGM_POD_RESOURCES_KUBELET_SOCKET": str(kubelet.path),
    }


def test_without_pods_the_load_belongs_to_the_exporter(exporter: Exporter) -> None:
    """As with dcgm-exporter, the labels are those of the scrape target."""
    exporter.start("-f", COUNTERS)
    own = who(EXPORTER)
    wait_usage(exporter, {own: (0 + 0.25 + 0.5 + 0.75) / 4})
    assert usage(exporter, MOST) == {own: 0.75}
    known = {(own, uuid, f"nvidia{at}"): 3.0 * at for at, uuid in enumerate(IDS)}
    wait_until(lambda: info(exporter) == known, "all GPUs")


def test_with_pods_each_holder_has_its_load(exporter: Exporter, fake_kubelet: FakeKubelet) -> None:
    """A free GPU is assigned to no pod, not even to the exporter's."""
    fake_kubelet.pods = [pod("train-0", {GPU: IDS[1:3]}), pod("train-1", {GPU: [IDS[3]]})]
    first, second = ("ml", "train-0", "main"), ("ml", "train-1", "main")
    exporter.start("-f", COUNTERS, env=with_pods(fake_kubelet))
    wait_usage(exporter, {first: 0.375, second: 0.75})
    assert usage(exporter, MOST) == {first: 0.5, second: 0.75}
    known = {
        (first, IDS[1], "nvidia1"): 3.0,
        (first, IDS[2], "nvidia2"): 6.0,
        (second, IDS[3], "nvidia3"): 9.0,
    }
    wait_until(lambda: info(exporter) == known, "the held GPUs")


@pytest.mark.parametrize("copies", [False, True], ids=["once", "per replica"])
def test_the_load_of_a_shared_gpu_has_no_holder_without_replicas(
    exporter: Exporter, fake_kubelet: FakeKubelet, copies: bool
) -> None:
    """Without replicas, its load has no holder; with replicas, each holder has the whole load."""
    fake_kubelet.pods = [
        pod("serve-0", {GPU: [f"{IDS[3]}::0"]}),
        pod("serve-1", {GPU: [f"{IDS[3]}::1"]}),
        pod("train-0", {GPU: [IDS[2]]}),
    ]
    env = {**with_pods(fake_kubelet), "KUBERNETES_VIRTUAL_GPUS": str(copies).lower()}
    exporter.start("-f", COUNTERS, env=env)
    shared = {("ml", f"serve-{at}", "main"): 0.75 for at in range(2)} if copies else {}
    wait_usage(exporter, {("ml", "train-0", "main"): 0.5, **shared})
