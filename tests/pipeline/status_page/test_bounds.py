"""The document is small and can be read back, whatever sources report."""

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.base.telemetry import Meter, Telemetry
from pipeline.component.registry import OWN_FAMILIES
from pipeline.status_page.daemon_state import StatusInput
from pipeline.status_page.device_status import ALL_HOLDERS, MOST_DEVICES, MOST_HOLDERS
from pipeline.status_page.document_builder import status_of
from pipeline.status_page.html.problem_section import MOST
from pipeline.status_page.problem_list import MOST_PROBLEMS
from pipeline.status_page.problem_text import problems
from pipeline.status_page.recent_past import RecentPast
from pipeline.status_page.status_document import GpuStatus, StatusDocument
from tests.pipeline.status_page.html_reader import page, read
from tests.pipeline.status_page.scenes import (
    hostile,
    mig_node,
    report_claims,
    started_node,
    status_input,
    two_gpus,
)
from tests.support.examples import examples
from tests.support.nodes import gpu, kubelet_claim, mig, reading, uuid_of


def gpus(found: StatusDocument) -> tuple[GpuStatus, ...]:
    assert found.gpus is not None
    return found.gpus


@pytest.mark.parametrize("value", [10**400, 10**30, 2**64, 2**63 * 1048576, -1, -(10**30), 1e300])
def test_a_document_with_any_numbers_can_be_read_back(value: float) -> None:
    fields = ("memory_used_bytes", "memory_total_bytes", "power_watts", "gpu_utilization_percent")
    node = started_node()
    card = replace(gpu(0), index=value if isinstance(value, int) else 0)
    part = mig(card, 7)
    assert part.mig is not None
    number = value if isinstance(value, int) else 0
    part = replace(part, mig=replace(part.mig, gpu_instance_id=number, compute_instance_id=number))
    node.has(card, part)
    node.reads(*(reading(card, field, value) for field in fields))
    telemetry = Telemetry(families=OWN_FAMILIES)
    if abs(value) < 10**300:
        Meter(telemetry, "sink", "metrics").set("podgpu_sink_queued", max(float(value), 0))
    found = status_of(status_input(node, telemetry=telemetry))
    assert msgspec.json.decode(msgspec.json.encode(found), type=StatusDocument) == found


def test_devices_above_the_limit_are_only_counted() -> None:
    node = started_node()
    node.has(*(gpu(index) for index in range(MOST_DEVICES + 5)))
    found = status_of(status_input(node))
    assert (len(gpus(found)), found.devices_left_out) == (MOST_DEVICES, 5)
    assert "5 more devices are not shown" in problems(found)


def test_problems_above_the_limit_are_only_counted() -> None:
    node, past = started_node(), RecentPast()
    cards = [gpu(index) for index in range(MOST_PROBLEMS + 5)]
    node.has(*cards)
    node.reads(*(reading(card, "row_remap_pending", 1, good_for=86_400) for card in cards))
    past.add(node.snapshot())
    found = status_of(status_input(node, past=past.known()))
    assert len(found.problems or ()) == MOST_PROBLEMS
    assert found.problems_left_out >= 5
    shown = read(page(found, ())).one("section", class_="problems")
    count = MOST_PROBLEMS + found.problems_left_out
    assert shown.one("h2").text == f"{count} problems"
    said = f"and {count - MOST} more: see /status , which has the first {MOST_PROBLEMS}"
    assert shown.all("li")[-1].text == said


@pytest.mark.slow
def test_with_many_devices_fewer_holders_of_each_are_listed() -> None:
    """The document is built on the event loop, so the number of holders must be bounded."""
    node = started_node()
    cards = [gpu(index) for index in range(MOST_DEVICES)]
    node.has(*cards)
    report_claims(
        node, *(kubelet_claim(f"p{n}", f"{c.uuid}::{n}") for c in cards for n in range(10))
    )
    found = gpus(status_of(status_input(node)))
    named = [card.holders for card in found if card.holders is not None]
    assert len(named) == MOST_DEVICES
    assert sum(map(len, named)) <= ALL_HOLDERS
    assert all(
        len(holders) + card.holders_left_out == 10
        for card, holders in zip(found, named, strict=True)
    )


def test_holders_above_the_limit_are_only_counted() -> None:
    node = started_node()
    node.has(gpu(0))
    report_claims(
        node, *(kubelet_claim(f"p{n}", f"{uuid_of(0)}::{n}") for n in range(MOST_HOLDERS + 3))
    )
    [found] = gpus(status_of(status_input(node)))
    assert found.holders is not None
    assert (len(found.holders), found.holders_left_out) == (MOST_HOLDERS, 3)


@settings(deadline=None, max_examples=examples(60))
@given(st.text(min_size=1, max_size=2000))
def test_every_text_is_one_short_printable_line(text: str) -> None:
    found = status_of(hostile(text))

    def walk(value: object) -> None:
        if isinstance(value, str):
            assert value.isprintable()
            assert len(value) <= 310
        elif isinstance(value, dict):
            for each in value.values():
                walk(each)
        elif isinstance(value, list | tuple):
            for each in value:
                walk(each)

    walk(msgspec.to_builtins(found))


def test_the_document_of_a_large_node_is_small() -> None:
    text = msgspec.json.encode(status_of(mig_node(64, 7)))
    assert len(text) < 400_000


def test_an_impossible_wall_clock_is_bounded() -> None:
    known: StatusInput = two_gpus()
    impossible = replace(known, now=replace(known.now, wall_ns=10**30))
    assert status_of(impossible).time.year == 9999
