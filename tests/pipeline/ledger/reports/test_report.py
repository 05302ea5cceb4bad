"""Groups and their rows, and that the rows sum exactly to the totals of the node."""

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.ledger.reports import GroupBy, GroupByError, Prices, Report, Row, Sum, build_report
from pipeline.model.ledger_usage import UsageRow
from tests.pipeline.ledger.reports.windows import HOUR, day, identity, usage_row, window, windows
from tests.support.examples import examples

NO_PRICES = Prices()
GROUPINGS = [
    GroupBy.parse(text)
    for text in ("namespace", "pod", "workload", "device", "model", "label:team")
]
PRICES = [
    NO_PRICES,
    Prices(Decimal("2.50")),
    Prices(kwh=Decimal("0.31")),
    Prices(Decimal(1), Decimal(2)),
]


def report_of(*rows: UsageRow, by: str = "pod", prices: Prices = NO_PRICES) -> Report:
    return build_report(window(rows), GroupBy.parse(by), prices)


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
        ("device", ["GPU-0 NVIDIA H100 80GB HBM3", "GPU-1 NVIDIA H100 80GB HBM3"]),
        ("model", ["NVIDIA H100 80GB HBM3"]),
        ("label:team", ["vision", "nlp", "(none)"]),
        ("label:tier", ["(none)"]),
    ],
)
def test_the_groups_of_a_day_are_sorted_by_held_time_and_devices_by_index(
    by: str, expected: list[str]
) -> None:
    assert names(build_report(day(), GroupBy.parse(by), NO_PRICES)) == expected


KNOWN = identity("a", "ml", owner=("Job", "j"), team="x")


@pytest.mark.parametrize(
    ("first", "second", "by", "expected"),
    [
        # Containers of a pod are one row, and so are its devices.
        (KNOWN, identity("a", "ml", "side"), "pod", ["ml/a"]),
        # What one row shows about a pod is valid for all its rows, in any order.
        (identity("a", "ml", "side"), KNOWN, "workload", ["ml/Job/j"]),
        (KNOWN, identity("a", "ml", "side"), "label:team", ["x"]),
        (identity("", "", uid="u-a"), KNOWN, "namespace", ["ml"]),
        (identity("", "", uid="u-a"), KNOWN, "pod", ["ml/a"]),
        # Another UID is another pod; a pod of unknown UID is not merged with another.
        (KNOWN, identity("a", "ml", uid="u-2"), "pod", ["ml/a (uid u-2)", "ml/a (uid u-a)"]),
        (KNOWN, identity("a", "ml", uid=""), "pod", ["ml/a (uid u-a)", "ml/a (uid unknown)"]),
        (KNOWN, identity("a", "ml", uid=""), "workload", ["ml/Job/j", "ml/Pod/a"]),
        # A name is unique only within its namespace.
        (identity("a", "ml"), identity("a", "lab", uid="u-2"), "pod", ["lab/a", "ml/a"]),
        (identity("a", "", uid="u-1"), identity("b"), "pod", ["(none)/a", "ml/b"]),
        # A label with an empty value is not a missing label.
        (identity("a", team=""), identity("b"), "label:team", ["(empty)", "(none)"]),
    ],
)  # fmt: skip
def test_rows_of_the_same_pod_or_workload_are_grouped(
    first: object, second: object, by: str, expected: list[str]
) -> None:
    rows = [usage_row("GPU-0", one, 1, 1, 1) for one in (first, second)]  # type: ignore[arg-type]
    assert names(report_of(*rows, by=by)) == expected


@pytest.mark.parametrize(
    ("text", "shown"),
    [("pod", "pod"), ("label:a.b/c_d", "label:a.b/c_d"), ("label:Team", "label:Team")],
)
def test_a_grouping_is_parsed_and_formatted(text: str, shown: str) -> None:
    assert str(GroupBy.parse(text)) == shown


