"""What the document and the page say about data that was not measured on this node now."""

from dataclasses import replace

import pytest

from pipeline.model import DevicesDiscovered, SourceAdded
from pipeline.status_page.document_builder import status_of
from pipeline.status_page.status_document import StatusDocument
from tests.pipeline.ledger.reports.windows import day
from tests.pipeline.status_page.html_reader import page, read, table
from tests.pipeline.status_page.last_days import input_with, last_day, status_with
from tests.pipeline.status_page.scenes import SCENES, started_node, status, status_input
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
    note = 'This is a recording, played by the source "recording". It does not show this machine.'
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
    assert note.startswith('A part of this is a recording, played by the source "recording". ')
    assert note.endswith('Not recorded: the source "live".')


EIGHT_GPUS = ", ".join(f"GPU {index}" for index in range(1, 9))


@pytest.mark.parametrize(
    ("models", "expected"),
    [
        (("NVIDIA H200",), ()),
        (("NVIDIA H200", "NVIDIA H100 (simulated)"), ("These GPUs are simulated: GPU 1.",)),
        (("A (simulated)", "B (simulated)"), ("All GPUs are simulated.",)),
        (
            ("NVIDIA H200", *["A (simulated)"] * 10),
            (f"These GPUs are simulated: {EIGHT_GPUS} and 2 more.",),
        ),
    ],
)
def test_simulated_gpus_are_named(models: tuple[str, ...], expected: tuple[str, ...]) -> None:
    assert replaying(Node(), *models).notes[1:] == expected


def test_sample_data_is_called_so() -> None:
    sample = last_day(replace(day(), sample_data="podgpu demo"))
    found = status_of(input_with(sample))
    assert found.usage is not None
    assert found.usage.sample_data == "podgpu demo"
    [note] = found.notes
    assert note == (
        "The usage of the last 24 hours and 28 days is sample data, made by podgpu demo. "
        "It was not measured."
    )
    assert "Last 24 hours (sample data)" in read(page(found, ())).text
    assert "sample data" not in page(status_with(last_day(day())), ())
