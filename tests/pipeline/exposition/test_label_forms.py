"""Names of metrics and labels in each label form, and with a counters file."""

from dataclasses import replace

import pytest

from pipeline.base.telemetry import FAMILIES
from pipeline.exposition.naming import FORMS, PageNaming
from pipeline.exposition.options import LabelForm, PageOptions
from pipeline.exposition.renderer import INFO_FAMILIES
from pipeline.exposition.text_format import Format
from pipeline.exposition.topology_families import TOPOLOGY_FAMILIES
from pipeline.exposition.usage_metrics import USAGE_FAMILIES
from pipeline.exposition.xid_families import XID_INFO
from pipeline.fields import BOARD_LABELS, CATALOGUE, LABELS, FieldPlan, LabelRow, Row, by_name
from tests.pipeline.exposition.pages import (
    SCENES,
    context,
    families,
    of,
    parsed,
    plain_gpus,
    rendered,
)
from tests.support.nodes import Node, every_field, gpu, mig, reading

EVERY_FORM = pytest.mark.parametrize("form", FORMS)
HELD = (("namespace", "ml"), ("pod", "train-0"), ("container", "main"))
OLD = (("pod_namespace", "ml"), ("pod_name", "train-0"), ("container_name", "main"))


def row(name: str, **columns: str) -> Row:
    field = by_name(name)
    assert field is not None
    return Row(field, **columns)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("dcgm", (("UUID", gpu(0).uuid), ("Hostname", "node-1"), *HELD)),
        ("dcgm-hostname", (("UUID", gpu(0).uuid), ("hostname", "node-1"), *HELD)),
        ("dcgm-old", (("uuid", gpu(0).uuid), ("Hostname", "node-1"), *OLD)),
        ("dcgm-1x", (("uuid", gpu(0).uuid), ("Hostname", "node-1"), *OLD)),
    ],
)
def test_label_names_are_those_of_the_label_form(
    form: LabelForm, expected: tuple[tuple[str, str], ...]
) -> None:
    series = parsed(rendered(plain_gpus(), labels=form))
    same = {("gpu", "0"), ("device", "nvidia2")}
    dcgm_s = {("pci_bus_id", "00000000:01:00.0"), ("modelName", "NVIDIA H100 80GB HBM3")}
    util = "dcgm_gpu_utilization" if form == "dcgm-1x" else "DCGM_FI_DEV_GPU_UTIL"
    for metric, more in ((util, dcgm_s), ("podgpu_gpu_up", set())):
        [held] = [labels for labels, _ in of(series, metric) if labels["gpu"] == "0"]
        assert set(held.items()) == same | more | set(expected)


@EVERY_FORM
@pytest.mark.parametrize("scene", SCENES)
def test_a_page_uses_one_name_for_each_label(scene: str, form: LabelForm) -> None:
    """Otherwise its families could not be joined."""
    others = {name for names in FORMS.values() for name in (names.uuid, names.hostname)}
    others |= {name for names in FORMS.values() for name in names.holder}
    own = {FORMS[form].uuid, FORMS[form].hostname, *FORMS[form].holder}
    shown = {
        name for _, labels in parsed(rendered(SCENES[scene](), labels=form)) for name, _ in labels
    }
    assert not shown & (others - own)


@EVERY_FORM
def test_no_two_families_share_a_name(form: LabelForm) -> None:
    plan = FieldPlan.everything()
    style = PageNaming(PageOptions(labels=form), plan, "node-1")
    names = [style.metric(row) for row in plan.rows]
    names += [family.name for family in FAMILIES] + [name for name, _ in INFO_FAMILIES]
    names += [name for name, _ in (*TOPOLOGY_FAMILIES, XID_INFO)] + [
        found.metric for found in USAGE_FAMILIES
    ]
    assert len(set(names)) == len(names)


@EVERY_FORM
def test_no_attribute_has_the_name_of_a_device_label(form: LabelForm) -> None:
    attrs = {name for field in CATALOGUE for name in field.attrs}
    assert not attrs & PageNaming(PageOptions(labels=form), FieldPlan(), "node-1").fixed