@pytest.mark.parametrize(
    "text", ["", "pods", "label", "label:", "label:a b", "label:a\x1b", "Pod", f"label:{'a' * 64}"]
)
def test_an_invalid_grouping_is_refused_with_the_valid_ones(text: str) -> None:
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
def test_an_unknown_sum_is_not_0(
    busy: tuple[float | None, ...], total: Sum[int], idle: Sum[int]
) -> None:
    one = identity("a")
    [row] = report_of(*(usage_row(f"GPU-{n}", one, 4, each, 1) for n, each in enumerate(busy))).rows
    assert (row.held_ns, row.busy_ns, row.idle_ns) == (8 * HOUR, total, idle)
    assert row.partial is (total.partial or idle.partial)


def test_unknown_energy_stays_unknown() -> None:
    [row] = report_of(usage_row("GPU-0", identity("a"), 1, 1, None)).rows
    assert row.energy_mj == Sum()


def test_unattributed_usage_has_its_own_row() -> None:
    found = build_report(day(), GROUPINGS[0], NO_PRICES)
    assert found.unattributed.key is None
    times = [(row.held_ns, row.free_ns, row.unknown_ns) for row in found.without_container]
    assert times == [(0, round(15.25 * HOUR), 0), (0, 0, 0), (0, 0, 0)]
    amounts = [(row.busy_ns, row.energy_mj, row.holdings) for row in found.without_container]
    nothing = (Sum(0), Sum(0), 0)
    rest = Sum(round(0.6 * HOUR)), Sum(round(2.75 * 3_600_000_000)), 0
    assert amounts == [nothing, nothing, rest]
    assert found.total.holdings == 8


def test_the_unattributed_row_is_0_if_all_usage_is_attributed() -> None:
    no_one = report_of(usage_row("GPU-0", identity("a"), 1, 1, 1)).unattributed
    assert (no_one.held_ns, no_one.busy_ns, no_one.energy_mj) == (0, Sum(0), Sum(0))


def _known(values: list[int | None]) -> int:
    return sum(value for value in values if value is not None)


@settings(max_examples=examples(200))
@given(windows, st.sampled_from(GROUPINGS), st.sampled_from(PRICES))
def test_rows_sum_to_the_totals(usage, by: GroupBy, prices: Prices) -> None:  # type: ignore[no-untyped-def]
    found = build_report(usage, by, prices)
    rows: tuple[Row, ...] = (*found.rows, *found.without_container)
    totals, total = usage.totals, found.total
    assert sum(row.held_ns for row in rows) == total.held_ns
    for name in ("free_ns", "unknown_ns"):
        assert sum(getattr(row, name) for row in rows) == getattr(total, name) >= 0
    accounted = sum(one.accounted_ns for one in totals)
    assert total.held_ns + total.free_ns + total.unknown_ns == accounted
    if by.kind == "device":
        assert {row.key.parts[0] for row in found.rows if row.key} == {t.device for t in totals}
    assert sum(row.holdings or 0 for row in rows) == total.holdings
    for name, expected in (
        ("busy_ns", [one.busy_ns for one in totals]),
        ("energy_mj", [one.energy_mj for one in totals]),
    ):
        sums = [getattr(row, name) for row in rows]
        assert _known([each.known for each in sums]) == (getattr(total, name).known or 0)
        assert _known(expected) == (getattr(total, name).known or 0)
        # The total is marked as partial if a row is. The row of a device without any time, as that
        # of a GPU with MIG instances, lacks no busy time.
        lacks = any(
            each.partial or each.known is None
            for row, each in zip(rows, sums, strict=True)
            if name != "busy_ns" or row.accounted_ns or not by.is_of_devices
        )
        known = getattr(total, name)
        assert known.partial or known.known is None or not lacks
    assert _known([row.idle_ns.known for row in rows]) == (total.idle_ns.known or 0)
    costs = [row.cost for row in rows if row.cost is not None]
    assert sum(costs, Decimal(0)) == (total.cost or 0)


