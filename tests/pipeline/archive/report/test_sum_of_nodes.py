"""A report on archives and ledger files equals the sum of the nodes' own reports, to the digit."""

from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from pipeline.archive.object_store import ObjectStore
from pipeline.archive.report.fleet_usage import open_usage
from pipeline.ledger.reports import GroupBy, GroupedUsage, Prices, Report, Row, report_of_groups
from pipeline.ledger.reports.costs import State
from pipeline.ledger.reports.grouped_usage import PriceClass
from pipeline.ledger.schema import HOUR_NS
from pipeline.model import CONTAINER_FACTS, JOB_FACTS
from tests.pipeline.archive.report.fleet import NOON, LedgerNode, compact_all, named, summed
from tests.pipeline.ledger.open_ledger import folder_in_memory
from tests.support.examples import examples

pytestmark = pytest.mark.slow

GROUPINGS = [
    GroupBy.parse(text)
    for text in (
        "namespace", "pod", "workload", "job", "user", "account", "partition", "image", "device",
        "model", "node", "cluster", "label:team", "label:a/b.c",
    )
]  # fmt: skip
CHANGE = (NOON - 1) * HOUR_NS


class ChangingPrices(Prices):
    """Prices that change at an hour, differ by cluster and by what the time was."""

    @property
    def changes(self) -> list[int]:
        return [CHANGE]

    def hour_price(self, one: PriceClass, state: State) -> Fraction | None:
        if one.cluster == "west" and state == "unknown":
            return None
        price = Fraction(7, 3) if one.since_ns >= CHANGE else Fraction(5, 2)
        return price * (1 if state == "held" else 2)


def figures(row: Row) -> Row:
    """Return a row without the name of its group, which only a report knows."""
    return replace(row, key=None)


def rows_of(report: Report) -> dict[Any, Row]:
    found = {row.key.parts: figures(row) for row in report.rows if row.key is not None}
    assert len(found) == len(report.rows), "a group has one row"
    return found | dict(zip(("free", "unknown", "rest"), report.without_container, strict=True))


# Few values, so that gains often fall into the same hour of the same container.
AMOUNT = st.integers(0, 3 * HOUR_NS)
MAYBE = st.none() | st.just(0) | AMOUNT
GAIN = st.tuples(AMOUNT, MAYBE, MAYBE)
POD = st.sampled_from(["a", "b", "c", "7", "8", "box", ""])
LABELS = st.dictionaries(
    st.sampled_from(["team", "a/b.c", *JOB_FACTS, *CONTAINER_FACTS]),
    st.sampled_from(["", "x", 'y"']),
)
USE = st.tuples(
    st.just("use"), st.integers(0, 3), POD, st.sampled_from(["main", "side"]), st.booleans(),
    GAIN, GAIN, st.integers(0, 2), st.booleans(),
)  # fmt: skip
STEP = st.tuples(
    st.integers(0, 1),
    st.one_of(
        USE,
        USE,
        USE,
        USE,
        st.tuples(st.just("describe"), POD, st.sampled_from(["", "j", "k"]), LABELS),
        st.tuples(st.just("hold"), POD, st.integers(1, 40), st.integers(1, 30)),
        st.tuples(st.just("wait"), st.integers(1, 9)),
        st.tuples(st.just("archive")),
        st.tuples(st.just("compact")),
    ),
)
SPAN = st.one_of(
    st.just((0, NOON * 2 * HOUR_NS)),
    st.tuples(st.integers(-5, 12), st.integers(1, 24)).map(
        lambda given: ((NOON + given[0]) * HOUR_NS + 1, (NOON + given[0] + given[1]) * HOUR_NS)
    ),
)


def play(nodes: list[LedgerNode], steps: Iterable[Any], store: ObjectStore, work: Path) -> None:
    for at, (what, *rest) in steps:
        if not nodes:
            return
        node = nodes[at % len(nodes)]
        match what, rest:
            case "use", [ago, pod, container, named, gain, others, device, unknown]:
                who = node.subject(pod, container, named=named) if pod else None
                hour = node.now_ns // HOUR_NS - ago
                node.use(hour, who, gain, device, others, others[0] // 2 if unknown else 0)
            case "describe", [pod, owner, labels] if pod:
                node.describe(node.subject(pod), owner, labels)
            case "hold", [pod, ago, length] if pod:
                end = node.now_ns - ago * HOUR_NS // 4
                node.hold(pod, end - length * HOUR_NS // 2, end)
            case "wait", [hours]:
                node.now_ns += hours * HOUR_NS
            case "archive", []:
                node.archive(store, work)
            case "compact", []:
                compact_all(store, work)
            case _:
                assert not rest[0], "facts and holdings of no pod"


@pytest.mark.timeout(600)
# Without shrinking, which takes minutes.
@settings(
    max_examples=examples(30),
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(st.lists(STEP, min_size=12, max_size=50), SPAN, st.booleans())
def test_a_fleet_s_report_is_the_sum_of_the_nodes_reports(
    steps: list[Any],
    span: tuple[int, int],
    with_file: bool,
) -> None:
    with folder_in_memory() as folder:
        (location := folder / "archive").mkdir()
        (work := folder / "work").mkdir()
        store = ObjectStore(str(location))
        nodes = [LedgerNode("n0", folder), LedgerNode("n1", folder, "west")]
        play(nodes, steps, store, work)
        for node in nodes:
            node.now_ns += 48 * HOUR_NS
            node.archive(store, work)
        # This node has no archive.
        alone = [LedgerNode("n2", folder)] if with_file else []
        play(alone, [step for step in steps if step[1][0] in ("use", "hold")], store, work)
        locations = [str(location), *(str(node.path) for node in alone)]
        for prices in (Prices(Decimal("2.5"), Decimal("0.31")), ChangingPrices(Decimal(1))):
            with open_usage(locations, span, changes=prices.changes) as usage:
                for by in GROUPINGS:
                    placed = replace(by, several_nodes=True)
                    own: list[GroupedUsage] = summed(nodes, span, by, prices.changes)
                    own += summed(alone, span, by, prices.changes, clusters=False)
                    own = named(own, placed, usage.window.totals)
                    expected = report_of_groups(usage.window, placed, prices, own)
                    found = usage.report(by, prices, usage.groups(by))
                    assert rows_of(found) == rows_of(expected), by
                    assert figures(found.total) == figures(expected.total)
        # A report that is only grouped in one way reads less.
        for text in ("namespace", "pod", "user", "node"):
            by = GroupBy.parse(text)
            with open_usage(locations, span, changes=[CHANGE], by=by) as usage:
                found = usage.report(by, ChangingPrices(Decimal(1)), usage.groups(by))
            own = summed(nodes, span, by, [CHANGE])
            own += summed(alone, span, by, [CHANGE], clusters=False)
            placed = replace(by, several_nodes=True)
            own = named(own, placed, usage.window.totals)
            expected = report_of_groups(usage.window, placed, ChangingPrices(Decimal(1)), own)
            assert rows_of(found) == rows_of(expected), by
        for node in (*nodes, *alone):
            node.close()
