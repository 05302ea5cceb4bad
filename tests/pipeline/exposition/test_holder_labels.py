"""Labels of series; and each device is counted once."""

import gc
import weakref
from dataclasses import replace

import pytest

from pipeline.exposition import holder_labels as labels_module
from pipeline.exposition.holder_labels import DCGM_ONLY, LabelCache
from pipeline.exposition.naming import PageNaming
from pipeline.exposition.options import PageOptions
from pipeline.fields import CATALOGUE, FieldPlan
from pipeline.model import Access, Attribution, Claim, Evidence, Origin, PartialRef, RawDeviceId
from tests.pipeline.exposition.pages import (
    context,
    mig_instances,
    of,
    parsed,
    plain_gpus,
    rendered,
)
from tests.support.nodes import Node, claim, every_field, gpu, mig, reading

STYLE = PageNaming(PageOptions(), FieldPlan.everything(), "node-1")
BASE_LABELS = (
    "gpu",
    "UUID",
    "pci_bus_id",
    "device",
    "modelName",
    "GPU_I_PROFILE",
    "GPU_I_ID",
    "GPU_CI_ID",
    "Hostname",
)
CONTAINER_LABELS = STYLE.names.holder
HOLDER_NAMES = set(CONTAINER_LABELS)


def test_summing_over_a_shared_device_counts_it_once() -> None:
    series = parsed(rendered(plain_gpus()))
    util = of(series, "DCGM_FI_DEV_GPU_UTIL")
    assert sum(value for _, value in util) == 20 + 40 + 60
    (shared,) = [labels for labels, _ in util if labels["gpu"] == "1"]
    assert {shared[name] for name in HOLDER_NAMES} == {""}
    holders = [
        labels for labels, _ in of(series, "podgpu_device_holder_info") if labels["gpu"] == "1"
    ]
    assert {(h["namespace"], h["pod"], h["container"]) for h in holders} == {
        ("ml", "serve-a", "main"),
        ("web", "serve-b", "server"),
    }
    shares = {h["pod"]: value for h, value in of(series, "podgpu_device_holder_share")}
    assert shares == {"serve-a": 0.5, "serve-b": 0.25}


def test_a_free_device_has_series_with_empty_container_labels() -> None:
    series = parsed(rendered(plain_gpus()))
    (free,) = [labels for labels, _ in of(series, "DCGM_FI_DEV_GPU_UTIL") if labels["gpu"] == "2"]
    assert {free[name] for name in HOLDER_NAMES} == {""}


def test_a_device_of_one_container_has_the_labels_of_that_container() -> None:
    series = parsed(rendered(plain_gpus()))
    (held,) = [labels for labels, _ in of(series, "DCGM_FI_DEV_GPU_UTIL") if labels["gpu"] == "0"]
    assert [held[name] for name in CONTAINER_LABELS] == ["ml", "train-0", "main"]
    assert held["device"] == "nvidia2"  # the minor number, which is not the index


def test_the_last_labels_of_every_reading_name_the_container() -> None:
    node = Node()
    parent = gpu(0)
    devices = [parent, mig(parent, 1), gpu(1)]
    node.has(*devices)
    node.podlist(claim("a", devices[1].uuid))
    node.reads(*every_field(devices))
    page = rendered(node.snapshot()).decode()
    names = {field.metric for field in CATALOGUE}
    lines = [line for line in page.splitlines() if line.partition("{")[0] in names]
    assert len(lines) == len(node.snapshot().readings)
    for line in lines:
        shown = [part.partition("=")[0] for part in line[line.index("{") + 1 :].split('",')]
        if line.startswith("DCGM_FI_DEV_XID_ERRORS"):
            shown = shown[:-2]  # without err_code and err_msg
        assert shown[-3:] == list(CONTAINER_LABELS)
        expected = [n for n in BASE_LABELS if not n.startswith("GPU_") or "GPU_I_ID" in line]
        if not line.startswith("DCGM_"):
            expected = [name for name in expected if name not in DCGM_ONLY]
        assert shown[: len(expected)] == expected


