"""`podgpu usage --format focus`: an export whose sum is the total of the report."""

import csv
import io
import json
from collections import Counter
from decimal import Decimal
from itertools import groupby
from pathlib import Path

import pytest

from pipeline.archive.database import open_database
from pipeline.archive.object_store import ObjectStore
from pipeline.archive.raw_object import put_rows
from tests.pipeline.archive.focus_world import PRICES, Rows, month_of_two_clusters
from tests.podgpu.cli.usage.usage_command import run

pytestmark = pytest.mark.slow


def write_archive(folder: Path, *ledgers: Rows) -> Path:
    """Write the rows of ledgers as an archive, each day and run of serials as an object."""
    target = folder / "archive"
    target.mkdir()
    with open_database(folder) as database:
        for ledger in ledgers:
            for _, rows in groupby(ledger.rows, key=lambda row: row["day"]):
                put_rows(ObjectStore(str(target)), database, list(rows), folder)
    return target


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return write_archive(tmp_path, *month_of_two_clusters())


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    path = tmp_path / "prices.yaml"
    path.write_text(PRICES)
    return path


def export(
    capsys: pytest.CaptureFixture[str], archive: Path, prices: Path, *words: str
) -> list[dict[str, str]]:
    focus = ("--format", "focus", "--prices", prices)
    code, out, err = run(capsys, "--from", archive, *focus, *words)
    assert (code, err) == (0, "")
    return list(csv.DictReader(io.StringIO(out)))


def billed(rows: list[dict[str, str]]) -> Decimal:
    return sum((Decimal(row["BilledCost"]) for row in rows), Decimal(0))


SPANS = [
    ("--month", "2026-10"),
    ("--month", "2026-10", "--tz", "Asia/Kolkata", "--charge-period", "hour"),
    ("--day", "2026-10-02", "--tz", "America/New_York"),
    ("--since", "2026-10-02T12:30", "--until", "2026-10-03T12:59"),
    ("--since", "all"),
    ("--month", "2026-10", "--cluster", "lab"),
]


@pytest.mark.parametrize("span", SPANS)
def test_the_billed_costs_sum_to_the_total_of_the_report(
    capsys: pytest.CaptureFixture[str],
    archive: Path,
    prices: Path,
    span: tuple[str, ...],
) -> None:
    rows = export(capsys, archive, prices, *span)
    words = ("--from", archive, "--prices", prices, "--format", "json", *span[:4])
    code, out, _ = run(capsys, *words)
    assert code == 0
    total = json.loads(out, parse_float=Decimal)["total"]
    assert total["cost"] > 0
    assert billed(rows) == total["cost"]


def test_the_costs_of_a_cluster_are_those_of_the_report_by_cluster(
    capsys: pytest.CaptureFixture[str], archive: Path, prices: Path
) -> None:
    rows = export(capsys, archive, prices, "--month", "2026-10")
    costs: Counter[str] = Counter()
    for row in rows:
        costs[row["BillingAccountId"]] += Decimal(row["BilledCost"])  # type: ignore[assignment]
    words = ("--by", "cluster", "--month", "2026-10", "--format", "json", "--prices", prices)
    _, out, _ = run(capsys, "--from", archive, *words)
    found = json.loads(out, parse_float=Decimal)["rows"]
    assert costs == {row["cluster"]: row["cost"] for row in found}


def test_the_costs_of_workloads_are_those_of_the_report(
    capsys: pytest.CaptureFixture[str], archive: Path, prices: Path
) -> None:
    """Except for the rounding of the report's rows to cents, and of quantities."""
    costs: dict[tuple[str | None, ...], Decimal] = {}
    for row in export(capsys, archive, prices, "--month", "2026-10"):
        if row["x_UsageState"] == "held":
            names = (row["SubAccountName"], row["x_WorkloadKind"], row["x_WorkloadName"])
            key = tuple(name.removeprefix("'") or None for name in names)
            costs[key] = costs.get(key, Decimal(0)) + Decimal(row["BilledCost"])
    words = ("--by", "workload", "--month", "2026-10", "--format", "json", "--prices", prices)
    _, out, _ = run(capsys, "--from", archive, *words)
    found = {
        (row["namespace"], row["owner_kind"], row["owner_name"]): row["cost"]
        for row in json.loads(out, parse_float=Decimal)["rows"]
    }
    assert found.keys() == costs.keys()
    assert len(found) == 4
    for key, cost in found.items():
        assert abs(costs[key] - cost) < Decimal("0.0101")


def test_values_have_the_formats_of_focus(
    capsys: pytest.CaptureFixture[str], archive: Path, prices: Path
) -> None:
    rows = export(capsys, archive, prices, "--month", "2026-10", "--tz", "Asia/Kolkata")
    first = rows[0]
    assert first["BillingPeriodStart"] == "2026-09-30T19:00:00Z"
    assert first["ChargePeriodEnd"] == "2026-10-01T19:00:00Z"
    assert {row["ListUnitPrice"] for row in rows} == {"2.5", "2.8", "1.15", "0", "0.31", ""}
    assert {row["InvoiceIssuerName"] for row in rows} == {"Example GPU platform"}
    # Text that a spreadsheet would evaluate gets an apostrophe in front.
    assert "'=cmd" in {row["x_WorkloadName"] for row in rows}


def test_a_ledger_file_has_its_node_as_billing_account(
    capsys: pytest.CaptureFixture[str], written: Path, tmp_path: Path
) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text("currency: EUR\ngpu_hour: [{prices: {2026-01-01: 2.50}}]")
    rows = export(capsys, written, path, "--since", "all")
    assert {(row["BillingAccountId"], row["BillingAccountType"]) for row in rows} == {
        ("gpu-node-1", "Node")
    }
    assert billed(rows) == Decimal("114.33")  # 46 hours without gaps of 16 minutes


def test_a_missing_price_is_named(
    capsys: pytest.CaptureFixture[str], archive: Path, tmp_path: Path
) -> None:
    path = tmp_path / "one.yaml"
    path.write_text("currency: EUR\ngpu_hour: [{model: NVIDIA H200, prices: {2026-01-01: 1}}]")
    words = ("--from", archive, "--month", "2026-10", "--prices", path, "--format", "focus")
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, "")
    assert "the price file has no price of an hour of NVIDIA L4 in lab from 2026-10-01" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "--format focus needs --from"),
        (("--from", "x"), "--format focus needs --prices"),
        (("--from", "x", "--prices", "y", "--by", "pod"), "--format focus has fixed columns"),
    ],
)
def test_what_an_export_needs_is_said(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
) -> None:
    code, _, err = run(capsys, "--format", "focus", *words)
    assert code == 2
    assert message in err
