"""`podgpu usage --prices`, and calendar spans: costs of a ledger's report by a price file."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.podgpu.cli.usage.usage_command import run

ONE = """
currency: EUR
gpu_hour: [{prices: {2027-01-01: 2.50}}]
kwh: [{prices: {2027-01-01: 0.31}}]
"""
CHANGED = """
currency: EUR
tz: Asia/Kolkata
gpu_hour:
  - model: "*H100*"
    prices: {2027-01-01: 2.50, 2027-01-16: 3.00}
free_gpu_hour:
  - prices: {2027-01-01: 0.5}
"""
MISSING = """
currency: EUR
gpu_hour:
  - model: NVIDIA H200
    prices: {2027-01-01: 2.50}
"""


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    return tmp_path / "prices.yaml"


def report(
    capsys: pytest.CaptureFixture[str], ledger: Path, *words: object
) -> tuple[dict[str, Any], str]:
    code, out, err = run(capsys, "--ledger", ledger, "--format", "json", *words)
    assert code == 0
    return json.loads(out, parse_float=Decimal, parse_int=Decimal), err


def test_a_file_with_one_price_has_the_costs_of_the_options(
    ledger: Path, prices: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prices.write_text(ONE)
    by_file, _ = report(capsys, ledger, "--prices", prices)
    by_options, _ = report(capsys, ledger, "--price-gpu-hour", "2.50", "--price-kwh", "0.31")
    for part in ("rows", "free", "unknown", "unattributed", "total"):
        assert by_file[part] == by_options[part]
    assert by_file["currency"] == "EUR"


def test_a_change_of_a_price_splits_the_cost(
    ledger: Path, prices: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prices.write_text(CHANGED)
    whole, _ = report(capsys, ledger, "--prices", prices)
    # The day begins at 18:30 UTC, so the first hour with the new price begins at 19:00.
    before, _ = report(capsys, ledger, "--until", "2027-01-15T19:00")
    after, _ = report(capsys, ledger, "--since", "2027-01-15T19:00")
    old, new = (one["total"]["held_seconds"] / 3600 for one in (before, after))
    free = (before["total"]["free_seconds"] + after["total"]["free_seconds"]) / 3600
    expected = old * Decimal("2.5") + new * 3 + free / 2
    assert old > 10
    assert new > 10
    assert whole["total"]["unknown_seconds"] == 0
    assert abs(whole["total"]["cost"] - expected) < Decimal("0.01")


def test_a_missing_price_is_named_once_and_its_cost_is_unknown(
    ledger: Path, prices: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prices.write_text(MISSING)
    found, err = report(capsys, ledger, "--prices", prices, "--by", "pod")
    assert err == (
        "podgpu: the price file has no price of an hour of NVIDIA H100 80GB HBM3 for a part of "
        "this time: costs do not include it; add an entry, or an earlier day to an entry\n"
    )
    assert {row["cost"] for row in found["rows"]} == {None}
    assert found["total"]["cost"] in (None, 0)


def test_a_mistake_in_the_file_is_reported_with_its_place(
    ledger: Path, prices: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prices.write_text(ONE.replace("2.50", "free"))
    code, out, err = run(capsys, "--ledger", ledger, "--prices", prices)
    assert (code, out) == (2, "")
    assert f'{prices}:3:34: gpu_hour[0].prices.2027-01-01: "free" is not a price' in err


def test_a_price_file_replaces_the_options(
    ledger: Path, prices: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, "--ledger", ledger, "--prices", prices, "--price-kwh", "1")
    assert code == 2
    assert "--prices names a file with all prices" in err


@pytest.mark.parametrize("tz", ["UTC", "Asia/Kolkata", "America/St_Johns", "Pacific/Apia"])
def test_days_have_each_hour_once(
    ledger: Path, capsys: pytest.CaptureFixture[str], tz: str
) -> None:
    whole, _ = report(capsys, ledger, "--month", "2027-01")
    held = []
    for day in ("2027-01-14", "2027-01-15", "2027-01-16", "2027-01-17"):
        code, out, _ = run(capsys, "--ledger", ledger, "--format", "json", "--day", day, "--tz", tz)
        if code == 0:
            held.append(
                json.loads(out, parse_float=Decimal, parse_int=Decimal)["total"]["held_seconds"]
            )
    assert len(held) == 2
    assert sum(held) == whole["total"]["held_seconds"]


def test_the_heading_shows_the_zone(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--day", "2027-01-16", "--tz", "Asia/Kolkata")
    code, out, _ = run(capsys, "--ledger", ledger, *words)
    assert code == 0
    expected = "gpu-node-1, 2027-01-16 00:30 to 2027-01-16 12:30 Asia/Kolkata, by namespace"
    assert out.splitlines()[0] == expected
