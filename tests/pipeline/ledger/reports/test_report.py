"""Groups and their rows, and that the rows add up to the node's totals to the last digit."""

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.ledger.reports import GroupBy, GroupByError, Prices, Report, Row, Sum, build_report
from pipeline.model.usage_window import UsageRow
from tests.pipeline.ledger.reports.windows import HOUR, day, spent, whose, window, windows

FREE = Prices()
EVERY = [GroupBy.parse(text) for text in ("namespace", "pod", "workload", "device", "label:team")]
PRICES = [
    FREE,
    Prices(Decimal("2.50")),
    Prices(kwh=Decimal("0.31")),
    Prices(Decimal(1), Decimal(2)),
]


def made(*every: UsageRow, by: str = "pod", prices: Prices = FREE) -> Report:
    return build_report(window(every), GroupBy.parse(by), prices)


def names(found: Report) -> list[str]:
    return [row.key.name for row in found.rows if row.key is not None]


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("namespace", ["ml", "lab", "(none)"]),
        (
            "pod",
            [
                "ml/train-0",
                "ml/train-1",
                "lab/notebook-7c9d5f6b4-x2x4z",
                "lab/shell (uid u-1)",
                "lab/shell (uid u-2)",
                "ml/greedy",
                "uid u-unnamed",
            ],
        ),
        (
            "workload",
            [
                "ml/Job/train",
                "lab/Pod/notebook-7c9d5f6b4-x2x4z",
                "lab/Pod/shell",
                "ml/Deployment/greedy",
                "(none)/Pod/uid u-unnamed",
            ],
        ),
        ("device", ["GPU-1 NVIDIA H100 80GB HBM3", "GPU-0 NVIDIA H100 80GB HBM3"]),
        ("label:team", ["vision", "nlp", "(none)"]),
        ("label:tier", ["(none)"]),
    ],
)
def test_the_groups_of_a_day_those_that_held_the_most_first(by: str, expected: list[str]) -> None:
    assert names(build_report(day(), GroupBy.parse(by), FREE)) == expected


KNOWN = whose("a", "ml", owner=("Job", "j"), team="x")


@pytest.mark.parametrize(
    ("first", "second", "by", "expected"),
    [
        # Containers of a pod are one, and so are its devices.
        (KNOWN, whose("a", "ml", "side"), "pod", ["ml/a"]),
        # What is known of a pod at one place holds for all of it, in whatever order they stand.
        (whose("a", "ml", "side"), KNOWN, "workload", ["ml/Job/j"]),
        (KNOWN, whose("a", "ml", "side"), "label:team", ["x"]),
        (whose("", "", uid="u-a"), KNOWN, "namespace", ["ml"]),
        (whose("", "", uid="u-a"), KNOWN, "pod", ["ml/a"]),
        # Another uid is another pod; one whose uid nobody knows is nobody else's.
        (KNOWN, whose("a", "ml", uid="u-2"), "pod", ["ml/a (uid u-2)", "ml/a (uid u-a)"]),
        (KNOWN, whose("a", "ml", uid=""), "pod", ["ml/a (uid u-a)", "ml/a (uid unknown)"]),
        (KNOWN, whose("a", "ml", uid=""), "workload", ["ml/Job/j", "ml/Pod/a"]),
        # A name is one in its namespace alone.
        (whose("a", "ml"), whose("a", "lab", uid="u-2"), "pod", ["lab/a", "ml/a"]),
        (whose("a", "", uid="u-1"), whose("b"), "pod", ["(none)/a", "ml/b"]),
        # A label without a value is there all the same.
        (whose("a", team=""), whose("b"), "label:team", ["(empty)", "(none)"]),
    ],
)  # fmt: skip
def test_who_stands_together(first: object, second: object, by: str, expected: list[str]) -> None:
    every = [spent("GPU-0", one, 1, 1, 1) for one in (first, second)]  # type: ignore[arg-type]
    assert names(made(*every, by=by)) == expected


@pytest.mark.parametrize(
    ("text", "shown"),
    [("pod", "pod"), ("label:a.b/c_d", "label:a.b/c_d"), ("label:Team", "label:Team")],
)
def test_by_is_read_and_written(text: str, shown: str) -> None:
    assert str(GroupBy.parse(text)) == shown


