"""The graphs of the page, and what it says about problems and the use of each container."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.model import XidReport, XidsReported
from pipeline.status_page.display_text import short_uuid
from pipeline.status_page.document_builder import status_of
from pipeline.status_page.html.device_table import gpus
from pipeline.status_page.html.graphs import line_graph
from pipeline.status_page.html.problem_section import MOST, problem_section
from pipeline.status_page.last_hour import POINTS
from pipeline.status_page.recent_past import RecentPast
from pipeline.status_page.status_document import GpuStatus, StatusDocument
from pipeline.status_page.use_format import ProblemStatus, UseStatus
from tests.pipeline.status_page.html_reader import page, read, table
from tests.pipeline.status_page.scenes import report_claims, started_node, status_input, two_gpus
from tests.pipeline.status_page.test_container_use import account, shown
from tests.support.examples import examples
from tests.support.nodes import at, gpu, kubelet_claim, mig, reading, uuid_of
from tests.support.usage import holding, used

GIB = 1 << 30
SOME = datetime(2027, 1, 15, tzinfo=UTC)


def drawn(values: list[float | None], top: float | None = 100) -> str:
    graph = read(line_graph(values, POINTS, top, "u", lambda one: f"{one:.0f} %"))
    return graph.one("path").attributes["d"] or ""


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ([0.0, 100.0], "M118,23 119,1"),
        ([50.0], "M119,12h1"),
        ([0.0, None, 100.0, 100.0], "M116,23h1M118,1 119,1"),
        ([None, None, 0.0], "M119,23h1"),
    ],
)
def test_the_right_edge_is_the_present_and_gaps_stay_open(
    values: list[float | None], path: str
) -> None:
    assert drawn(values) == path


def test_without_a_value_there_is_no_graph() -> None:
    assert line_graph([None, None], 10, 100, "u", str) == line_graph([], 10, 100, "u", str) == ""


@pytest.mark.parametrize(
    ("points", "steps", "time"), [(1, 10, "5 min"), (40, 40, "20 min"), (POINTS + 9, POINTS, "1 h")]
)
def test_the_graphs_of_all_gpus_are_as_wide_as_the_longest(
    points: int, steps: int, time: str
) -> None:
    node, past = started_node(), RecentPast()
    node.has(gpu(0), gpu(1))
    for step in range(points):
        node.seconds = step * 30
        cards = (gpu(0), gpu(1)) if step == points - 1 else (gpu(0),)
        made = (reading(card, "power_watts", 70, when=at(node.seconds)) for card in cards)
        node.reads(*made)
        past.add(node.snapshot())
    status = status_of(status_input(node, now=at(node.seconds), past=past.known()))
    found = read(page(status, ()))
    widths = [each.attributes["viewbox"] for each in found.all("svg", class_="hour")]
    assert widths == [f"0 0 {steps} 24"] * 2
    assert f"The graphs show the last {time}." in found.text


def test_screen_readers_get_the_range() -> None:
    graph = read(line_graph([5.0, None, 93.0], 10, 100, "u", lambda one: f"{one:.0f} %")).one("svg")
    assert graph.attributes["role"] == "img"
    assert graph.attributes["aria-label"] == "from 5 % to 93 %"


@settings(deadline=None, max_examples=examples(100))
@given(
    st.lists(st.none() | st.floats(-1e18, 1e18), min_size=1, max_size=POINTS),
    st.none() | st.floats(-1e18, 1e18),
)
def test_every_point_is_in_the_graph(values: list[float | None], top: float | None) -> None:
    if all(value is None for value in values):
        return
    on_lines: set[int] = set()
    for run in drawn(values, top).split("M")[1:]:
        points = [(int(x), int(y)) for x, y in re.findall(r"(-?\d+),(-?\d+)", run)]
        assert all(0 <= x < POINTS and 0 <= y < 24 for x, y in points)
        on_lines |= set(range(points[0][0], points[-1][0] + 1))
        # Only points in the middle of a horizontal part are left out.
        for (x, y), (next_x, next_y) in pairwise(points):
            assert next_x == x + 1 or next_y == y
    start = POINTS - len(values)
    assert on_lines == {start + at for at, value in enumerate(values) if value is not None}


# Problems.


def test_a_problem_has_its_advice_its_containers_and_its_time() -> None:
    node, past = started_node(), RecentPast()
    node.has(gpu(0))
    report_claims(node, kubelet_claim("train-0", uuid_of(0)))
    node.seconds = 480
    node.say(XidsReported((XidReport(uuid_of(0), "", 79, at(480)),)))
    past.add(node.snapshot())
    section = read(page(status_of(status_input(node, past=past.known())), ())).one("section")
    [item, *_] = section.all("li")
    assert item.text == (
        "critical GPU 0: XID 79, GPU has fallen off the bus (last 2 min ago) "
        "Affected: ml/train-0 (main) Advice: reboot the node"
    )
    assert item.attributes["class"] == "critical"


def problem(since_known: bool = True) -> ProblemStatus:
    return ProblemStatus(
        kind="row_remap_pending",
        severity="warning",
        where="GPU 0",
        device="GPU-0",
        text="<b>",
        since=SOME,
        since_known=since_known,
    )


@pytest.mark.parametrize(
    ("known", "expected"), [(True, "(for 5 min )"), (False, "(for at least 5 min )")]
)
def test_how_long_a_problem_lasts(known: bool, expected: str) -> None:
    found = read(problem_section([problem(known)], SOME + timedelta(minutes=5)))
    assert found.one("li").text.endswith(expected)


def test_of_many_problems_some_are_listed_and_the_rest_counted() -> None:
    items = read(problem_section([problem()] * (MOST + 3), SOME)).all("li")
    assert len(items) == MOST + 1
    assert items[-1].text == "and 3 more: see /status"


# Containers and processes.


def row_of(found: GpuStatus) -> list[str]:
    status = status_of(two_gpus())
    only = StatusDocument(
        **{
            name: getattr(status, name)
            for name in StatusDocument.__struct_fields__
            if name != "gpus"
        },
        gpus=(found,),
    )
    return table(read(gpus(only)), "gpus")[1]


def test_each_holder_shows_what_it_uses_itself() -> None:
    now = holding("a", gpu(0), uid="", energy=3_600_000_000, until=at(10))
    busy = replace(used("a", uid="", memory=3 * GIB), recent_busy_ppm=412_300, holding=now)
    stray = used("stray", uid="", memory=2 * GIB)
    text = row_of(shown(account(busy, stray), "a", "b"))[5]
    first, second = text.split("ml/b (main)")
    assert "41 % busy 3.0 GiB 1.00 kWh" in first.replace("\N{NO-BREAK SPACE}", " ")
    assert "busy" not in second.partition("ml/stray")[0]
    assert "ml/stray (main) uses it without holding it 2.0 GiB" in second.replace(
        "\N{NO-BREAK SPACE}", " "
    )


@pytest.mark.parametrize(
    ("error", "expected"),
    [(0, "41 % busy"), (3.2, "41 % ±4 busy"), (None, "~41 % busy")],
)
def test_a_busy_time_that_was_split_has_its_error(error: float | None, expected: str) -> None:
    """A sole user has none; `~` means that it is unknown."""
    use = UseStatus(
        busy_percent=41.2, busy_error_percent=error, memory_used_bytes=None, energy_joules=None
    )
    card = shown(None, "a")
    [holder] = card.holders or ()
    of_user = msgspec.structs.replace(holder, use=use)
    text = row_of(msgspec.structs.replace(card, holders=(of_user,)))[5]
    assert text.replace("\N{NO-BREAK SPACE}", " ").endswith(f" {expected}")


@pytest.mark.parametrize(
    ("joules", "expected"),
    [
        (0, "0 kWh"),
        (100, "<0.0001 kWh"),
        (3_600, "0.0010 kWh"),
        (90_000, "0.0250 kWh"),
        (360_000, "0.100 kWh"),
        (86_400_000, "24.0 kWh"),
        (7_200_000, "2.00 kWh"),
    ],
)
def test_the_energy_of_a_container_has_several_digits(joules: int, expected: str) -> None:
    now = holding("a", gpu(0), uid="", energy=joules * 1000, until=at(10))
    found = replace(used("a", uid=""), holding=now)
    assert (
        row_of(shown(account(found), "a"))[5].replace("\N{NO-BREAK SPACE}", " ").endswith(expected)
    )


def idle_row(percents: list[float], *, is_held: bool = True) -> str:
    node, past = started_node(), RecentPast()
    node.has(gpu(0))
    if is_held:
        report_claims(node, kubelet_claim("a", uuid_of(0)))
    else:
        report_claims(node)
    for step, percent in enumerate(percents):
        node.seconds = step * 30
        found = reading(gpu(0), "gpu_utilization_percent", percent, when=at(node.seconds))
        node.reads(found)
        past.add(node.snapshot())
    now = at(node.seconds)
    return table(read(page(status_of(status_input(node, now=now, past=past.known())), ())), "gpus")[
        1
    ][1]


@pytest.mark.parametrize(
    ("percents", "is_held", "expected"),
    [
        ([90.0, 0.0, 0.0, 0.0, 0.0], True, "idle for 2 min"),
        ([90.0, 0.0, 0.0], True, "idle for 1 min"),
        ([90.0, 0.0], True, ""),
        ([0.0, 0.0, 0.0, 40.0], True, ""),
        ([0.0] * 10, False, ""),
    ],
)
def test_a_held_gpu_that_does_nothing_is_called_idle(
    percents: list[float], is_held: bool, expected: str
) -> None:
    shown_text = idle_row(percents, is_held=is_held)
    assert ("idle" in shown_text) == bool(expected)
    assert expected in shown_text


@pytest.mark.parametrize(
    ("uuid", "short"),
    [
        ("GPU-5c1d2e3f-5eed-4a5e-9c0d-000000000000", "GPU-5c1d2e3f"),
        ("MIG-5c1d2e3f-5eed-4a5e-9c0d-000000000000", "MIG-5c1d2e3f"),
        ("MIG-GPU-5c1d2e3f-5eed-4a5e-9c0d-000000000000/7/0",) * 2,
        ("other",) * 2,
        ("", ""),
    ],
)
def test_a_short_uuid_distinguishes_devices(uuid: str, short: str) -> None:
    assert short_uuid(uuid) == short


def test_unknown_values_say_why() -> None:
    node = started_node()
    node.has(gpu(0), gpu(1), mig(gpu(1), 7))
    node.reads(reading(gpu(0), "gpu_up", 0), reading(gpu(1), "gpu_up", 1))
    found = status_of(status_input(node, now=at(1)))
    lost, parent, instance = table(read(page(found, ())), "gpus")[1:]
    assert "it does not respond" in lost[1]
    assert "see its instances" in parent[1]
    assert "needs a profiling field" in instance[1]
