"""Output for people and programs is harmless and fits, whatever the ledger contains."""

import csv
import io
import json
import unicodedata
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.ledger.queries import HoldingRecord
from pipeline.ledger.reports import GroupBy, Prices, build_report
from pipeline.model.ledger_usage import Gap, UsageWindow
from podgpu.cli.terminal_text import Column, laid_out
from podgpu.cli.terminal_text import width as display_width
from podgpu.cli.usage.report_csv_json import (
    csv_text,
    holdings_csv,
    holdings_document,
    json_text,
    report_csv,
    report_document,
)
from podgpu.cli.usage.report_table import holding_lines, report_lines
from tests.pipeline.ledger.reports.windows import (
    GPUS,
    HOUR,
    START,
    day,
    identity,
    usage_row,
    window,
    windows,
)
from tests.support.examples import examples

GROUPINGS = [
    GroupBy.parse(text) for text in ("namespace", "pod", "workload", "device", "label:team")
]
PRICED = Prices(Decimal("2.50"), Decimal("0.31"), "EUR")
HOSTILE = '=cmd|"/c x"!A1\x1b[2J\n\r\t\x9b\u202e,";\N{HANGUL SYLLABLE GAG}\U000e0001'
WIDTHS = st.integers(1, 200)


def hostile(text: str = HOSTILE) -> UsageWindow:
    pod = identity(text, text, uid=text, owner=(text, text), team=text)
    gap = Gap(GPUS[0], START, START + HOUR, text)
    rows = [usage_row(GPUS[0], pod, 1, 1, 1), usage_row(GPUS[0], None, 1, None, None)]
    return window(rows, names={GPUS[0]: text}, gaps=[gap], node=text)


def held(text: str = "a") -> HoldingRecord:
    pod = identity(text, text, text, uid=text, owner=(text, text))
    xids = ((31, 2), (79, 1))
    nothing = (None,) * 6
    return HoldingRecord(text, pod, START, None, START + 1, text, text, HOUR, 1, 1, *nothing, xids)


def harmless(text: str) -> bool:
    return all(c == "\n" or c.isprintable() for c in text)


@pytest.mark.parametrize("by", GROUPINGS, ids=str)
def test_control_characters_are_removed(by: GroupBy) -> None:
    found = build_report(hostile(), by, PRICED)
    texts = ["\n".join(report_lines(found, width)) for width in (0, 80)]
    assert all(map(harmless, [*texts, report_csv(found), json_text(report_document(found))]))
    rows = [held(HOSTILE)]
    texts = ["\n".join(holding_lines(hostile(), rows, width)) for width in (0, 80)]
    holdings_json = json_text(holdings_document(hostile(), rows))
    assert all(map(harmless, [*texts, holdings_csv(hostile(), rows), holdings_json]))


def test_json_contains_every_character() -> None:
    found = json.loads(json_text(report_document(build_report(hostile(), GROUPINGS[2], PRICED))))
    assert (
        found["rows"][0] | {"namespace": HOSTILE, "owner_kind": HOSTILE, "owner_name": HOSTILE}
        == (found["rows"][0])
    )
    assert found["node"] == HOSTILE


def test_half_a_surrogate_pair_is_replaced_in_json() -> None:
    assert json.loads(json_text({"a": ["x\ud800y"]})) == {"a": ["x?y"]}


@pytest.mark.parametrize("first", ["=", "+", "-", "@", "\t", "\r"])
def test_names_that_look_like_formulas_are_quoted_in_csv(first: str) -> None:
    text = csv_text(["name", "n"], [[f"{first}1+1", Decimal("-1.5")], ["a=b", -2]])
    rows = list(csv.reader(io.StringIO(text)))
    assert rows[1][0].startswith("'")
    assert rows[1][1] == "-1.5", "a number stays a number"
    assert rows[2] == ["a=b", "-2"]


