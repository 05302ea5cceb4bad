"""The rows of a FOCUS export: they obey FOCUS, and their costs sum to the total of a report."""

import json
import re
from collections import Counter
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.archive.focus_rows import columns, create_focus
from pipeline.base.errors import PermanentError, TransientError
from tests.pipeline.archive.focus_rules import COLUMNS, broken
from tests.pipeline.archive.focus_world import (
    HOUR,
    PRICES,
    Rows,
    archive_of,
    export_of,
    exported,
    gpu,
    hour,
    instance,
    month_of_two_clusters,
    prices_of,
)

pytestmark = pytest.mark.slow


def of_kind(rows: list[dict[str, Any]], **wanted: object) -> list[dict[str, Any]]:
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def test_the_columns_are_those_of_focus_and_then_our_own(tmp_path: Path) -> None:
    with archive_of(tmp_path, *month_of_two_clusters()) as archive:
        create_focus(*archive, export_of())
        names = list(columns(archive.database))
    known = [rule.name for rule in COLUMNS]
    assert names[: len(known)] == known == sorted(known)
    own = names[len(known) :]
    assert own == sorted(own)
    assert all(re.fullmatch(r"x_[A-Z][A-Za-z]+", name) for name in own)


@pytest.mark.parametrize(("tz", "hourly"), [("UTC", False), ("Asia/Kolkata", True)])
def test_each_row_obeys_the_rules(tmp_path: Path, tz: str, hourly: bool) -> None:
    with archive_of(tmp_path, *month_of_two_clusters()) as archive:
        rows = exported(archive, export_of(tz=tz, hourly=hourly))
    assert {row["ChargeCategory"] for row in rows} == {"Usage", "Adjustment"}
    assert [text for row in rows for text in broken(row)] == []
    # A SKU price has one SKU, and each SKU one meter.
    skus = {(row["SkuPriceId"], row["SkuId"], row["SkuMeter"], row["SkuPriceDetails"])
            for row in rows}  # fmt: skip
    assert max(Counter(price for price, *_ in skus).values()) == 1


