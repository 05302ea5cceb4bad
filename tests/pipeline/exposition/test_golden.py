"""Compare pages with golden files: dashboards and rules depend on names and labels.

`PODGPU_WRITE_GOLDEN=1` writes the files again; read the difference before you commit it.
"""

import os
from pathlib import Path
from typing import Any

import pytest

from pipeline.exposition.renderer import INFO_FAMILIES
from pipeline.exposition.text_format import Format
from pipeline.fields import FieldPlan, LabelRow, Row, by_name
from tests.pipeline.exposition.pages import SCENES, context, of, parsed, rendered

FOLDER = Path(__file__).parents[2] / "golden" / "prometheus"
INLINE = ("pod_uid", "labels", "annotations")
SUFFIX = {Format.TEXT: "txt", Format.OPENMETRICS: "om"}


LISTED_FIELDS = (
    ("memory_used_bytes", "gauge", "Framebuffer memory used (in MiB)."),
    ("energy_millijoules", "counter", "Total energy consumption since boot (in mJ)."),
    ("power_watts", "gauge", "Power draw (in W)."),
    ("xid_last", "gauge", "Value of the last XID error encountered."),
)
COUNTERS_FILE = FieldPlan(
    rows=[
        Row(field, field.dcgm_1x, kind, about)  # type: ignore[arg-type]
        for name, kind, about in LISTED_FIELDS
        if (field := by_name(name)) is not None
    ]
)
LABEL_ROWS = FieldPlan(
    labels=[
        LabelRow("DCGM_FI_DRIVER_VERSION", "driver_version"),
        LabelRow("DCGM_FI_DEV_SERIAL", "serial"),
        LabelRow("DCGM_FI_DEV_BRAND", "brand"),
    ]
)
FORM_SCENES = ("plain-gpus", "mig-instances", "pods-and-resources", "usage")
CASES: dict[str, tuple[tuple[str, ...], dict[str, Any], FieldPlan | None]] = {
    "": (tuple(SCENES), {}, None),
    "dcgm-hostname": (FORM_SCENES, {"labels": "dcgm-hostname"}, None),
    "dcgm-old": (FORM_SCENES, {"labels": "dcgm-old"}, None),
    "dcgm-1x": (FORM_SCENES, {"labels": "dcgm-1x"}, None),
    "dcgm-1x-listed": (("plain-gpus", "replicas"), {"labels": "dcgm-1x"}, COUNTERS_FILE),
    "without-containers": (("plain-gpus", "mig-instances", "usage"), {"containers": False}, None),
    "copies": (("plain-gpus", "replicas", "shared-gpus"), {"sharing": "copies"}, None),
    "mig-copies": (("mig-instances", "shared-gpus"), {"mig_readings": "instances"}, None),
    "copies-dcgm-old": (("replicas",), {"sharing": "copies", "labels": "dcgm-old"}, None),
    "claims": (
        ("resource-claims",),
        {"sharing": "claims", "inline": ("pod_uid", "resource_claims")},
        None,
    ),
    "label-rows": (("plain-gpus", "replicas"), {}, LABEL_ROWS),
    "inline": (("pods-and-resources",), {"inline": INLINE, "pod_label_prefix": ""}, None),
}


@pytest.mark.parametrize("form", Format)
@pytest.mark.parametrize(
    ("case", "scene"), [(case, scene) for case, (scenes, *_) in CASES.items() for scene in scenes]
)
def test_the_page_equals_its_golden_file(case: str, scene: str, form: Format) -> None:
    _, options, plan = CASES[case]
    ctx = context()
    ctx.plan = plan or ctx.plan
    page = rendered(SCENES[scene](), form, ctx=ctx, **options)
    parsed(page, form)
    file = FOLDER / case / f"{scene}.{SUFFIX[form]}"
    if os.environ.get("PODGPU_WRITE_GOLDEN"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(page)
    assert page.decode() == file.read_bytes().decode()


@pytest.mark.parametrize("scene", SCENES)
def test_both_formats_have_the_same_series(scene: str) -> None:
    text, openmetrics = (rendered(SCENES[scene](), form) for form in Format)
    assert openmetrics.endswith(b"\n# EOF\n")
    assert b"EOF" not in text.splitlines()[-1]
    assert parsed(text) == parsed(openmetrics, Format.OPENMETRICS)


@pytest.mark.parametrize("scene", SCENES)
def test_every_reading_is_on_the_page(scene: str) -> None:
    snapshot = SCENES[scene]()
    series = parsed(rendered(snapshot))
    expected = len(snapshot.readings) if snapshot else 0
    own: tuple[str, ...] = (
        "podgpu_device_",
        "podgpu_container_",
        "podgpu_topology_",
        "podgpu_xid_info",
        "podgpu_build",
        "podgpu_source",
        "podgpu_sample",
    )
    own += tuple(name for name, _ in INFO_FAMILIES)
    assert sum(not name.startswith(own) for name, _ in series) == expected


def test_values_are_exact() -> None:
    series = parsed(rendered(SCENES["plain-gpus"]()))
    used = {labels["gpu"]: value for labels, value in of(series, "DCGM_FI_DEV_FB_USED")}
    assert used == {"0": 1.5, "1": 2.5, "2": 3.5}  # MiB, as with DCGM
    total = [value for _, value in of(series, "DCGM_FI_DEV_FB_TOTAL")]
    assert total == [81_559] * 3
    page = rendered(SCENES["plain-gpus"]())
    assert b"DCGM_FI_DEV_FB_TOTAL{" in page
    assert b"} 81559\n" in page  # whole numbers stay whole
    assert b"} 9007199254740994\n" in page  # integers beyond 2^53 stay exact
