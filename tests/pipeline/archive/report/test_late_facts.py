"""Usage, names and workloads that a node learned late count in reports as in the node's own."""

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Final

import pytest

from pipeline.archive.object_store import ObjectStore
from pipeline.archive.report.fleet_usage import open_usage
from pipeline.ledger.reports import GroupBy, Prices, Report, Row, report_of_groups
from pipeline.ledger.schema import HOUR_NS
from tests.pipeline.archive.report.fleet import NOON, LedgerNode, summed

pytestmark = pytest.mark.slow

SPAN: Final = ((NOON - 100) * HOUR_NS, (NOON + 200) * HOUR_NS)
AMOUNTS: Final = (None, 0, 5)


@pytest.fixture
def node(tmp_path: Path) -> LedgerNode:
    """Return a node with an empty ledger, in the folder of `store` and `work`."""
    return LedgerNode("n0", tmp_path)


def reports(node: LedgerNode, store: ObjectStore, by: str) -> tuple[Report, Report]:
    """Return the report on the archive, and the node's own."""
    grouping = GroupBy.parse(by)
    with open_usage([store.location], SPAN, by=grouping) as usage:
        found = usage.report(grouping, Prices(), usage.groups(grouping))
        placed = replace(grouping, several_nodes=True)
        own = report_of_groups(usage.window, placed, Prices(), summed([node], SPAN, grouping))
    return found, own


def rows(report: Report) -> dict[object, Row]:
    by_group = {row.key.parts: replace(row, key=None) for row in report.rows if row.key}
    return by_group | {"rest": report.unattributed, "total": report.total}


def test_late_gains_of_an_hour_count_as_in_the_ledger(
    node: LedgerNode, store: ObjectStore, work: Path
) -> None:
    """Known after unknown, unknown after 0, and so on: each pair in a pod of its own."""
    pairs = list(product(AMOUNTS, repeat=4))
    for late in (False, True):
        for number, (busy, energy, late_busy, late_energy) in enumerate(pairs):
            gain = (7, late_busy, late_energy) if late else (100, busy, energy)
            who = node.subject(f"p{number}")
            node.use(NOON, who, gain, rest=gain)
            # Another hour is known, so that an unknown one makes the sum incomplete.
            node.use(NOON + 1, who, (1, 1, 1))
        node.now_ns = (NOON + 3) * HOUR_NS
        node.archive(store, work)
    for by in ("pod", "namespace", "device", "node"):
        found, own = reports(node, store, by)
        assert rows(found) == rows(own), by
    marked = [row for row in reports(node, store, "pod")[0].rows if row.busy_ns.partial]
    assert 0 < len(marked) < len(pairs)


def test_what_is_learned_days_later_applies_to_all_usage_of_the_pod(
    node: LedgerNode, store: ObjectStore, work: Path
) -> None:
    main, side = node.subject("a"), node.subject("a", "side")
    unnamed, other = node.subject("a", "", named=False), node.subject("b")
    for day in range(3):
        hour = NOON + 24 * day
        for who in (main, side, unnamed if day == 0 else main, other):
            node.use(hour, who, (10, 5, 1))
        if day == 2:
            node.describe(main, "train", {"team": "vision"})
        node.now_ns = (hour + 2) * HOUR_NS
        node.archive(store, work)
    expected = {
        "namespace": {("ml",): 120},
        "pod": {("east", "n0", "ml", "a", "u-a-n0"): 90, ("east", "n0", "ml", "b", "u-b-n0"): 30},
        "workload": {("ml", "Job", "train"): 90, ("ml", "Pod", "b"): 30},
        "label:team": {("vision",): 90, (None,): 30},
    }
    for by, groups in expected.items():
        found, own = reports(node, store, by)
        assert {row.key.parts: row.held_ns for row in found.rows if row.key} == groups
        assert rows(found) == rows(own)


def test_no_node_changes_the_groups_of_the_usage_of_others(
    node: LedgerNode, tmp_path: Path, store: ObjectStore, work: Path
) -> None:
    """The other node writes usage and facts of the same pod, and gives a name to an unnamed one."""
    other = LedgerNode("n9", tmp_path)
    pod, unnamed = node.subject("a"), replace(node.subject("b"), namespace="", pod="")
    node.use(NOON, pod, (100, 50, 10))
    node.use(NOON, unnamed, (10, 5, 1))
    node.describe(pod, "research", {"team": "red"})
    other.use(NOON, pod, (1, 0, 0))
    other.use(NOON, replace(unnamed, namespace="zz", pod="z"), (1, 0, 0))
    other.describe(pod, "zz", {"team": "zz"})
    for each in (node, other):
        each.now_ns = (NOON + 2) * HOUR_NS
        each.archive(store, work)
    expected = {
        "namespace": {("ml",): 101, (None,): 10, ("zz",): 1},
        "workload": {
            ("ml", "Job", "research"): 100,
            ("ml", "Job", "zz"): 1,
            (None, "Pod", f"uid {unnamed.uid}"): 10,
            ("zz", "Pod", "z"): 1,
        },
        "label:team": {("red",): 100, ("zz",): 1, (None,): 11},
    }
    for by, groups in expected.items():
        found = reports(node, store, by)[0]
        assert {row.key.parts: row.held_ns for row in found.rows if row.key} == groups, by