@EVERY_FORM
@pytest.mark.parametrize("exposition", Format)
def test_every_field_can_be_parsed_again(form: LabelForm, exposition: Format) -> None:
    node = Node()
    devices = [gpu(0), mig(gpu(0), 1), gpu(1)]
    node.has(*devices)
    node.reads(*every_field(devices))
    snapshot = node.snapshot()
    series = parsed(rendered(snapshot, exposition, labels=form), exposition)
    style = PageNaming(PageOptions(labels=form), FieldPlan.everything(), "node-1")
    metrics = {style.metric(row) for row in FieldPlan.everything().rows}
    names = metrics | {name.removesuffix("_total") for name in metrics}
    assert sum(name in names for name, _ in series) == len(snapshot.readings)


def test_dcgm_1x_metric_names() -> None:
    series = parsed(rendered(plain_gpus(), labels="dcgm-1x"))
    assert len(of(series, "dcgm_fb_used")) == 3
    assert [value for _, value in of(series, "dcgm_fb_used")] == [1.5, 2.5, 3.5]
    assert not of(series, "DCGM_FI_DEV_FB_USED")
    assert len(of(series, "DCGM_FI_DEV_FB_TOTAL")) == 3  # dcgm-exporter 1.x has no name for it


@EVERY_FORM
def test_a_name_in_the_counters_file_overrides_the_default(form: LabelForm) -> None:
    ctx = context()
    ctx.plan = FieldPlan(
        rows=[
            row("memory_used_bytes", metric="dcgm_fb_used", type="gauge", help="Used, as asked."),
            row("energy_millijoules", metric="DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", type="gauge"),
            row("power_watts", metric="DCGM_FI_DEV_POWER_USAGE", type="counter", help="Power."),
        ]
    )
    series = parsed(rendered(plain_gpus(), ctx=ctx, labels=form))
    assert [value for _, value in of(series, "dcgm_fb_used")] == [1.5, 2.5, 3.5]
    assert "modelName" in of(series, "dcgm_fb_used")[0][0]
    for exposition, counter in ((Format.TEXT, "counter"), (Format.OPENMETRICS, "unknown")):
        page = rendered(plain_gpus(), exposition, ctx=ctx, labels=form)
        shown = {f.name: (f.type, f.documentation) for f in families(page, exposition)}
        assert shown["dcgm_fb_used"] == ("gauge", "Used, as asked.")
        assert shown["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"][0] == "gauge"
        assert shown["DCGM_FI_DEV_POWER_USAGE"] == (counter, "Power.")


def test_a_field_listed_under_podgpus_own_name_has_podgpus_unit() -> None:
    ctx = context()
    ctx.plan = FieldPlan(rows=[row("memory_used_bytes", metric="podgpu_memory_used_bytes")])
    page = rendered(plain_gpus(), ctx=ctx)
    used = of(parsed(page), "podgpu_memory_used_bytes")
    assert [value for _, value in used] == [mib * (1 << 20) for mib in (1.5, 2.5, 3.5)]
    assert "modelName" not in used[0][0]
    assert b"MiB" not in page


