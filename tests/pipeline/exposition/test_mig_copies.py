"""Readings that only the whole GPU has, repeated for each MIG instance (`mig_readings`)."""

from typing import Any

import pytest

from pipeline.exposition.options import PageOptions
from pipeline.model import Snapshot
from tests.pipeline.exposition.pages import of, parsed, rendered
from tests.support.nodes import Node, claim, gpu, mig, reading

POWER, TEMPERATURE, USED = (
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_GPU_TEMP",
    "DCGM_FI_DEV_FB_USED",
)
GPU, FIRST, SECOND = ("0", "", ""), ("0", "1", "first"), ("0", "2", "")
"""The GPU with two instances, and these; the first is held."""
PLAIN = ("1", "", "train-0")
"""A GPU without instances."""


def node(*, shared: bool = False) -> Snapshot:
    parent, plain = gpu(0), gpu(1)
    first, second = mig(parent, 1), mig(parent, 2)
    found = Node()
    found.has(parent, first, second, plain)
    others = [claim("other", first.uuid, share=0.5)] if shared else []
    found.podlist(claim("first", first.uuid, share=0.5), *others, claim("train-0", plain.uuid))
    found.reads(
        *(reading(one, "power_watts", 100 + at) for at, one in enumerate((parent, plain))),
        reading(parent, "xid_last", 79),
        reading(parent, "gpu_up", 1),
        reading(parent, "xid_errors", 3, attrs=(("xid", "79"),)),
        *(reading(one, "memory_total_bytes", 1 << 30) for one in (parent, first, second, plain)),
    )
    return found.snapshot()


def shown(snapshot: Snapshot, metric: str, **options: Any) -> list[tuple[tuple[str, ...], float]]:
    """Return GPU, GPU instance and pod of each series, and its value."""
    return [
        ((labels["gpu"], labels.get("GPU_I_ID", ""), labels["pod"]), value)
        for labels, value in of(parsed(rendered(snapshot, **options)), metric)
    ]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({}, [(GPU, 100), (PLAIN, 101)], id="by default once"),
        pytest.param({"sharing": "claims"}, [(GPU, 100), (PLAIN, 101)], id="claims"),
        pytest.param({"mig_readings": "gpu", "sharing": "copies"}, [(GPU, 100), (PLAIN, 101)]),
        pytest.param({"mig_readings": "instances"}, [(FIRST, 100), (SECOND, 100), (PLAIN, 101)]),
        pytest.param(
            {"mig_readings": "both"}, [(GPU, 100), (FIRST, 100), (SECOND, 100), (PLAIN, 101)]
        ),
        pytest.param(
            {"sharing": "copies"},
            [(GPU, 100), (FIRST, 100), (SECOND, 100), (PLAIN, 101)],
            id="copies of shared devices",
        ),
    ],
)
def test_where_power_is_shown(
    options: dict[str, Any], expected: list[tuple[tuple[str, ...], float]]
) -> None:
    assert shown(node(), POWER, **options) == expected


def test_a_copy_has_all_labels_of_the_instance() -> None:
    page = parsed(rendered(node(), mig_readings="instances"))
    own = [dict(labels) for labels, _ in of(page, "DCGM_FI_DEV_FB_TOTAL") if "GPU_I_ID" in labels]
    copies = [dict(labels) for labels, _ in of(page, POWER) if "GPU_I_ID" in labels]
    assert copies == own
    assert [labels["GPU_I_PROFILE"] for labels in copies] == ["1g.10gb", "1g.10gb"]


def test_what_instances_have_themselves_is_not_repeated() -> None:
    found = shown(node(), "DCGM_FI_DEV_FB_TOTAL", mig_readings="instances")
    assert [who for who, _ in found] == [GPU, FIRST, SECOND, PLAIN]


def test_podgpus_own_families_are_not_repeated() -> None:
    """An alert on `podgpu_gpu_up` must fire once for a GPU."""
    page = parsed(rendered(node(), mig_readings="instances"))
    assert len(of(page, "podgpu_gpu_up")) == 1
    assert len(of(page, "podgpu_xid_errors_total")) == 1


def test_a_shared_instance_has_a_copy_for_each_holder() -> None:
    found = shown(node(shared=True), POWER, sharing="copies", mig_readings="instances")
    assert found == [(FIRST, 100), (("0", "1", "other"), 100), (SECOND, 100), (PLAIN, 101)]
    once = shown(node(shared=True), POWER, mig_readings="instances")
    assert [who for who, _ in once] == [("0", "1", ""), SECOND, PLAIN]


def test_an_xid_error_has_its_code_in_each_copy() -> None:
    page = parsed(rendered(node(), mig_readings="both"))
    found = [labels["err_code"] for labels, _ in of(page, "DCGM_FI_DEV_XID_ERRORS")]
    assert found == ["79"] * 3


def test_without_container_labels_copies_of_holders_do_not_repeat_a_reading() -> None:
    assert len(of(parsed(rendered(node(), sharing="copies", containers=False)), POWER)) == 2


def test_the_option_is_one_of_these() -> None:
    assert PageOptions().mig_readings == "auto"
