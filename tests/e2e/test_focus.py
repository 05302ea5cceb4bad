"""FOCUS exports, checked by the FinOps Foundation's focus-validator."""

import contextlib
import csv
import io
from pathlib import Path

import pytest

from podgpu.cli.usage.focus_csv import print_focus
from tests.e2e.focus_validator import installed, problems
from tests.pipeline.archive.focus_world import archive_of, export_of, month_of_two_clusters

pytestmark = [pytest.mark.more, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def environment() -> Path:
    return installed()


def export(folder: Path, *, hourly: bool = False) -> list[dict[str, str]]:
    with (
        archive_of(folder, *month_of_two_clusters()) as archive,
        contextlib.redirect_stdout(io.StringIO()) as out,
    ):
        assert print_focus(*archive, export_of(hourly=hourly)) == 0
    return list(csv.DictReader(io.StringIO(out.getvalue())))


@pytest.mark.parametrize("hourly", [False, True])
def test_the_validator_finds_no_problem(environment: Path, tmp_path: Path, hourly: bool) -> None:
    rows = export(tmp_path, hourly=hourly)
    assert {row["ChargeCategory"] for row in rows} == {"Usage", "Adjustment"}
    assert problems(environment, rows, tmp_path) == "Validation succeeded."


@pytest.mark.parametrize(
    ("column", "value", "rule"),
    [
        ("BilledCost", "", "BilledCost_NotNull"),
        ("BillingCurrency", "XXQ", "BillingCurrency_IsCurrencyCode"),
        ("ChargePeriodStart", "yesterday", "ChargePeriodStart_IsDateTime"),
        ("ProviderName", "", "Provider_NotNull"),
        ("ServiceCategory", "GPUs", "ServiceCategory_Enum"),
        ("SkuPriceId", "", "SkuPriceId_Nullable"),
        ("Tags", "team=nlp", "Tags_IsJSONObject"),
    ],
)
def test_the_validator_finds_what_is_wrong(
    environment: Path, tmp_path: Path, column: str, value: str, rule: str
) -> None:
    first, *rows = export(tmp_path)
    assert rule in problems(environment, [first | {column: value}, *rows], tmp_path)
