"""Series about pods, conflicts and the kubelet's resources."""

from collections.abc import Collection
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.exposition.holder_labels import pod_info_line, pod_labels
from pipeline.exposition.naming import FORMS, PageNaming
from pipeline.exposition.options import Inline, LabelForm, PageOptions
from pipeline.fields import FieldPlan, LabelRow
from pipeline.model import NS, Device, Pod, PodInfo, PodsReplaced
from tests.pipeline.exposition.pages import (
    of,
    parsed,
    pods_and_resources,
    rendered,
)
from tests.support.examples import examples
from tests.support.nodes import Node, at, claims, gpu, kubelet_claim, mig, reading

UID = "6f1c8a52-7d0e-4f2b-9a40-b7a2f0f6a001"
NAMES = st.text("ab._-/0", max_size=4)
TAKEN = {
    name
    for form in FORMS
    for name in PageNaming(PageOptions(labels=form), FieldPlan.everything(), "").fixed
} | {"xid", "__name__", "label_gpu", "pu"}


def test_a_pod_that_holds_two_gpus_has_one_pod_info_series() -> None:
    series = parsed(rendered(pods_and_resources()))
    ((labels, value),) = of(series, "podgpu_pod_info")
    assert value == 1
    assert labels["pod_uid"] == UID
    assert (labels["owner_kind"], labels["owner_name"]) == ("StatefulSet", "train")
    assert labels["label_app_kubernetes_io_name"] == "train"
    assert labels["annotation_example_com_cost_centre"] == "42"


def test_labels_whose_sanitized_names_are_equal_stay_separate() -> None:
    series = parsed(rendered(pods_and_resources()))
    ((labels, _),) = of(series, "podgpu_pod_info")
    colliding = {name: text for name, text in labels.items() if name.startswith("label_team_x")}
    assert sorted(colliding.values()) == ["a", "b"]
    assert "label_team_x" not in colliding


PREFIXES = st.sampled_from(["label_", "", "annotation_", "g"])
PAIRS = st.dictionaries(st.one_of(NAMES, st.sampled_from(sorted(TAKEN))), st.text(max_size=3))


@settings(max_examples=examples(50))
@given(PAIRS, PAIRS, PREFIXES, st.sampled_from(get_args(LabelForm)))
def test_no_two_labels_have_the_same_name(
    own_labels: dict[str, str], annotations: dict[str, str], prefix: str, form: LabelForm
) -> None:
    options = PageOptions(inline=("labels", "annotations"), labels=form, pod_label_prefix=prefix)
    style = PageNaming(options, FieldPlan.everything(), "node-1")
    pod = PodInfo(
        "u",
        "n",
        "p",
        labels=tuple(sorted(own_labels.items())),
        annotations=tuple(sorted(annotations.items())),
    )
    shown = list(pod_labels("u", pod, style))
    names = [name for name, _ in shown]
    assert len(set(names)) == len(names) == len(own_labels) + len(annotations)
    assert all(name.isascii() and name.isidentifier() for name in names)
    assert not style.fixed.intersection(names)
    assert not any(name.startswith("__") for name in names)
    assert sorted(text for _, text in shown) == sorted(
        [*own_labels.values(), *annotations.values()]
    )
    assert parsed(pod_info_line(pod, style))


@pytest.mark.parametrize(
    ("prefix", "name", "shown"),
    [
        ("label_", "app.kubernetes.io/name", "label_app_kubernetes_io_name"),
        ("", "app.kubernetes.io/name", "app_kubernetes_io_name"),
        ("pod_", "team", "pod_team"),
        ("", "1st", "_1st"),
        ("label_", "1st", "label_1st"),
        ("", "gpu", "pod_label_gpu"),
        ("", "Hostname", "pod_label_Hostname"),
        ("", "xid", "pod_label_xid"),
        ("", "phase", "pod_label_phase"),
        ("", "vgpu", "pod_label_vgpu"),
        ("pod_", "uid", "label_pod_uid"),
        ("", "hostname", "hostname"),
    ],
)
def test_names_of_pod_labels_on_the_page(prefix: str, name: str, shown: str) -> None:
    style = PageNaming(
        PageOptions(inline=("labels",), pod_label_prefix=prefix), FieldPlan.everything(), "n"
    )
    pod = PodInfo("u", "n", "p", labels=((name, "x"),))
    assert list(pod_labels("u", pod, style)) == [(shown, "x")]
    assert f'{shown}="x"'.encode() in pod_info_line(pod, style)