@pytest.mark.parametrize(
    "text", ["", "pods", "label", "label:", "label:a b", "label:a\x1b", "Pod", f"label:{'a' * 64}"]
)
def test_by_says_what_may_be_written(text: str) -> None:
    with pytest.raises(GroupByError, match=r"^write "):
        GroupBy.parse(text)


@pytest.mark.parametrize(
    ("busy", "total", "idle"),
    [
        ((1, 2), Sum(3 * HOUR), Sum(5 * HOUR)),
        ((1, None), Sum(HOUR, partial=True), Sum(3 * HOUR, partial=True)),
        ((None, None), Sum(), Sum()),
        ((0, None), Sum(0, partial=True), Sum(4 * HOUR, partial=True)),
        ((9, 0), Sum(9 * HOUR), Sum(-HOUR)),
    ],
)
def test_unknown_is_not_0(busy: tuple[float | None, ...], total: Sum, idle: Sum) -> None:
    one = whose("a")
    [row] = made(*(spent(f"GPU-{n}", one, 4, each, 1) for n, each in enumerate(busy))).rows
    assert (row.held_ns, row.busy_ns, row.idle_ns) == (8 * HOUR, total, idle)
    assert row.partial is (total.partial or idle.partial)


def test_energy_that_no_one_knows() -> None:
    [row] = made(spent("GPU-0", whose("a"), 1, 1, None)).rows
    assert row.energy_mj == Sum()


def test_what_belongs_to_no_one_is_a_row_of_its_own() -> None:
    found = build_report(day(), EVERY[0], FREE)
    assert found.unattributed.key is None
    no_one = found.unattributed
    assert (no_one.held_ns, no_one.free_ns, no_one.unknown_ns) == (0, round(15.25 * HOUR), 0)
    assert found.unattributed.holdings == 0
    assert found.total.holdings == 8


def test_where_everything_is_someone_s_no_one_has_nothing() -> None:
    no_one = made(spent("GPU-0", whose("a"), 1, 1, 1)).unattributed
    assert (no_one.held_ns, no_one.busy_ns, no_one.energy_mj) == (0, Sum(0), Sum(0))


def _known(values: list[int | None]) -> int:
    return sum(value for value in values if value is not None)


@settings(max_examples=200)
@given(windows, st.sampled_from(EVERY), st.sampled_from(PRICES))
def test_the_rows_add_up(seen, by: GroupBy, prices: Prices) -> None:  # type: ignore[no-untyped-def]
    found = build_report(seen, by, prices)
    rows: tuple[Row, ...] = (*found.rows, found.unattributed)
    totals, total = seen.totals, found.total
    assert sum(row.held_ns for row in rows) == total.held_ns
    for name in ("free_ns", "unknown_ns"):
        assert sum(getattr(row, name) for row in rows) == getattr(total, name) >= 0
    accounted = sum(one.accounted_ns for one in totals)
    assert total.held_ns + total.free_ns + total.unknown_ns == accounted
    if by.kind == "device":
        assert {row.key.parts[0] for row in found.rows if row.key} == {t.device for t in totals}
    assert sum(row.holdings for row in rows) == total.holdings
    for name, given_out in (
        ("busy_ns", [one.busy_ns for one in totals]),
        ("energy_mj", [one.energy_mj for one in totals]),
    ):
        sums = [getattr(row, name) for row in rows]
        assert _known([each.known for each in sums]) == (getattr(total, name).known or 0)
        assert _known(given_out) == (getattr(total, name).known or 0)
        # The total says that it lacks something as soon as a row does.
        lacks = any(each.partial or each.known is None for each in sums)
        known = getattr(total, name)
        assert known.partial or known.known is None or not lacks
    assert _known([row.idle_ns.known for row in rows]) == (total.idle_ns.known or 0)
    costs = [row.cost for row in rows if row.cost is not None]
    assert sum(costs, Decimal(0)) == (total.cost or 0)