@given(windows, st.sampled_from(GROUPINGS))
def test_every_group_has_one_row_with_a_unique_name(usage, by: GroupBy) -> None:  # type: ignore[no-untyped-def]
    found = build_report(usage, by, NO_PRICES)
    assert len({row.key for row in found.rows}) == len(found.rows)
    assert all(row.key is not None and len(row.key.parts) == len(by.fields) for row in found.rows)
    assert len(set(names(found))) == len(found.rows)


@given(windows, st.sampled_from(GROUPINGS), st.randoms(use_true_random=False))
def test_the_order_of_the_window_does_not_matter(usage, by, random) -> None:  # type: ignore[no-untyped-def]
    shuffled = list(usage.usage)
    random.shuffle(shuffled)
    other = window(shuffled, names={one.device: one.name for one in usage.totals})
    before, after = build_report(usage, by, NO_PRICES), build_report(other, by, NO_PRICES)
    assert before.total == after.total
    assert {row.held_ns for row in before.rows} == {row.held_ns for row in after.rows}


def test_t9_two_names_with_the_same_uid_keep_their_own_usage() -> None:
    """T9: the checkpoint gave b the UID of a, which had ended. a keeps its history."""
    a, b = identity("a", "ml", uid="u1"), identity("b", "web", uid="u1")
    found = build_report(
        window([usage_row("GPU-0", a, 6, 1, 1), usage_row("GPU-0", b, 2, 1, 1)]),
        GROUPINGS[0],
        NO_PRICES,
    )
    assert {row.key.name: row.held_ns for row in found.rows if row.key} == {
        "ml": 6 * HOUR,
        "web": 2 * HOUR,
    }


def test_t9_usage_of_a_uid_without_name_belongs_to_the_only_name_of_that_uid() -> None:
    nameless, a, b = (
        identity("", "", uid="u1"),
        identity("a", "ml", uid="u1"),
        identity("b", "web", uid="u1"),
    )
    first = [usage_row("GPU-0", nameless, 1, 1, 1), usage_row("GPU-0", a, 6, 1, 1)]
    assert names(build_report(window(first), GROUPINGS[0], NO_PRICES)) == ["ml"]
    both = [*first, usage_row("GPU-0", b, 2, 1, 1)]
    assert names(build_report(window(both), GROUPINGS[0], NO_PRICES)) == ["ml", "web", "(none)"]


def test_t25_held_free_and_unknown_time_are_separate() -> None:
    """T25: two GPUs, one of them held: 50 % are allocated, not 100 %."""
    usage = window([usage_row("GPU-0", identity("a"), 4, 1, 1), usage_row("GPU-1", None, 4, 0, 1)])
    found = build_report(usage, GROUPINGS[0], NO_PRICES)
    total = found.total
    assert (total.held_ns, total.free_ns, total.unknown_ns) == (4 * HOUR, 4 * HOUR, 0)
    assert (total.allocated, total.used) == (Fraction(1, 2), Fraction(1, 8))


def test_t25_allocation_is_unknown_if_no_source_reports_holders() -> None:
    usage = window([usage_row("GPU-0", None, 4, 1, 1)])
    [one] = usage.totals
    usage = replace(usage, totals=(replace(one, unknown_ns=4 * HOUR),))
    total = build_report(usage, GROUPINGS[0], NO_PRICES).total
    assert (total.held_ns, total.free_ns, total.unknown_ns) == (0, 0, 4 * HOUR)
    assert (total.allocated, total.used) == (None, Fraction(1, 4))