def test_compute_instances_of_one_gpu_instance_are_separate_series() -> None:
    series = parsed(rendered(mig_instances()))
    used = [labels for labels, _ in of(series, "DCGM_FI_DEV_FB_USED")]
    assert {(u.get("GPU_I_ID"), u.get("GPU_CI_ID"), u["pod"]) for u in used} == {
        (None, None, ""),
        ("1", "0", ""),
        ("2", "0", "first"),
        ("2", "1", "second"),
    }
    assert len({u["UUID"] for u in used}) == 1  # the parent's, as in dcgm-exporter


def test_a_restarted_container_is_one_holder() -> None:
    node = Node()
    node.has(gpu(0))
    node.podlist(
        *(
            Claim(
                PartialRef("ml", "train-0", "main", container_id=f"containerd://{at}"),
                (RawDeviceId("uuid", gpu(0).uuid),),
                None,
                None,
                Origin(Evidence.POD_LIST_FILE),
            )
            for at in range(2)
        )
    )
    node.reads(reading(gpu(0), "gpu_up", 1))
    series = parsed(rendered(node.snapshot()))
    assert [labels["pod"] for labels, _ in of(series, "podgpu_gpu_up")] == ["train-0"]
    assert len(of(series, "podgpu_device_holder_info")) == 1


def test_fields_outside_the_plan_are_left_out() -> None:
    ctx = context()
    ctx.plan = FieldPlan(["gpu_utilization_percent", "memory_used_bytes", "xid_errors"])
    series = parsed(rendered(plain_gpus(), ctx=ctx))
    shown = {name for name, _ in series if not name.startswith(("podgpu_so", "podgpu_device"))}
    assert shown & {field.metric for field in CATALOGUE} == {
        "DCGM_FI_DEV_GPU_UTIL",
        "DCGM_FI_DEV_FB_USED",
        "podgpu_xid_errors_total",
    }
    assert [value for _, value in of(series, "DCGM_FI_DEV_FB_USED")] == [1.5, 2.5, 3.5]


def attributions() -> list[Attribution]:
    return list(plain_gpus().layout.attributions.values())


def test_only_a_device_with_a_new_holder_is_rendered_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[str] = []
    render = labels_module._render

    def counted(attribution: Attribution, style: PageNaming) -> labels_module.Rendered:
        made.append(attribution.device.uuid)
        return render(attribution, style)

    monkeypatch.setattr(labels_module, "_render", counted)
    cache = LabelCache(STYLE)
    known = attributions()
    for attribution in known:
        assert cache[attribution].lines
    moved = replace(known[0], holders=())
    made.clear()
    for attribution in (moved, *known[1:]):
        assert cache[attribution].lines
    assert made == [moved.device.uuid]


def test_cached_labels_are_freed_with_their_attribution() -> None:
    cache = LabelCache(STYLE)
    known = attributions()
    gone = weakref.ref(known[0])
    for attribution in known:
        assert cache[attribution].lines
    del known, attribution
    gc.collect()
    assert gone() is None
    assert not cache._rendered


def test_a_device_of_several_containers_of_one_pod_names_the_pod() -> None:
    """For example an init container, and the main container that keeps its device."""
    node = Node()
    node.has(gpu(0))
    node.podlist(*(claim("train-0", gpu(0).uuid, container=name) for name in ("prepare", "main")))
    node.reads(reading(gpu(0), "gpu_up", 1))
    series = parsed(rendered(node.snapshot()))
    ((labels, _),) = of(series, "podgpu_gpu_up")
    assert [labels[name] for name in CONTAINER_LABELS] == ["ml", "train-0", ""]
    holders = [labels["container"] for labels, _ in of(series, "podgpu_device_holder_info")]
    assert holders == ["main", "prepare"]


def test_t02_access_is_shown_in_addition_to_holders() -> None:
    known = attributions()[0]
    access = Access(PartialRef("ml", "monitor", "main", "u1", "c1"), "nri", Evidence.RUNTIME_ENV)
    text = LabelCache(STYLE)[replace(known, access=(access,))].lines["podgpu_device_access_info"]
    ((labels, value),) = of(parsed(b"".join(text)), "podgpu_device_access_info")
    assert [labels[name] for name in CONTAINER_LABELS] == ["ml", "monitor", "main"]
    found = [labels[name] for name in ("UUID", "pod_uid", "source", "evidence")]
    assert found == [known.device.uuid, "u1", "nri", "runtime_env"]
    assert value == 1
