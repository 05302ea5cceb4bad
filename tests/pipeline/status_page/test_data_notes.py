"""What the document and the page say about data that was not measured on this node now."""

from dataclasses import replace

import pytest

from pipeline.ledger.schema import HOUR_NS
from pipeline.model import DevicesDiscovered, SourceAdded
from pipeline.model.ledger_usage import HourTotal
from pipeline.status_page.document_builder import status_of
from pipeline.status_page.status_document import StatusDocument
from tests.pipeline.ledger.reports.windows import day
from tests.pipeline.status_page.html_reader import page, read, table
from tests.pipeline.status_page.last_days import input_with, last_day, status_with
from tests.pipeline.status_page.scenes import SCENES, started_node, status, status_input, two_gpus
from tests.support.nodes import Node, claim, claims, gpu, uuid_of


def replaying(node: Node, *models: str) -> StatusDocument:
    """Add a recording of GPUs to a node, and return its status."""
    node.say(SourceAdded(1), "recording", "replay")
    cards = tuple(replace(gpu(index), model=model) for index, model in enumerate(models))
    node.say(DevicesDiscovered(cards), "gpus@recording", "nvml", via="recording")
    node.say(claims(claim("a", uuid_of(0))), "pods@recording", "pods", via="recording")
    return status_of(status_input(node))


@pytest.mark.parametrize("name", SCENES)
def test_a_node_that_is_measured_has_no_notes(name: str) -> None:
    assert status(name).notes == ()
    assert read(page(status(name), ())).all("div", class_="notes") == []


def test_a_recording_is_called_so_at_the_top() -> None:
    found = replaying(Node(), "NVIDIA H200")
    note = 'This is a recording, not this machine (the source "recording").'
    assert found.notes == (note,)
    content = read(page(found, ()))
    assert content.one("div", class_="notes").text == note
    assert content.text.index(note) < content.text.index("GPUs")


def test_the_sources_in_a_recording_are_marked() -> None:
    found = replaying(started_node(("live", "nvml")), "NVIDIA H200")
    assert {one.name: one.relayed_by for one in found.sources} == {
        "live": None,
        "recording": None,
        "gpus@recording": "recording",
        "pods@recording": "recording",
    }
    names = [row[0] for row in table(read(page(found, ())), "parts")[1:]]
    assert names == [
        "live nvml",
        "recording replay",
        "gpus@recording nvml in the recording",
        "pods@recording pods in the recording",
    ]
    [note] = found.notes
    assert note.startswith('A part of this is a recording (the source "recording"). ')
    assert note.endswith('Not recorded: the source "live".')


@pytest.mark.parametrize(
    ("models", "expected"),
    [
        (("NVIDIA H200",), ()),
        (("NVIDIA H200", "NVIDIA H100 (simulated)"), ("Simulated: GPU 1.",)),
        (("A (simulated)", "B", "C (simulated)"), ("Simulated: GPU 0,2.",)),
        (("A (simulated)", "B (simulated)"), ("All GPUs are simulated.",)),
        (
            ("NVIDIA H200", *["A (simulated)"] * 66),
            ("Simulated: GPU 1-64 and 2 more.",),
        ),
    ],
)
def test_simulated_gpus_are_named(models: tuple[str, ...], expected: tuple[str, ...]) -> None:
    assert replaying(Node(), *models).notes[1:] == expected


def _hours_of_two_days() -> range:
    now = two_gpus().now.wall_ns // HOUR_NS
    return range(now - 48, now + 1)


def test_sample_data_is_called_so() -> None:
    sample = last_day(replace(day(), sample_data="podgpu demo"))
    hours = tuple(HourTotal(n * HOUR_NS, HOUR_NS, 0, 0, 0, 0) for n in _hours_of_two_days())
    sample = replace(sample, hours=hours)
    found = status_of(input_with(sample))
    assert found.usage is not None
    assert found.usage.sample_data == "podgpu demo"
    [note] = found.notes
    assert note == (
        "The usage of 28 days and the energy of containers contain sample data of podgpu demo, "
        "not measured."
    )
    content = read(page(found, ()))
    headings = [one.text for tag in ("h2", "h3") for one in content.all(tag)]
    for start in ("Last 24 hours", "By device", "Last 28 days"):
        assert [one for one in headings if one.startswith(start)] == [f"{start} (sample data)"]
    assert "sample data" not in page(status_with(last_day(day())), ())