def test_t25_every_device_has_a_row() -> None:
    """T25: a GPU that no container held, and a free MIG instance, too."""
    usage = window(
        [
            usage_row("GPU-0", identity("a"), 3, 1, 1),
            usage_row("GPU-0", None, 1, 0, 1),
            usage_row("GPU-1", None, 4, 1, 1),
            usage_row("MIG-0", None, 4, None, None),
        ]
    )
    found = build_report(usage, GroupBy.parse("device"), NO_PRICES)
    expected = {row.key.parts[0]: row for row in found.rows if row.key}
    assert {uuid: (row.held_ns, row.free_ns) for uuid, row in expected.items()} == {
        "GPU-0": (3 * HOUR, HOUR),
        "GPU-1": (0, 4 * HOUR),
        "MIG-0": (0, 4 * HOUR),
    }
    assert [expected[uuid].allocated for uuid in ("GPU-0", "GPU-1")] == [Fraction(3, 4), 0]
    assert expected["GPU-1"].used == Fraction(1, 4)
    assert [row.free_ns for row in found.without_container] == [0, 0, 0]


def test_a_gpu_with_instances_has_only_energy_which_leaves_no_sum_incomplete() -> None:
    instance = usage_row("MIG-0", identity("lab"), 10, 4, 1)
    rest = usage_row("MIG-0", None, 14, 0, 1)
    gpu = usage_row("GPU-0", None, 0, None, 3)
    found = report_of(instance, rest, gpu)
    assert found.total.busy_ns == Sum(4 * HOUR)
    assert found.total.idle_ns == Sum(6 * HOUR)
    assert found.total.energy_mj == Sum(18_000_000_000)
    by_device = {
        row.key.name: row for row in report_of(instance, rest, gpu, by="device").rows if row.key
    }
    (own,) = [row for name, row in by_device.items() if name.startswith("GPU-0")]
    assert own.busy_ns == Sum(), "it has no busy time of its own"


def test_unknown_busy_time_is_not_0() -> None:
    """Only a GPU without any counted time, whose MIG instances have it, is left out of the sum."""
    known = usage_row("GPU-1", identity("serve-0"), 10, 4, 1)
    unread = (
        usage_row("GPU-0", identity("train-0"), 10, None, 1),
        usage_row("GPU-0", None, 0, None, 0),
    )
    (alone, both) = (report_of(*unread), report_of(*unread, known))
    assert alone.unattributed.busy_ns == alone.total.busy_ns == Sum(None)
    assert both.total.busy_ns == Sum(4 * HOUR, partial=True)
    instances = (usage_row("GPU-0", None, 0, None, 2), known)
    assert report_of(*instances).total.busy_ns == Sum(4 * HOUR)


def test_the_error_of_busy_time_is_that_of_the_sum_and_devices_have_none() -> None:
    """In hours: with 1800 hours of contested time, two standard errors are 0.632 hours."""
    known, more = (
        usage_row("GPU-0", identity("a"), 9, 9, 1, contest=(h, 0.1)) for h in (600, 1200)
    )
    old = usage_row("GPU-1", identity("b"), 9, 1, 1)
    alone = usage_row("GPU-1", identity("c"), 9, 1, 1, contest=(0, 0))
    idle = usage_row("GPU-1", identity("d"), 9, None, 1)
    unattributed = usage_row("GPU-0", None, 0, 1, 1)
    found = window([known, replace(more, device="GPU-1"), old, alone, idle, unattributed])

    def errors(by: GroupBy) -> dict[str, float | None]:
        report = build_report(found, by, Prices())
        rows = {row.key.name: row.busy_error_ns for row in report.rows if row.key is not None}
        rows |= {"unattributed": report.unattributed.busy_error_ns}
        rows |= {"free": report.free.busy_error_ns, "total": report.total.busy_error_ns}
        return {key: None if ns is None else round(ns / HOUR, 3) for key, ns in rows.items()}

    nothing = {"unattributed": None, "free": None, "total": 0}
    assert errors(GroupBy("pod")) == {
        "ml/a": 0.832, "ml/b": None, "ml/c": 0, "ml/d": None, **nothing
    }  # fmt: skip
    assert errors(GroupBy("namespace")) == {"ml": None, **nothing}
    assert set(errors(GroupBy("device")).values()) == {0, None}
    assert None not in [
        row.busy_error_ns for row in build_report(found, GroupBy("device"), Prices()).rows
    ]