def test_a_pod_label_does_not_replace_a_label_row() -> None:
    plan = FieldPlan(labels=[LabelRow("DCGM_FI_DEV_SERIAL", "serial")])
    style = PageNaming(PageOptions(inline=("labels",), pod_label_prefix=""), plan, "n")
    pod = PodInfo("u", "n", "p", labels=(("DCGM_FI_DEV_SERIAL", "x"),))
    assert list(pod_labels("u", pod, style)) == [("pod_label_DCGM_FI_DEV_SERIAL", "x")]


@pytest.mark.parametrize(
    ("inline", "expected"),
    [
        pytest.param((), set(), id="by default"),
        pytest.param(("pod_uid",), {"pod_uid"}, id="the uid"),
        pytest.param(("labels",), {"label_team", "label_app_kubernetes_io_name"}, id="labels"),
        pytest.param(("annotations",), {"annotation_example_com_cost_centre"}, id="annotations"),
        pytest.param(("pod_uid", "labels"), {"pod_uid", "label_team"}, id="both"),
    ],
)
def test_readings_have_only_the_inline_labels_that_are_configured(
    inline: Collection[Inline], expected: set[str]
) -> None:
    series = parsed(rendered(pods_and_resources(), inline=tuple(inline)))
    held = [
        labels for labels, _ in of(series, "DCGM_FI_DEV_GPU_UTIL") if labels["pod"] == "train-0"
    ]
    assert len(held) == 2
    for labels in held:
        extra = {n for n in labels if n == "pod_uid" or n.startswith(("label_", "annotation_"))}
        assert expected <= extra
        assert bool(extra) == bool(inline)
        assert labels.get("pod_uid", UID) == UID


@pytest.mark.parametrize("sharing", ["info", "copies"])
@pytest.mark.parametrize("suffix", ["", "::0"], ids=["whole", "replica"])
@pytest.mark.parametrize("device", [gpu(0), mig(gpu(0), 1)], ids=["GPU", "MIG instance"])
def test_inline_labels_are_added_for_every_kind_of_held_device(
    device: Device, suffix: str, sharing: str
) -> None:
    node = Node()
    node.has(gpu(0), mig(gpu(0), 1))
    info = PodInfo("u-1", "ml", "train-0", labels=(("team", "a"),))
    node.say(PodsReplaced((Pod(info, at(-60)),), 300 * NS), "pods", "pods")
    node.say(claims(kubelet_claim("train-0", f"{device.uuid}{suffix}")), "kubelet", "podresources")
    node.reads(reading(device, "memory_total_bytes", 1 << 20))
    page = parsed(rendered(node.snapshot(), inline=("pod_uid", "labels"), sharing=sharing))
    ((labels, _),) = of(page, "DCGM_FI_DEV_FB_TOTAL")
    assert (labels["pod"], labels["pod_uid"], labels["label_team"]) == ("train-0", "u-1", "a")


def test_conflicts_are_counted_per_device() -> None:
    series = parsed(rendered(pods_and_resources()))
    counted = {labels["gpu"]: value for labels, value in of(series, "podgpu_attribution_conflicts")}
    assert counted == {"0": 0, "1": 0, "2": 2, "3": 0}
    (shared,) = [labels for labels, _ in of(series, "DCGM_FI_DEV_GPU_UTIL") if labels["gpu"] == "2"]
    assert shared["pod"] == ""


def test_resource_devices_show_a_gpu_that_is_not_advertised() -> None:
    series = parsed(rendered(pods_and_resources()))
    counted = {labels["state"]: value for labels, value in of(series, "podgpu_resource_devices")}
    assert counted == {"present": 4, "advertised": 3, "allocated": 3}
