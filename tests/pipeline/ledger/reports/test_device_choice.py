"""A report of one GPU: which names select it, and its sums."""

from dataclasses import replace
from decimal import Decimal

import pytest

from pipeline.ledger.reports import (
    DeviceChoiceError,
    GroupBy,
    Prices,
    build_report,
    choose_device,
    device_names,
)
from pipeline.model.ledger_usage import UsageWindow
from tests.pipeline.ledger.reports.windows import identity, usage_row, window

H200 = "NVIDIA H200"
H100 = "NVIDIA H100 80GB HBM3"
MIG = "MIG-0d0"
SLICE = f"{H100} 1g.10gb"


def node(*, indexed: bool = True) -> UsageWindow:
    """Return the usage of two H200, and of an H100 with two MIG instances of one profile."""
    found = window(
        [
            usage_row("GPU-aaa1", identity("a"), 3, 1, 1),
            usage_row("GPU-aaa1", None, 1, 0, 0.5),
            usage_row("GPU-aab2", identity("a"), 1, 2, 1),
            usage_row("GPU-ccc3", None, 0, None, 1),
            usage_row(f"{MIG}1", identity("lab"), 4, 1, 1),
            usage_row(f"{MIG}2", None, 4, 0, 1),
        ],
        names={
            "GPU-aaa1": H200,
            "GPU-aab2": H200,
            "GPU-ccc3": H100,
            f"{MIG}1": SLICE,
            f"{MIG}2": SLICE,
        },
    )
    place = {"GPU-aaa1": 0, "GPU-aab2": 1, "GPU-ccc3": 2}
    totals = []
    for one in found.totals:
        gpu = "GPU-ccc3" if one.device.startswith("MIG") else one.device
        totals.append(replace(one, gpu=gpu, index=place[gpu] if indexed else None))
    return replace(found, totals=tuple(totals))


@pytest.mark.parametrize(
    ("text", "devices"),
    [
        ("0", ["GPU-aaa1"]),
        ("GPU 1", ["GPU-aab2"]),
        ("gpu1", ["GPU-aab2"]),
        ("GPU 1 NVIDIA H200", ["GPU-aab2"]),
        ("GPU-aab", ["GPU-aab2"]),
        ("AAB2", ["GPU-aab2"]),
        ("2", ["GPU-ccc3", f"{MIG}1", f"{MIG}2"]),
        ("GPU-c", ["GPU-ccc3", f"{MIG}1", f"{MIG}2"]),
        (H100, ["GPU-ccc3", f"{MIG}1", f"{MIG}2"]),
        (f"{MIG}2", [f"{MIG}2"]),
    ],
)
def test_a_gpu_has_an_index_a_name_and_a_uuid(text: str, devices: list[str]) -> None:
    assert [one.device for one in choose_device(node(), text).totals] == devices


@pytest.mark.parametrize("text", ["7", "", "GPU-d", "H100", "GPU-aaa12"])
def test_an_unknown_device_is_an_error_that_lists_the_devices(text: str) -> None:
    with pytest.raises(DeviceChoiceError) as error:
        choose_device(node(), text)
    assert f"the devices are: GPU 0 {H200} (GPU-aaa1), GPU 1 {H200} (GPU-aab2)" in str(error.value)


@pytest.mark.parametrize("text", [H200, "GPU-aa", "GPU-"])
def test_a_name_of_several_gpus_is_an_error(text: str) -> None:
    with pytest.raises(DeviceChoiceError, match="fits several GPUs: give an index or a UUID"):
        choose_device(node(), text)


def test_without_indexes_the_error_says_what_to_give() -> None:
    with pytest.raises(DeviceChoiceError, match="Give the first characters of the UUID"):
        choose_device(node(indexed=False), "1")
    assert choose_device(node(indexed=False), "aab").totals[0].device == "GPU-aab2"


def test_the_report_of_a_gpu_sums_to_its_row_by_device() -> None:
    prices = Prices(Decimal("2.50"), Decimal("0.31"))
    rows = {row.key.parts[0]: row for row in build_report(node(), GroupBy("device"), prices).rows}  # type: ignore[union-attr]
    for device, row in rows.items():
        if device == "GPU-ccc3":
            continue  # has its instances with it
        total = build_report(choose_device(node(), str(device)), GroupBy("pod"), prices).total
        assert total.cost == row.cost
        assert replace(total, key=row.key) == row


def test_names_of_devices_are_unique() -> None:
    assert list(device_names(node().totals).values()) == [
        f"GPU 0 {H200}",
        f"GPU 1 {H200}",
        f"GPU 2 {H100}",
        f"GPU 2 {SLICE} ({MIG}1)",
        f"GPU 2 {SLICE} ({MIG}2)",
    ]
