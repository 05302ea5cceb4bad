"""The output of `podgpu usage` in each format, for a ledger that podgpu wrote."""

import csv
import io
import json
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from pipeline.model import Instant
from podgpu.cli.usage import command
from tests.pipeline.ledger.open_ledger import moved
from tests.podgpu.cli.usage.ledgers import HOUR
from tests.podgpu.cli.usage.usage_command import run
from tests.support.nodes import START

GOLDEN = Path(__file__).resolve().parents[3] / "golden" / "usage"
BYS = ("namespace", "pod", "workload", "device", "model", "label:team")
NO_CONTAINER = ("free", "unknown", "unattributed")
PRICES = ("--price-gpu-hour", "2.50", "--price-kwh", "0.31", "--currency", "EUR")
TIMES = ("held_seconds", "free_seconds", "unknown_seconds")
FIGURES = (*TIMES, "busy_seconds", "idle_seconds", "energy_joules", "holdings", "cost")

Capsys = pytest.CaptureFixture[str]


def golden(name: str, text: str) -> None:
    file = GOLDEN / name
    if os.environ.get("PODGPU_WRITE_GOLDEN"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


@pytest.mark.parametrize("form", ["table", "csv", "json"])
@pytest.mark.parametrize("by", BYS)
def test_a_report_equals_the_golden_file(ledger: Path, capsys: Capsys, by: str, form: str) -> None:
    """`PODGPU_WRITE_GOLDEN=1` writes the files again."""
    code, out, err = run(capsys, "--ledger", ledger, "--by", by, "--format", form, *PRICES)
    assert (code, err) == (0, "")
    golden(f"{by.replace(':', '-')}.{form}", out)


@pytest.mark.parametrize("form", ["table", "csv", "json"])
def test_holdings_equal_the_golden_file(ledger: Path, capsys: Capsys, form: str) -> None:
    code, out, err = run(capsys, "--ledger", ledger, "--holdings", "--format", form)
    assert (code, err) == (0, "")
    golden(f"holdings.{form}", out)


def report(ledger: Path, capsys: Capsys, *words: str) -> Any:
    code, out, err = run(capsys, "--ledger", ledger, "--format", "json", *words)
    assert (code, err) == (0, "")
    return json.loads(out, parse_float=Decimal)


@pytest.mark.parametrize("by", BYS)
def test_the_rows_of_each_format_sum_to_the_total(ledger: Path, capsys: Capsys, by: str) -> None:
    document = report(ledger, capsys, "--by", by, *PRICES)
    rows = [*document["rows"], *(document[name] for name in NO_CONTAINER)]
    for name in FIGURES:
        assert sum(row[name] or 0 for row in rows) == document["total"][name], name
    total = document["total"]
    for names, key in ((TIMES, "accounted_seconds"), (("energy_joules",), "energy_joules")):
        assert sum(total[name] for name in names) == sum(one[key] for one in document["devices"])
    _, out, _ = run(capsys, "--ledger", ledger, "--format", "csv", "--by", by, *PRICES)
    lines = list(csv.DictReader(io.StringIO(out)))
    assert [line["row"] for line in lines[-4:]] == [*NO_CONTAINER, "total"]
    for name in FIGURES:
        sums = sum(Decimal(line[name] or 0) for line in lines[:-1])
        assert sums == Decimal(lines[-1][name]) == document["total"][name], name


def test_every_grouping_has_the_same_totals(ledger: Path, capsys: Capsys) -> None:
    documents = [report(ledger, capsys, "--by", by) for by in BYS]
    for name in ("total", *NO_CONTAINER, "devices", "gaps"):
        # Grouped by device or model, usage of no container is in the row of its device.
        of_devices = ("device", "model") if name in NO_CONTAINER else ()
        compared = [each for each in documents if each["by"] not in of_devices]
        assert all(each[name] == documents[0][name] for each in compared)


def test_the_default_grouping_is_by_namespace(ledger: Path, capsys: Capsys) -> None:
    document = report(ledger, capsys)
    assert document["by"] == "namespace"
    assert [row["namespace"] for row in document["rows"]] == ["ml", "web", "lab"]
    assert (document["currency"], document["total"]["cost"]) == (None, None)


@pytest.mark.parametrize(
    ("words", "since", "until"),
    [
        ((), "2027-01-15T08:00:00Z", "2027-01-16T07:00:00Z"),
        (("--since", "all"), "2027-01-15T08:00:00Z", "2027-01-16T07:00:00Z"),
        # Whole hours that cover the requested time.
        (("--since", "90m"), "2027-01-16T05:00:00Z", "2027-01-16T07:00:00Z"),
        (("--since", "5h", "--until", "2h"), "2027-01-16T02:00:00Z", "2027-01-16T06:00:00Z"),
        (
            ("--since", "2027-01-15T12:30", "--until", "2027-01-15T13:00"),
            "2027-01-15T12:00:00Z",
            "2027-01-15T13:00:00Z",
        ),
    ],
)
def test_the_report_shows_the_hours_that_it_covers(
    ledger: Path, capsys: Capsys, words: tuple[str, ...], since: str, until: str
) -> None:
    document = report(ledger, capsys, *words)
    assert (document["since"], document["until"]) == (since, until)


def test_all_data_includes_entries_later_than_now(
    ledger: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = report(ledger, capsys, "--since", "all")
    monkeypatch.setattr(command, "SystemClock", _ClockSetBack)
    assert report(ledger, capsys, "--since", "all") == whole
    until_now = report(ledger, capsys, "--since", "7d")
    assert (until_now["since"], until_now["until"]) == (whole["since"], "2027-01-15T10:00:00Z")


class _ClockSetBack:
    """A clock that is set back to two hours after the first usage sample."""

    def now(self) -> Instant:
        return moved(START, 2 * HOUR)


def test_gaps_are_reported(ledger: Path, capsys: Capsys) -> None:
    document = report(ledger, capsys)
    assert {gap["reason"] for gap in document["gaps"]} == {"down", "blind"}
    assert sum(one["gap_seconds"] for one in document["devices"]) == 180 + 180 + 600
    _, out, _ = run(capsys, "--ledger", ledger)
    expected = "0.3 without usage data: podgpu was down (once), blind (once)"
    assert out.splitlines()[1] == f"46.0 GPU-hours, {expected}"
    _, out, _ = run(capsys, "--ledger", ledger, "--since", "2h")
    assert out.splitlines()[1] == "240.0 GPU-minutes, all with usage data"


def test_a_label_that_no_pod_has_is_reported(ledger: Path, capsys: Capsys) -> None:
    _, out, _ = run(capsys, "--ledger", ledger, "--by", "label:cost-centre")
    assert "no pod has the label cost-centre" in out


def test_a_limited_list_of_holdings_is_reported(ledger: Path, capsys: Capsys) -> None:
    code, out, err = run(
        capsys, "--ledger", ledger, "--holdings", "--limit", "2", "--format", "json"
    )
    assert code == 0
    assert [each["pod_uid"] for each in json.loads(out)["holdings"]] == ["u-shell-2", "u-shell-1"]
    assert err == "podgpu: only the latest 2 holdings are shown; raise --limit to see more\n"


def test_a_holding_that_continues_has_no_end(ledger: Path, capsys: Capsys) -> None:
    held = report(ledger, capsys, "--holdings")["holdings"]
    assert {each["pod"]: each["end"] for each in held if each["end"] is None} == {
        "serve-5d8c7b9f64-abcde": None,
        "notebook-7c9d5f6b4-x2x4z": None,
    }


def test_the_command_does_not_change_the_ledger(ledger: Path, capsys: Capsys) -> None:
    before = {each: each.read_bytes() for each in ledger.parent.iterdir()}
    for words in ((), ("--holdings",), ("--by", "pod", "--format", "json")):
        assert run(capsys, "--ledger", ledger, *words)[0] == 0
    assert {each: each.read_bytes() for each in ledger.parent.iterdir()} == before