class TestFacts:
    """Constant texts about a board, such as its serial number."""

    ROWS = (LabelRow("DCGM_FI_DRIVER_VERSION", "driver_version"), LabelRow("serial_no", "serial"))

    def node(self) -> Node:
        known = ("brand", "NVIDIA"), ("driver_version", "580.1"), ("serial", 'a"b')
        node = Node()
        known_devices = [replace(device, facts=known) for device in (gpu(0), mig(gpu(0), 1))]
        node.has(*known_devices, gpu(1))
        node.reads(
            *(reading(gpu(at), name, 1) for at in range(2) for name in ("power_watts", "gpu_up"))
        )
        return node

    def test_a_label_row_adds_a_label_to_all_series_with_dcgm_names(self) -> None:
        ctx = context()
        ctx.plan = FieldPlan(labels=self.ROWS)
        series = parsed(rendered(self.node().snapshot(), ctx=ctx))
        shown = {
            labels["gpu"]: (labels["DCGM_FI_DRIVER_VERSION"], labels["serial_no"])
            for labels, _ in of(series, "DCGM_FI_DEV_POWER_USAGE")
        }
        assert shown == {"0": ("580.1", 'a"b'), "1": (gpu(1).driver, "")}
        assert not any("serial_no" in labels for labels, _ in of(series, "podgpu_gpu_up"))

    def test_label_rows_with_unusable_names_are_left_out(self) -> None:
        ctx = context()
        bad = ("gpu", "pod", "xid", "vgpu", "a b", "0", "", "__", "__a")
        ctx.plan = FieldPlan(labels=[LabelRow(name, "serial") for name in (*bad, "ok", "ok")])
        [(labels, _), _] = of(
            parsed(rendered(self.node().snapshot(), ctx=ctx)), "DCGM_FI_DEV_POWER_USAGE"
        )
        assert labels["ok"] == 'a"b'
        assert (labels["gpu"], labels["pod"]) == ("0", "")
        assert labels.keys().isdisjoint({"__", "__a"})

    def test_board_info_has_the_constant_texts_of_the_board(self) -> None:
        board = of(parsed(rendered(self.node().snapshot())), "podgpu_device_board_info")
        assert [labels.get("GPU_I_ID") for labels, _ in board] == [None, "1"]
        for labels, value in board:
            assert value == 1
            assert {field.name for field in BOARD_LABELS} <= labels.keys()
            assert labels.keys().isdisjoint(
                {f.name for f in LABELS} - {f.name for f in BOARD_LABELS}
            )
            assert (labels["brand"], labels["serial"]) == ("NVIDIA", 'a"b')
            assert labels["vbios_version"] == ""


@pytest.mark.parametrize(
    ("code", "text"),
    [(0, "No Error"), (79, "GPU has fallen off the bus"), (4242, "Unknown Error")],
)
@pytest.mark.parametrize("kind", [int, float])
@pytest.mark.parametrize("form", ["dcgm", "dcgm-hostname", "dcgm-old"])
def test_the_last_xid_has_labels_with_code_and_message(
    form: LabelForm, code: int, text: str, kind: type[float]
) -> None:
    """An integer and a float with the same value are the same code."""
    node = Node()
    node.has(gpu(0), gpu(1))
    node.reads(reading(gpu(0), "xid_last", kind(code)), reading(gpu(1), "xid_last", float("nan")))
    found = of(parsed(rendered(node.snapshot(), labels=form)), "DCGM_FI_DEV_XID_ERRORS")
    assert [(v, labels["err_code"], labels["err_msg"]) for labels, v in found] == [
        (code, str(code), text)
    ]
    [(labels, value)] = of(parsed(rendered(node.snapshot(), labels="dcgm-1x")), "dcgm_xid_errors")
    assert value == code
    assert "err_code" not in labels


def test_the_last_xid_has_its_labels_under_its_newer_name_too() -> None:
    node, ctx = Node(), context()
    node.has(gpu(0))
    node.reads(reading(gpu(0), "xid_last", 79))
    ctx.plan = FieldPlan(rows=[row("xid_last", metric="DCGM_FI_DEV_XID_ERROR")])
    [(labels, value)] = of(parsed(rendered(node.snapshot(), ctx=ctx)), "DCGM_FI_DEV_XID_ERROR")
    assert (value, labels["err_code"]) == (79, "79")


class TestOmittedParts:
    """Parts of the page that options leave out."""

    def test_without_containers_no_reading_names_a_holder(self) -> None:
        series = parsed(rendered(plain_gpus(), containers=False, inline=("pod_uid",)))
        holders = "podgpu_device_holder", "podgpu_pod_info"
        for name, labels in series:
            if not name.startswith(holders):
                assert not {"namespace", "pod", "container", "pod_uid"} & dict(labels).keys()
        assert len(of(series, "podgpu_device_holder_info")) == 3

    @EVERY_FORM
    def test_without_hostname_the_page_does_not_contain_it(self, form: LabelForm) -> None:
        page = rendered(SCENES["pods-and-resources"](), labels=form, hostname=False)
        assert b"node-1" not in page
        assert parsed(page)

    def test_blanks_in_the_model_name_can_be_replaced_by_dashes(self) -> None:
        page = rendered(plain_gpus(), replace_model_blanks=True)
        assert b'modelName="NVIDIA-H100-80GB-HBM3"' in page
        assert b'model="NVIDIA H100 80GB HBM3"' in page