@given(windows, st.sampled_from(EVERY))
def test_every_group_is_there_once_under_a_name_of_its_own(seen, by: GroupBy) -> None:  # type: ignore[no-untyped-def]
    found = build_report(seen, by, FREE)
    assert len({row.key for row in found.rows}) == len(found.rows)
    assert all(row.key is not None and len(row.key.parts) == len(by.fields) for row in found.rows)
    assert len(set(names(found))) == len(found.rows)


@given(windows, st.sampled_from(EVERY), st.randoms(use_true_random=False))
def test_the_order_in_which_it_is_reported_does_not_matter(seen, by, random) -> None:  # type: ignore[no-untyped-def]
    shuffled = list(seen.usage)
    random.shuffle(shuffled)
    other = window(shuffled, names={one.device: one.name for one in seen.totals})
    before, after = build_report(seen, by, FREE), build_report(other, by, FREE)
    assert before.total == after.total
    assert {row.held_ns for row in before.rows} == {row.held_ns for row in after.rows}


def test_t9_each_name_keeps_what_was_had_under_it() -> None:
    """T9: the checkpoint gave b the uid of a, which had ended. a's history stays a's."""
    a, b = whose("a", "ml", uid="u1"), whose("b", "web", uid="u1")
    found = build_report(
        window([spent("GPU-0", a, 6, 1, 1), spent("GPU-0", b, 2, 1, 1)]), EVERY[0], FREE
    )
    assert {row.key.name: row.held_ns for row in found.rows if row.key} == {
        "ml": 6 * HOUR,
        "web": 2 * HOUR,
    }


def test_t9_what_a_uid_had_without_a_name_is_its_only_name_s() -> None:
    nameless, a, b = (
        whose("", "", uid="u1"),
        whose("a", "ml", uid="u1"),
        whose("b", "web", uid="u1"),
    )
    first = [spent("GPU-0", nameless, 1, 1, 1), spent("GPU-0", a, 6, 1, 1)]
    assert names(build_report(window(first), EVERY[0], FREE)) == ["ml"]
    both = [*first, spent("GPU-0", b, 2, 1, 1)]
    assert names(build_report(window(both), EVERY[0], FREE)) == ["ml", "web", "(none)"]


def test_t25_held_free_and_unknown_are_apart() -> None:
    """T25: two GPUs, one of them given away: 50 % are allocated, not 100 %."""
    seen = window([spent("GPU-0", whose("a"), 4, 1, 1), spent("GPU-1", None, 4, 0, 1)])
    found = build_report(seen, EVERY[0], FREE)
    total = found.total
    assert (total.held_ns, total.free_ns, total.unknown_ns) == (4 * HOUR, 4 * HOUR, 0)
    assert (total.allocated, total.used) == (Fraction(1, 2), Fraction(1, 8))


def test_t25_where_no_source_reports_of_owners_nothing_is_known_of_allocation() -> None:
    seen = window([spent("GPU-0", None, 4, 1, 1)])
    [one] = seen.totals
    seen = replace(seen, totals=(replace(one, unknown_ns=4 * HOUR),))
    total = build_report(seen, EVERY[0], FREE).total
    assert (total.held_ns, total.free_ns, total.unknown_ns) == (0, 0, 4 * HOUR)
    assert (total.allocated, total.used) == (None, Fraction(1, 4))


def test_t25_each_device_has_its_row() -> None:
    """T25: also one that nobody held, and a free MIG instance."""
    seen = window(
        [
            spent("GPU-0", whose("a"), 3, 1, 1),
            spent("GPU-0", None, 1, 0, 1),
            spent("GPU-1", None, 4, 1, 1),
            spent("MIG-0", None, 4, None, None),
        ]
    )
    found = build_report(seen, GroupBy.parse("device"), FREE)
    given_out = {row.key.parts[0]: row for row in found.rows if row.key}
    assert {uuid: (row.held_ns, row.free_ns) for uuid, row in given_out.items()} == {
        "GPU-0": (3 * HOUR, HOUR),
        "GPU-1": (0, 4 * HOUR),
        "MIG-0": (0, 4 * HOUR),
    }
    assert [given_out[uuid].allocated for uuid in ("GPU-0", "GPU-1")] == [Fraction(3, 4), 0]
    assert given_out["GPU-1"].used == Fraction(1, 4)
    assert found.unattributed.free_ns == 0
