"""Reports by namespace and by device, which are summed without containers, equal the node's own."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from pipeline.archive.object_store import ObjectStore
from pipeline.archive.report import usage_sums
from pipeline.archive.report.fleet_usage import open_usage
from pipeline.ledger.reports import GroupBy, Prices, Report, Row, report_of_groups
from pipeline.ledger.schema import HOUR_NS
from tests.pipeline.archive.report.fleet import NOON, LedgerNode, summed

pytestmark = pytest.mark.slow

SPAN: Final = ((NOON - 100) * HOUR_NS, (NOON + 200) * HOUR_NS)
GAIN: Final = (10, 5, 1)


@pytest.fixture(autouse=True)
def _merged_each_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_sums, "_FEW_SUMS", 0)


def holds(node: LedgerNode, pod: str, hour: int, device: int = 0) -> None:
    """Write a holding that ends in an hour."""
    node.hold(pod, (hour - 1) * HOUR_NS, hour * HOUR_NS + 1, device)


def used_on_the_day_before(node: LedgerNode) -> None:
    node.use(NOON, node.subject("a"), GAIN)
    holds(node, "a", NOON + 24)


def used_on_both_days(node: LedgerNode) -> None:
    for hour in (NOON, NOON + 24):
        node.use(hour, node.subject("a"), GAIN)
    holds(node, "a", NOON + 24)


def not_used(node: LedgerNode) -> None:
    node.use(NOON, node.subject("b"), GAIN)
    holds(node, "a", NOON)


def used_on_another_device(node: LedgerNode) -> None:
    node.use(NOON, node.subject("a"), GAIN, device=1)
    holds(node, "a", NOON, device=0)


def used_by_another_container(node: LedgerNode) -> None:
    node.use(NOON, node.subject("a", "side"), GAIN)
    holds(node, "a", NOON)


@pytest.mark.parametrize(
    ("write", "holdings"),
    [
        pytest.param(used_on_the_day_before, 1, id="usage on the day before the end"),
        pytest.param(used_on_both_days, 1, id="usage on both days counts once"),
        pytest.param(not_used, 0, id="no usage"),
        pytest.param(used_on_another_device, 0, id="usage of another device"),
        pytest.param(used_by_another_container, 0, id="usage of another container of the pod"),
    ],
)
def test_a_holding_counts_if_its_container_used_its_device(
    tmp_path: Path,
    store: ObjectStore,
    work: Path,
    write: Callable[[LedgerNode], None],
    holdings: int,
) -> None:
    node = LedgerNode("n0", tmp_path)
    write(node)
    for by in ("namespace", "device"):
        assert report(node, store, work, by).total.holdings == holdings, by


def joined(node: LedgerNode) -> None:
    """Two containers of a namespace: an hour of one has a late gain without a value."""
    node.use(NOON, node.subject("a"), (100, 0, 0))
    node.use(NOON, node.subject("b"), GAIN)
    node.now_ns = (NOON + 3) * HOUR_NS


def late(node: LedgerNode) -> None:
    node.use(NOON, node.subject("a"), (7, None, None))


def late_of_another(node: LedgerNode) -> None:
    node.use(NOON, node.subject("b", "side"), (7, None, None))


@pytest.mark.parametrize(
    ("write", "idle"),
    [
        # 0 and then unknown is an unknown hour, so none of its time is idle.
        pytest.param(late, 5, id="the hour of one container"),
        pytest.param(late_of_another, 105, id="the hours of two containers"),
    ],
)
def test_an_hour_with_and_without_a_value_is_joined_by_container(
    tmp_path: Path, store: ObjectStore, work: Path, write: Callable[[LedgerNode], None], idle: int
) -> None:
    node = LedgerNode("n0", tmp_path)
    joined(node)
    node.archive(store, work)
    write(node)
    for by in ("namespace", "device"):
        total = report(node, store, work, by).total
        assert (total.idle_ns.known, total.idle_ns.partial) == (idle, True), by


def test_usage_without_a_name_is_that_of_the_pod_with_its_uid_of_another_day(
    tmp_path: Path, store: ObjectStore, work: Path
) -> None:
    node = LedgerNode("n0", tmp_path)
    node.use(NOON, node.subject("a", named=False), GAIN)
    node.use(NOON, node.subject("b", named=False), GAIN)
    node.use(NOON + 24, node.subject("a"), GAIN)
    found = report(node, store, work, "namespace")
    held = {row.key.parts: row.held_ns for row in found.rows if row.key}
    assert held == {("ml",): 20, (None,): 10}


def report(node: LedgerNode, store: ObjectStore, work: Path, by: str) -> Report:
    """Archive a node; return the report on the archive, which is that of the node."""
    node.now_ns = (NOON + 50) * HOUR_NS
    node.archive(store, work)
    grouping = GroupBy.parse(by)
    with open_usage([store.location], SPAN, by=grouping) as usage:
        found = usage.report(grouping, Prices(), usage.groups(grouping))
        placed = replace(grouping, several_nodes=True)
        own = report_of_groups(usage.window, placed, Prices(), summed([node], SPAN, grouping))
    assert rows(found) == rows(own)
    return found


def rows(found: Report) -> dict[object, Row]:
    by_group = {row.key.parts: replace(row, key=None) for row in found.rows if row.key}
    return by_group | {"rest": found.unattributed, "total": found.total}
