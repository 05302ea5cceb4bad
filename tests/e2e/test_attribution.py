"""Holder labels of the series that Prometheus stores."""

import pytest

from tests.e2e.conftest import Start
from tests.e2e.node import Node
from tests.e2e.processes import wait_until
from tests.e2e.prometheus import EXPORTER
from tests.e2e.promql import Series
from tests.e2e.scenes import ALL, distinct, mixed

GPU = [gpu.uuid for gpu in distinct().gpus]
TRIO = ("namespace", "pod", "container")


@pytest.fixture
def node(start: Start) -> Node:
    """One GPU is held by one pod, one by two, one is free, and one is held by index."""
    node = start(distinct())
    node.hold({"train-0": [GPU[0]], "serve-a": [GPU[1]], "serve-b": [GPU[1]], "eval-0": ["3"]})
    for job, pod in (("$i", "pod"), ("$o", "exported_pod")):
        held = f'count by ({pod}) (DCGM_FI_DEV_GPU_TEMP{{{job},{pod}!=""}})'
        node.wait(held, {"train-0": 1, "eval-0": 1}, pod)
    return node


def labels(node: Node, promql: str, prefix: str = "") -> dict[str, str]:
    """Return the labels namespace, pod and container of the only series."""
    (series,) = node.query(promql)
    return {name: series.labels[prefix + name] for name in TRIO if prefix + name in series.labels}


def at_every_scrape(node: Node, promql: str) -> list[Series]:
    """Return the maximum of a query at times with less distance than scrapes."""
    return node.query(f"max_over_time(({promql})[20s:200ms])")


def test_the_labels_of_a_held_gpu_name_its_holder(node: Node) -> None:
    wanted = {"namespace": "ml", "pod": "train-0", "container": "main"}
    assert labels(node, 'DCGM_FI_DEV_GPU_UTIL{$i,gpu="0"}') == wanted
    assert labels(node, 'podgpu_gpu_up{$i,gpu="0"}') == wanted
    assert labels(node, 'podgpu_device_holder_info{$i,gpu="0"}') == wanted
    assert labels(node, 'DCGM_FI_DEV_GPU_UTIL{$i,gpu="3"}')["pod"] == "eval-0"


def test_a_free_gpu_is_not_labelled_with_the_exporter_pod(node: Node) -> None:
    """An empty label on the page removes the target's label; an absent label would not."""
    assert labels(node, 'DCGM_FI_DEV_GPU_UTIL{$i,gpu="2"}') == {}
    assert labels(node, 'podgpu_gpu_up{$i,gpu="2"}') == {}
    assert labels(node, 'podgpu_xid_errors_total{$i,gpu="2",xid="79"}') == {}
    assert node.query('podgpu_device_holder_info{$i,gpu="2"}') == []
    per_device = '{__name__=~"DCGM_.*|podgpu_(gpu_up|xid.*|clock.*|process.*)",$i,'
    assert node.query(f'{per_device}pod="{EXPORTER["pod"]}"}}') == []


def test_without_honor_labels_the_holder_is_in_the_exported_labels(node: Node) -> None:
    selector = 'DCGM_FI_DEV_GPU_UTIL{$o,gpu="%s"}'
    for gpu in ALL:
        assert labels(node, selector % gpu) == EXPORTER
    wanted = {"namespace": "ml", "pod": "train-0", "container": "main"}
    assert labels(node, selector % 0, "exported_") == wanted
    assert labels(node, selector % 1, "exported_") == {}
    assert labels(node, selector % 2, "exported_") == {}


def test_a_shared_gpu_has_several_holder_series(node: Node) -> None:
    assert labels(node, 'DCGM_FI_DEV_GPU_UTIL{$i,gpu="1"}') == {}
    assert node.by("pod", 'podgpu_device_holder_info{$i,gpu="1"}') == {"serve-a": 1, "serve-b": 1}
    # The sum counts the device once, not once per holder.
    assert node.one("sum(DCGM_FI_DEV_GPU_UTIL{$i})") == 100
    joined = (
        "DCGM_FI_DEV_GPU_UTIL{$i} * on (UUID, GPU_I_ID, GPU_CI_ID) group_right ()"
        ' podgpu_device_holder_info{$i,pod="%s"}'
    )
    for pod in ("serve-a", "serve-b"):
        assert node.by("pod", joined % pod) == {pod: 20}


def test_a_new_holder_replaces_the_old_one_in_the_series(node: Node) -> None:
    node.hold({"train-1": [GPU[0], GPU[2]]})
    node.wait("count by (pod) (DCGM_FI_DEV_GPU_UTIL{$i})", {"train-1": 2, "": 2}, "pod")
    assert labels(node, 'DCGM_FI_DEV_GPU_UTIL{$i,gpu="0"}')["pod"] == "train-1"
    # Except accounts of ended containers, which stay for five minutes.
    left = '{$i,__name__!~"podgpu_container_.*",pod=~"train-0|serve-.|eval-0"}'
    assert node.query(left) == []
    node.wait_scrapes_more(2)
    # There was never a second series for a GPU: the old one ended with the first sample of the new
    # one.
    doubles = at_every_scrape(node, "count by (gpu) (DCGM_FI_DEV_GPU_UTIL{$i})")
    assert {series.labels["gpu"]: series.value for series in doubles} == dict.fromkeys(ALL, 1)
    assert at_every_scrape(node, "sum(DCGM_FI_DEV_GPU_UTIL{$i})")[0].value == 100


def test_an_empty_pod_list_frees_every_gpu(node: Node) -> None:
    node.hold({})
    node.wait("count by (pod) (DCGM_FI_DEV_GPU_UTIL{$i})", {"": 4}, "pod")
    assert node.query("podgpu_device_holder_info{$i}") == []


def test_mig_instances_have_separate_holders(start: Start) -> None:
    scenario = mixed()
    whole, cut = scenario.gpus[0], scenario.gpus[1]
    first, second, _ = cut.mig or ()
    node = start(scenario)
    node.hold({"train-0": [whole.uuid], "serve-a": [first.uuid], "serve-b": [second.uuid]})
    memory = 'DCGM_FI_DEV_FB_TOTAL{$i,pod!=""}'
    wait_until(lambda: len(node.query(memory)) == 3, "three holders")
    assert node.by("pod", memory)["serve-b"] == 19968
    profiles = {s.labels["pod"]: s.labels.get("GPU_I_PROFILE") for s in node.query(memory)}
    assert profiles == {"train-0": None, "serve-a": "3g.40gb", "serve-b": "2g.20gb"}
    # The GPU with the instances has no holder.
    assert labels(node, 'DCGM_FI_DEV_POWER_USAGE{$i,gpu="1"}') == {}
    assert labels(node, 'DCGM_FI_DEV_FB_TOTAL{$i,gpu="1",GPU_I_PROFILE="1g.10gb"}') == {}
