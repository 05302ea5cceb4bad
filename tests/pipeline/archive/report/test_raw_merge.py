"""Raw objects that are merged before a report give the same report."""

from pathlib import Path

import pytest

from pipeline.archive.report import raw_merge
from pipeline.archive.report.fleet_usage import open_usage
from pipeline.base.errors import PermanentError
from pipeline.ledger.reports import GroupBy, GroupedUsage
from tests.bench.fleet.archive_objects import write_node
from tests.bench.fleet.node_plan import DAY_NS, FIRST_DAY, plan_node

pytestmark = pytest.mark.slow

SPAN = (FIRST_DAY * DAY_NS, (FIRST_DAY + 1) * DAY_NS)


@pytest.fixture
def location(tmp_path: Path) -> Path:
    """Return an archive of one node and day, with an object for each three hours."""
    archive, ledgers = tmp_path / "archive", tmp_path / "ledgers"
    archive.mkdir()
    ledgers.mkdir()
    write_node(plan_node(0, 1, 1), 1, 3, archive, ledgers, keep=False)
    return archive


def usage_of(location: Path) -> list[GroupedUsage]:
    with open_usage([str(location)], SPAN) as usage:
        found = usage.groups(GroupBy("workload"))
    return sorted(found, key=repr)


@pytest.mark.parametrize("at_once", [1, 3, 100])
def test_a_report_does_not_depend_on_the_merge(
    location: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    expected = usage_of(location)
    assert len(expected) > 50
    monkeypatch.setattr(raw_merge, "_AT_ONCE", at_once)
    assert usage_of(location) == expected


def test_an_object_under_a_wrong_name_is_refused_before_it_is_merged(
    location: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other, *_ = sorted(location.rglob("*.parquet"))
    one.write_bytes(other.read_bytes())
    monkeypatch.setattr(raw_merge, "_AT_ONCE", 3)
    with pytest.raises(PermanentError, match=one.name):
        usage_of(location)