def test_held_free_and_unknown_time_have_rows_with_their_prices(tmp_path: Path) -> None:
    rows = Rows()
    at = hour(2026, 10, 1, 5)
    rows.hour(
        at, gpu(3), [("ml/a", HOUR // 2, HOUR // 4, 1_800_000_000)], unheld_ns=HOUR // 2,
        unknown_ns=HOUR // 8, energy_mj=3_600_000,
    )  # fmt: skip
    with archive_of(tmp_path, rows) as archive:
        found = exported(archive, export_of())
    shown = [
        (row["SkuMeter"], row["x_UsageState"], f"{row['ConsumedQuantity']:f}",
         row["ConsumedUnit"], f"{row['BilledCost'].normalize():f}", row["SubAccountName"])
        for row in found if row["ChargeCategory"] == "Usage"
    ]  # fmt: skip
    assert sorted(shown) == [
        ("Energy", "held", "0.500000000", "kWh", "0.155", "ml"),
        ("Energy", "unattributed", "0.001000000", "kWh", "0.00031", None),
        ("GPU time", "free", "0.375000000", "Hours", "0.9375", None),
        ("GPU time", "held", "0.500000000", "Hours", "1.25", "ml"),
        ("GPU time", "unknown", "0.125000000", "Hours", "0.3125", None),
    ]
    (held,) = of_kind(found, SkuMeter="GPU time", x_UsageState="held")
    assert (held["x_BusyHours"], held["x_IdleHours"]) == (Decimal("0.25"), Decimal("0.25"))
    assert (held["ResourceId"], held["ResourceName"]) == ("GPU-00000003", "node-1 GPU 3")
    assert held["ChargeDescription"] == "Time of NVIDIA H200, ml/Pod/a"


def test_a_mig_instance_is_a_resource_with_a_part_of_the_price(tmp_path: Path) -> None:
    rows = Rows()
    at = hour(2026, 10, 1, 5)
    rows.hour(at, instance(0, 1, "2g.35gb"), [("ml/a", HOUR, None, None)])
    rows.hour(at, gpu(0), [], energy_mj=3_600_000)
    with archive_of(tmp_path, rows) as archive:
        found = exported(archive, export_of())
    (held,) = of_kind(found, x_UsageState="held")
    assert (held["ResourceType"], held["ResourceName"]) == ("MIG instance", "node-1 GPU 0 2g.35gb")
    assert (held["ConsumedQuantity"], held["ConsumedUnit"]) == (1, "Hours")
    assert (held["PricingQuantity"], held["PricingUnit"]) == (Decimal("0.285714286"), "GPU-Hours")
    assert held["ListUnitPrice"] == Decimal("2.5")
    (energy,) = of_kind(found, SkuMeter="Energy")
    assert (energy["ResourceType"], energy["ResourceId"]) == ("GPU", "GPU-00000000")


def test_the_workload_and_the_labels_are_what_was_known_last(tmp_path: Path) -> None:
    rows = Rows()
    at = hour(2026, 10, 1, 5)
    rows.container(at, "ml/a", "", '{"team":"old","podgpu/node":"x"}')
    rows.hour(at, gpu(0), [("ml/a", HOUR, HOUR, None)])
    rows.container(at, "ml/a", "Job/train", '{"team":"nlp"}')
    with archive_of(tmp_path, rows) as archive:
        found = exported(archive, export_of())
    (held,) = of_kind(found, x_UsageState="held")
    assert (held["x_WorkloadKind"], held["x_WorkloadName"]) == ("Job", "train")
    assert json.loads(held["Tags"]) == {
        "team": "nlp",
        "podgpu/namespace": "ml",
        "podgpu/node": "node-1",
        "podgpu/state": "held",
        "podgpu/workload": "Job/train",
    }


def test_labels_that_are_no_json_are_left_out(tmp_path: Path) -> None:
    rows = Rows()
    at = hour(2026, 10, 1, 5)
    rows.container(at, "ml/a", "", "{")
    rows.hour(at, gpu(0), [("ml/a", HOUR, HOUR, None)])
    with archive_of(tmp_path, rows) as archive:
        (held,) = of_kind(exported(archive, export_of()), x_UsageState="held")
    assert json.loads(held["Tags"])["podgpu/workload"] == "Pod/a"


def test_a_month_in_a_time_zone_has_the_hours_that_begin_in_it(tmp_path: Path) -> None:
    rows = Rows()
    # In Berlin, October begins at 22:00 UTC, and it ends at 23:00 UTC.
    for at in (hour(2026, 9, 30, 21), hour(2026, 9, 30, 22), hour(2026, 10, 31, 22),
               hour(2026, 10, 31, 23)):  # fmt: skip
        rows.hour(at, gpu(0), [("ml/a", HOUR, None, None)])
    with archive_of(tmp_path, rows) as archive:
        found = exported(
            archive,
            export_of(hour(2026, 9, 30, 22), hour(2026, 10, 31, 23), tz="Europe/Berlin"),
        )
    assert [f"{row['ChargePeriodStart']:%m-%dT%H:%M}" for row in found] == [
        "09-30T22:00",
        "10-30T23:00",
    ]
    assert {f"{row['BillingPeriodStart']:%m-%dT%H:%M}" for row in found} == {"09-30T22:00"}


def test_a_missing_price_is_named_and_nothing_is_exported(tmp_path: Path) -> None:
    rows = Rows("lab")
    for model in ("NVIDIA L4", "NVIDIA T4"):
        rows.hour(hour(2026, 10, 1), gpu(0, model) | {"device": f"GPU-{model}"}, [], unheld_ns=HOUR)
    prices = "currency: EUR\ngpu_hour: [{model: NVIDIA T4, prices: {2026-10-02: 1}}]"
    with archive_of(tmp_path, rows) as archive, pytest.raises(PermanentError) as found:
        create_focus(*archive, export_of(prices=prices))
    assert str(found.value) == (
        "the price file has no price of an hour of NVIDIA L4 in lab from 2026-10-01 00:00 UTC, an "
        "hour of NVIDIA T4 in lab from 2026-10-01 00:00 UTC. A row of FOCUS must have a cost, so "
        "nothing is exported; add an entry, with the price 0 if it costs nothing"
    )


def test_instances_of_an_unknown_profile_are_named(tmp_path: Path) -> None:
    rows = Rows()
    at = hour(2026, 10, 1)
    rows.hour(at, instance(0, 1, ""), [("ml/a", HOUR, None, None)])
    rows.hour(at, gpu(1), [("ml/a", HOUR, None, None)])
    with archive_of(tmp_path, rows) as archive:
        (note,) = create_focus(*archive, export_of())
        found = exported(archive, export_of())
    assert "MIG instances of NVIDIA H200 with the profile (unknown) have no rows" in note
    assert [row["ResourceId"] for row in found] == ["GPU-00000001"]


def test_only_what_is_charged_has_rows(tmp_path: Path) -> None:
    rows = Rows()
    rows.hour(hour(2026, 10, 1), gpu(0), [("ml/a", HOUR, None, 3_600_000)])
    prices = "currency: EUR\nkwh: [{prices: {2026-01-01: 0.31}}]"
    with archive_of(tmp_path, rows) as archive:
        found = of_kind(exported(archive, export_of(prices=prices)), ChargeCategory="Usage")
    assert [row["SkuMeter"] for row in found] == ["Energy"]


def test_a_time_without_usage_is_refused(tmp_path: Path) -> None:
    rows = Rows()
    rows.hour(hour(2026, 9, 1), gpu(0), [], unheld_ns=HOUR)
    with archive_of(tmp_path, rows) as archive, pytest.raises(TransientError, match="no usage"):
        create_focus(*archive, export_of())


# The sum of the costs.


def exact_total(ledgers: tuple[Rows, ...], text: str) -> Fraction:
    """Return the cost of all rows, calculated without SQL and without rounding."""
    prices, total = prices_of(text), Fraction(0)
    for ledger in ledgers:
        unheld: Counter[tuple[int, str, str, Fraction, str]] = Counter()
        unknown: Counter[tuple[int, str, str, Fraction, str]] = Counter()
        for row in ledger.rows:
            if row["row"] not in ("usage", "device"):
                continue
            at = hour(*map(int, re.findall(r"\d+", row["hour"])[:4])) * HOUR
            model, cluster = row["model"], row["cluster"]
            part = Fraction(int(row["profile"][0]), 7) if row["profile"] else Fraction(1)
            key = (at, model, cluster, part, str(row["device"]))
            if row["row"] == "device":
                unknown[key] += row["unknown_ns"]
                continue
            total += (
                Fraction(prices.kwh(cluster, at) or 0) * row.get("energy_mj", 0) / 3_600_000_000
            )
            if "namespace" in row:
                price = Fraction(prices.gpu_hour("held", model, cluster, at) or 0)
                total += price * part * row["held_ns"] / HOUR
            else:
                unheld[key] += row["held_ns"]
        for (at, model, cluster, part, device), ns in unheld.items():
            lost = min(unknown[at, model, cluster, part, device], ns)
            free = Fraction(prices.gpu_hour("free", model, cluster, at) or 0)
            rest = Fraction(prices.gpu_hour("unknown", model, cluster, at) or 0)
            total += (free * (ns - lost) + rest * lost) * part / HOUR
    return total


def billed(rows: list[dict[str, Any]]) -> Decimal:
    return sum((row["BilledCost"] for row in rows), Decimal(0))


@pytest.mark.parametrize(
    ("tz", "hourly"), [("UTC", True), ("Asia/Kolkata", False), ("America/New_York", True)]
)
def test_the_billed_costs_sum_to_the_rounded_total(tmp_path: Path, tz: str, hourly: bool) -> None:
    ledgers = month_of_two_clusters()
    with archive_of(tmp_path, *ledgers) as archive:
        export = export_of(hour(2026, 9, 30), hour(2026, 11, 2), tz=tz, hourly=hourly)
        rows = exported(archive, export)
    assert billed(rows) == round(exact_total(ledgers, PRICES), 2)
    for row in of_kind(rows, ChargeCategory="Adjustment"):
        assert abs(row["BilledCost"]) < Decimal("0.0101")


amounts = st.integers(0, HOUR)
uses = st.tuples(
    st.sampled_from(["ml/a", "ml/b", "web/c"]),
    amounts,
    st.none() | amounts,
    st.none() | st.integers(0, 10**10),
)
device_hours = st.tuples(
    st.integers(hour(2026, 10, 2, 20), hour(2026, 10, 3, 4)),
    st.sampled_from([gpu(0), gpu(1, "NVIDIA L4"), instance(2, 0, "1g.18gb")]),
    st.lists(uses, max_size=3),
    amounts,
    amounts,
)


@settings(max_examples=10)
@given(
    st.lists(device_hours, min_size=1, max_size=6, unique_by=lambda each: (each[0], str(each[1]))),
    st.booleans(),
)
def test_the_sum_is_exact_for_any_usage(
    tmp_path_factory: pytest.TempPathFactory,
    drawn: list[tuple[int, Mapping[str, Any], list[Any], int, int]],
    hourly: bool,
) -> None:
    ledger = Rows()
    for at, device, users, unheld, unknown in drawn:
        ledger.hour(at, device, users, unheld_ns=unheld, unknown_ns=min(unknown, unheld))
    with archive_of(tmp_path_factory.mktemp("archive"), ledger) as archive:
        rows = exported(archive, export_of(hourly=hourly))
    assert billed(rows) == round(exact_total((ledger,), PRICES), 2)
    assert [text for row in rows for text in broken(row)] == []
    held = sum(use[1] for _, _, users, _, _ in drawn for use in users)
    times = [row for row in rows if (row["SkuMeter"], row["x_UsageState"]) == ("GPU time", "held")]
    found = sum((row["ConsumedQuantity"] for row in times), Decimal(0))
    assert abs(Fraction(found) - Fraction(held, HOUR)) <= Fraction(len(rows), 10**9)
