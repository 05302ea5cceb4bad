"""Each hour is read once, from the coarsest complete records that the server has."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.base.errors import PermanentError, TransientError
from pipeline.ledger.reports import GroupBy, PriceClass, Prices, Report, report_of_groups
from pipeline.ledger.reports.costs import State
from podgpu.cli.usage.prometheus.command import PrometheusUsage, ReportSpan, prometheus_usage
from podgpu.cli.usage.prometheus.coverage import DAY_MS, HOUR_MS
from podgpu.cli.usage.prometheus.recorded_series import HOUR_STEPS
from podgpu.cli.usage.prometheus.server_options import Server
from tests.podgpu.cli.usage.prometheus.api_server import (
    Answer,
    ApiServer,
    Asked,
    Found,
    failure,
    serving,
)
from tests.podgpu.cli.usage.prometheus.recorded_world import RECORDED, STEP_MS, Hour, World

NS = 10**6
START = 20_000 * DAY_MS
LATER = START + 1000 * DAY_MS
PRICES = Prices()


def read(
    server: ApiServer, hours: int, by: str = "namespace", now_ms: int = LATER, start_ms: int = START
) -> PrometheusUsage:
    end = start_ms + hours * HOUR_MS
    span = ReportSpan(start_ms * NS, end * NS, now_ms * NS, GroupBy.parse(by))
    return prometheus_usage(Server(server.url), span, PRICES)


def report(found: PrometheusUsage, by: str = "namespace") -> Report:
    return report_of_groups(found.window, GroupBy.parse(by), PRICES, found.usage)


def world(hours: Mapping[int, Hour], days: tuple[int, ...] = (), **more: object) -> World:
    return World(
        {START + number * HOUR_MS: hour for number, hour in hours.items()},
        frozenset(START + day * DAY_MS for day in days),
        **more,  # type: ignore[arg-type]
    )


HOURS = st.builds(
    Hour, summed=st.booleans(), steps=st.sampled_from((0, 0, 5, 11, 12, 12)), counted=st.booleans()
)


def expected(hour: Hour) -> int:
    """Return the seconds that can be read of an hour."""
    return 3600 if hour.counted or hour.steps == HOUR_STEPS else 300 * hour.steps


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    st.lists(HOURS, min_size=1, max_size=60), st.booleans(), st.sampled_from(("namespace", "pod"))
)
def test_each_hour_counts_once(hours: list[Hour], day: bool, by: str) -> None:
    days = (0,) if day and len(hours) >= 24 else ()
    if days:
        hours = [RECORDED] * 24 + hours[24:]
    made = world(dict(enumerate(hours)), days)
    total = sum(map(expected, hours))
    with serving(made.answer) as server:
        if not total:
            with pytest.raises(TransientError, match="has no usage of podgpu from 2024-10-04"):
                read(server, len(hours), by)
            return
        found = report(read(server, len(hours), by), by)
    assert found.total.accounted_ns == total * 10**9
    assert found.total.held_ns == total * 10**9 // 2
    assert (found.total.free_ns, found.total.unknown_ns) == (total * 375 * NS, total * 125 * NS)
    assert found.total.busy_ns.known == total * 10**9 * 5 // 16
    assert found.total.energy_mj.known == total * 460_000
    assert found.total.holdings is None


def levels(server: ApiServer) -> list[str]:
    """Return what held time was read from, in the order of queries."""
    found = []
    for asked in server.asked:
        if "held_seconds" in asked.promql and "unknown" not in asked.promql:
            found += [
                name
                for name in (":sum1d[", ":sum1h[", ":increase5m[", ":5m]")
                if name in asked.promql and "unless" not in asked.promql
            ]
    return [name.strip(":[]") for name in found if name]


@pytest.mark.parametrize(
    ("hours", "days", "by", "read_from"),
    [
        (dict.fromkeys(range(48), RECORDED), (0, 1), "namespace", ["sum1d"]),
        (dict.fromkeys(range(48), RECORDED), (0,), "namespace", ["sum1d", "sum1h"]),
        (dict.fromkeys(range(48), RECORDED), (), "device", ["sum1h"]),
        (dict.fromkeys(range(48), RECORDED), (0, 1), "pod", ["increase5m"] * 2),
        (dict.fromkeys(range(48), Hour(steps=12)), (), "namespace", ["increase5m"] * 2),
        (dict.fromkeys(range(12), Hour(counted=True)), (), "namespace", ["5m"] * 2),
        ({0: RECORDED, 1: Hour(False, 7, True)}, (), "namespace", ["sum1h", "5m"]),
        ({0: RECORDED, 1: Hour(False, 7, False)}, (), "namespace", ["sum1h", "increase5m"]),
    ],
)
def test_the_coarsest_complete_records_are_read(
    hours: Mapping[int, Hour], days: tuple[int, ...], by: str, read_from: list[str]
) -> None:
    with serving(world(hours, days).answer) as server:
        read(server, max(hours) + 1, by)
        assert levels(server) == read_from


@pytest.mark.parametrize(
    ("recorded", "counted", "read_from"),
    [
        (("east", "west"), ("east", "west"), "sum1h"),
        (("east",), ("east", "west"), "5m"),
        # The rules of all clusters are evaluated in one place, and the label is not in the records.
        (("",), ("east", "west"), "sum1h"),
        # The server has records only.
        (("east",), (), "sum1h"),
    ],
)
def test_a_cluster_without_rules_is_not_left_out(
    recorded: tuple[str, ...], counted: tuple[str, ...], read_from: str
) -> None:
    made = world({0: RECORDED}, recorded=recorded, counted=counted)
    with serving(made.answer) as server:
        found = read(server, 1)
        assert levels(server) == [read_from]
    named = [note for note in found.notes if "no recording rules are evaluated for" in note]
    assert bool(named) == (read_from == "5m")
    assert report(found).total.accounted_ns == 3600 * 10**9


@pytest.mark.slow
def test_a_month_needs_few_queries() -> None:
    made = world(dict.fromkeys(range(31 * 24), RECORDED), tuple(range(31)))
    with serving(made.answer) as server:
        read(server, 31 * 24)
        assert len(server.asked) < 20
        assert all(asked.start_ms is None or asked.step_ms >= HOUR_MS for asked in server.asked)


def limited(answer: Answer, most_ms: int) -> Answer:
    """Answer as a server that refuses queries for long windows."""

    def limit(asked: Asked) -> object:
        if asked.window_ms > most_ms and "held" in asked.promql:
            return failure(422, "query processing would load too many samples into memory")
        return answer(asked)

    return limit  # type: ignore[return-value]


def test_a_span_is_divided_until_the_server_accepts_it() -> None:
    made = world(dict.fromkeys(range(50), RECORDED))
    with serving(limited(made.answer, 7 * HOUR_MS)) as server:
        assert report(read(server, 50)).total.accounted_ns == 50 * 3600 * 10**9


def test_an_hour_that_is_too_much_is_an_error_with_a_fix() -> None:
    made = world({0: Hour(counted=True)})
    with serving(limited(made.answer, 1000)) as server, pytest.raises(TransientError) as caught:
        read(server, 1)
    assert "although it was about 1 h only; load podgpu's recording rules" in str(caught.value)


@pytest.mark.parametrize("minutes", [3, 6, 11, 30, 61, 64])
def test_the_hour_that_has_not_ended_is_read_up_to_now(minutes: int) -> None:
    """Only evaluations of the past are there, and the hour before is not read again."""
    now = START + HOUR_MS + minutes * 60_000
    steps = max((minutes * 60_000 - 130_000) // STEP_MS, 0)
    made = world({0: Hour(steps=12), 1: Hour(steps=min(steps, 12))})
    with serving(made.answer) as server:
        found = read(server, 2, now_ms=now)
        assert all(asked.at_ms <= now for asked in server.asked)
    assert report(found).total.accounted_ns == (3600 + 300 * min(steps, 12)) * 10**9
    assert found.window.end_ns == min(now, START + 2 * HOUR_MS) * NS


@pytest.mark.parametrize(
    ("by", "name"),
    [
        ("namespace", "ml"),
        ("pod", "ml/train-0"),
        ("workload", "ml/Job/train"),
        ("label:team", "nlp"),
        ("device", "GPU 0 NVIDIA H200"),
        ("model", "NVIDIA H200"),
        ("node", "east/node-1"),
        ("cluster", "east"),
    ],
)
@pytest.mark.parametrize(
    "names",
    [
        (),
        (("Hostname", "hostname"),),
        (
            ("UUID", "uuid"),
            *(("namespace", "pod_namespace"), ("pod", "pod_name")),
        ),
    ],
)
def test_a_group_has_its_name_in_each_label_form(
    by: str, name: str, names: tuple[tuple[str, str], ...]
) -> None:
    made = world({0: RECORDED}, names=names)
    with serving(made.answer) as server:
        found = report(read(server, 1, by), by)
        assert [row.key.name for row in found.rows if row.key] == [name]
        for old, new in names:
            asked = [one.promql for one in server.asked if "held_seconds" in one.promql]
            assert any(new in promql for promql in asked) or old == "pod"
            assert not any(f"({old}," in promql or f" {old}," in promql for promql in asked)


def test_time_that_no_container_shows_is_unknown() -> None:
    made = world({0: RECORDED})

    def without_half(asked: Asked) -> Found:
        found = made.answer(asked)
        if "namespace_" in asked.promql:
            return [(labels, value / 2) for labels, value in found]
        return found

    with serving(without_half) as server:
        found = read(server, 1)
    total = report(found).total
    assert (total.held_ns, total.unknown_ns) == (900 * 10**9, (450 + 900) * 10**9)
    assert total.accounted_ns == 3600 * 10**9
    assert total.busy_ns.known == 1125 * 10**9
    assert any(note.startswith("15.0 min were held by containers whose") for note in found.notes)


def test_busy_time_that_is_unknown_is_not_0() -> None:
    made = world({0: RECORDED})

    def unknown(asked: Asked) -> Found:
        if "namespace_unmeasured" in asked.promql:
            held = replace(asked, promql=asked.promql.replace("unmeasured", "held"))
            return [(labels, 600.0) for labels, _ in made.answer(held)]
        return made.answer(asked)

    def none(asked: Asked) -> Found:
        return [] if "namespace_busy" in asked.promql else made.answer(asked)

    with serving(unknown) as server:
        (row,) = report(read(server, 1)).rows
    assert (row.busy_ns.known, row.busy_ns.partial) == (900 * 10**9, True)
    # Idle time is that of the containers whose busy time is known.
    assert row.idle_ns.known == (1800 - 600 - 900) * 10**9
    with serving(none) as server:
        (row,) = report(read(server, 1)).rows
    assert row.busy_ns.known is None


def test_the_report_says_what_it_was_read_from() -> None:
    made = world({0: RECORDED, 1: Hour(False, 7, False), 2: Hour(counted=True), 4: RECORDED})
    with serving(made.answer) as server:
        notes = read(server, 5).notes
    assert notes[0] == (
        f"read from {server.url}: 2 h from sums of hours, 1 h from records of five minutes, 1 h "
        "from podgpu's counters; 1 h have no data"
    )
    assert "the span begins and ends up to five minutes late" in notes[1]
    assert any(
        note.startswith("5 evaluations of the recording rules are missing") for note in notes
    )


class Changing(Prices):
    """A price of 2 for an hour, and of 6 after the first hour."""

    @property
    def changes(self) -> Sequence[int]:
        return ((START + HOUR_MS) * NS,)

    def hour_price(self, one: PriceClass, state: State) -> Fraction | None:
        assert one.cluster == "east"
        return Fraction(2 if one.since_ns < self.changes[0] else 6)


def test_usage_has_the_price_of_its_time() -> None:
    made, prices = world(dict.fromkeys(range(3), RECORDED)), Changing(Decimal(1))
    span = ReportSpan(START * NS, (START + 3 * HOUR_MS) * NS, LATER * NS, GroupBy("namespace"))
    with serving(made.answer) as server:
        found = prometheus_usage(Server(server.url), span, prices)
    total = report_of_groups(found.window, span.by, prices, found.usage).total
    assert (total.cost, total.accounted_ns) == (Decimal(2 + 6 + 6), 3 * 3600 * 10**9)


def test_a_server_has_no_first_time() -> None:
    span = ReportSpan(0, 1 << 62, LATER * NS, GroupBy("namespace"))
    with pytest.raises(PermanentError, match="--since all"):
        prometheus_usage(Server("http://127.0.0.1:1"), span, PRICES)
