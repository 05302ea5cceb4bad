"""What the page says of pods, of conflicts, and of the kubelet's resources."""

from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.model import PodInfo
from sinks.prometheus.options import Inline, Options
from sinks.prometheus.pods import inline, line
from sinks.prometheus.sink import PrometheusSink
from tests.sinks.prometheus.pages import (
    context,
    of,
    parsed,
    pods_and_resources,
    scraped,
    sink_showing,
)

UID = "6f1c8a52-7d0e-4f2b-9a40-b7a2f0f6a001"
NAMES = st.text("ab._-/0", min_size=1, max_size=4)


async def test_a_pod_that_holds_two_gpus_is_told_of_once() -> None:
    series = parsed(await scraped(sink_showing(pods_and_resources())))
    ((labels, value),) = of(series, "podgpu_pod_info")
    assert value == 1
    assert labels["pod_uid"] == UID
    assert (labels["owner_kind"], labels["owner_name"]) == ("StatefulSet", "train")
    assert labels["label_app_kubernetes_io_name"] == "train"
    assert labels["annotation_example_com_cost_centre"] == "42"


async def test_names_that_come_to_the_same_are_told_apart() -> None:
    series = parsed(await scraped(sink_showing(pods_and_resources())))
    ((labels, _),) = of(series, "podgpu_pod_info")
    alike = {name: text for name, text in labels.items() if name.startswith("label_team_x")}
    assert sorted(alike.values()) == ["a", "b"]
    assert "label_team_x" not in alike


@given(
    st.dictionaries(NAMES, st.text(max_size=3), max_size=8),
    st.sampled_from(["label", "annotation"]),
)
def test_no_two_labels_have_one_name(pairs: dict[str, str], kind: str) -> None:
    told = tuple(sorted(pairs.items()))
    pod = (
        PodInfo("u", "n", "p", labels=told)
        if kind == "label"
        else PodInfo("u", "n", "p", annotations=told)
    )
    shown = list(inline("u", pod, ("labels", "annotations")))
    names = [name for name, _ in shown]
    assert len(set(names)) == len(names) == len(pairs)
    assert all(name.isascii() and name.isidentifier() for name in names)
    assert sorted(text for _, text in shown) == sorted(pairs.values())
    assert parsed(line(pod, "node-1"))


@pytest.mark.parametrize(
    ("wanted", "there"),
    [
        pytest.param((), set(), id="by default"),
        pytest.param(("pod_uid",), {"pod_uid"}, id="the uid"),
        pytest.param(("labels",), {"label_team", "label_app_kubernetes_io_name"}, id="labels"),
        pytest.param(("annotations",), {"annotation_example_com_cost_centre"}, id="annotations"),
        pytest.param(("pod_uid", "labels"), {"pod_uid", "label_team"}, id="both"),
    ],
)
async def test_readings_carry_what_was_asked_for_and_no_more(
    wanted: Collection[Inline], there: set[str]
) -> None:
    sink = PrometheusSink(Options(inline=tuple(wanted)), context())
    sink._show(pods_and_resources())
    series = parsed(await scraped(sink))
    held = [
        labels for labels, _ in of(series, "DCGM_FI_DEV_GPU_UTIL") if labels["pod"] == "train-0"
    ]
    assert len(held) == 2
    for labels in held:
        extra = {n for n in labels if n == "pod_uid" or n.startswith(("label_", "annotation_"))}
        assert there <= extra
        assert bool(extra) == bool(wanted)
        assert labels.get("pod_uid", UID) == UID


async def test_a_conflict_is_counted_on_its_device() -> None:
    series = parsed(await scraped(sink_showing(pods_and_resources())))
    counted = {labels["gpu"]: value for labels, value in of(series, "podgpu_attribution_conflicts")}
    assert counted == {"0": 0, "1": 0, "2": 2, "3": 0}
    (shared,) = [labels for labels, _ in of(series, "DCGM_FI_DEV_GPU_UTIL") if labels["gpu"] == "2"]
    assert shared["pod"] == ""


async def test_a_gpu_that_the_device_plugin_withdrew_is_visible() -> None:
    series = parsed(await scraped(sink_showing(pods_and_resources())))
    counted = {labels["state"]: value for labels, value in of(series, "podgpu_resource_devices")}
    assert counted == {"present": 4, "advertised": 3, "allocated": 3}
