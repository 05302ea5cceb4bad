"""`docs/focus.md` names each column, and its SQL has the rows that the command exports."""

import re
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pytest

from pipeline.archive.focus_rows import columns, create_focus
from tests.docs.pages import DOCS, ROOT, blocks, text_of
from tests.pipeline.archive.focus_world import (
    archive_of,
    export_of,
    exported,
    month_of_two_clusters,
)

PAGE = DOCS / "focus.md"
PRICES = """
currency: EUR
provider: Example GPU platform
gpu_hour: [{prices: {2026-01-01: 2.50}}]
kwh: [{prices: {2026-01-01: 0.31}}]
"""


@pytest.mark.slow
def test_the_table_names_each_column(tmp_path: Path) -> None:
    with archive_of(tmp_path, *month_of_two_clusters()) as archive:
        create_focus(*archive, export_of())
        names = columns(archive.database)
    table = text_of(PAGE).partition("## Columns")[2].partition("## Rounding")[0]
    cells = re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", " ".join(cells))) == sorted(names)


@pytest.mark.slow
def test_the_sql_has_the_costs_of_the_export(tmp_path: Path) -> None:
    (script,) = blocks(PAGE, "sql")
    script = script.replace(
        ".read pipeline/archive/focus.sql", (ROOT / "pipeline/archive/focus.sql").read_text()
    )
    with archive_of(tmp_path, *month_of_two_clusters()) as archive:
        costs: Counter[tuple[str, str | None, str]] = Counter()
        for row in exported(archive, export_of(prices=PRICES)):
            if row["ChargeCategory"] == "Usage":
                key = row["ServiceName"], row["SubAccountName"], row["SkuMeter"]
                costs[key] += row["BilledCost"]
        whole = " UNION ALL BY NAME ".join(archive.days.values())
        view = re.compile(r"read_parquet\([^)]*\)")
        assert view.search(script)
        found = archive.database.execute(
            "DROP VIEW focus_source;" + view.sub(lambda _: f"({whole})", script)
        )
    assert {(name, account, meter): cost for name, account, meter, cost in found} == costs
    assert sum(costs.values()) > Decimal(1)