@settings(max_examples=examples(60), deadline=None)
@given(st.text(max_size=12), st.sampled_from(GROUPINGS))
def test_csv_is_read_back_with_any_names(text: str, by: GroupBy) -> None:
    rows = list(csv.reader(io.StringIO(report_csv(build_report(hostile(text), by, PRICED)))))
    assert {len(row) for row in rows} == {len(rows[0])}
    kinds = ["group", "free", "unknown", "unattributed", "total"]
    assert [row[0] for row in rows] == ["row", *kinds]


@settings(max_examples=examples(100), deadline=None)
@given(windows, st.sampled_from(GROUPINGS), st.sampled_from([Prices(), PRICED]), WIDTHS)
def test_any_report_can_be_shown(
    usage_window: UsageWindow, by: GroupBy, prices: Prices, width: int
) -> None:
    found = build_report(usage_window, by, prices)
    lines = report_lines(found, width)
    assert len(lines) >= len(found.rows) + 4
    assert lines == [line.rstrip() for line in lines]
    json.loads(json_text(report_document(found)))


@settings(max_examples=examples(60), deadline=None)
@given(st.text(min_size=1, max_size=60), st.integers(80, 200))
def test_a_report_fits_its_width_with_any_names(text: str, width: int) -> None:
    usage_window = replace(hostile(text), node="gpu-node-1", gaps=())
    for by in GROUPINGS:
        lines = report_lines(build_report(usage_window, by, PRICED), width)
        assert max(map(display_width, lines)) <= width


def test_a_report_of_a_day_fits_80_columns_and_shows_both_ends_of_a_name() -> None:
    lines = report_lines(build_report(day(), GROUPINGS[2], PRICED), 80)
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("lab/P") and "~" in line and "x4z " in line for line in lines)
    assert "FREE MIN" in lines[lines.index("") + 1]
    for width in (20, 30, 40, 60):
        heading = next(
            line
            for line in report_lines(build_report(day(), GROUPINGS[2], PRICED), width)
            if "HELD MIN" in line
        )
        assert "KWH" in heading, "requested columns are always shown"
        assert "HOLDINGS" not in heading


def test_names_are_not_shortened_without_a_terminal() -> None:
    lines = report_lines(build_report(day(), GROUPINGS[2], PRICED), 0)
    assert any("lab/Pod/notebook-7c9d5f6b4-x2x4z " in line for line in lines)


def test_decimal_points_are_aligned() -> None:
    lines = laid_out(
        [Column("A", name=True), Column("B")], [["x", "12.5"], ["y", "3.5*"], ["z", ""]], 0
    )
    assert lines == ["A     B", "x  12.5", "y   3.5*", "z"]


def test_a_wide_character_takes_two_columns() -> None:
    assert unicodedata.east_asian_width("\N{HANGUL SYLLABLE GAG}") == "W"
    name = "\N{HANGUL SYLLABLE GAG}" * 30
    lines = laid_out([Column("A", name=True), Column("B")], [[name, "1"], ["y", "2"]], 40)
    assert {display_width(line) for line in lines} <= {40, 39}


def test_the_error_of_busy_time_has_a_column_where_devices_were_shared() -> None:
    """It is the first column that is omitted, and missing without a shared device."""
    rows = [
        usage_row("GPU-0", identity("a"), 12, 6, 1, contest=(600, 0.1)),
        usage_row("GPU-0", identity("b"), 12, 6, 1, contest=(0, 0)),
        usage_row("GPU-1", identity("c"), 12, 6, 1),
        usage_row("GPU-1", None, 12, 1, 1),
    ]
    by = GroupBy("pod")
    shared = build_report(window(rows), by, Prices())
    shown = [line.split() for line in report_lines(shared, 0)]
    place = next(at for at, line in enumerate(shown) if line[:1] == ["POD"])
    headings = " ".join(shown[place])
    assert "BUSY H ± H IDLE H" in headings
    # The bound of 600 contested hours is 0.365 h; that of old usage is unknown.
    assert [line[5] for line in shown[place + 1 : place + 3]] == ["0.5", "0.0"]
    narrow = " ".join(report_lines(shared, 88))
    assert "± H" not in narrow
    assert "HOLDINGS" in narrow
    alone = build_report(window(rows[1:]), by, Prices())
    assert not any("±" in line for line in report_lines(alone, 0))
