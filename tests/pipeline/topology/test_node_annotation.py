"""The topology annotation of a Node: it is read as it was written, and other texts are refused."""

import json
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.model.availability import availability
from pipeline.model.topology_tree import Topology
from pipeline.topology.node_annotation import annotation, published
from pipeline.topology.tree_builder import build
from tests.pipeline.topology.layouts import dgx1, islands
from tests.pipeline.topology.test_text_views import used
from tests.support.examples import examples

MEMORY = 85_520_809_984


def with_memory() -> Topology:
    """Return a topology in which only the first GPU has a memory size."""
    islands_read = islands().read
    first = replace(islands_read.cards[0], memory_bytes=MEMORY)
    return build(replace(islands_read, cards=(first, *islands_read.cards[1:])))


@cache
def unchanged() -> str:
    topology = islands()
    return annotation(topology, used(topology), at=1000.0004, refresh=300)


def written(**changes: object) -> str:
    return json.dumps(json.loads(unchanged()) | changes)


def test_a_written_annotation_is_read_back() -> None:
    topology = with_memory()
    known = used(topology)
    found = published(annotation(topology, known, at=1000.0004, refresh=300))
    assert found.topology.links == topology.links
    assert found.topology.cards == tuple(found.topology.cards)
    assert [card.uuid for card in found.topology.cards] == [card.uuid for card in topology.cards]
    assert (found.free, found.part) == (known.free, known.part)
    assert (found.at, found.refresh) == (1000, 300)


def test_the_annotation_is_compact_and_has_cores_and_memory() -> None:
    topology = with_memory()
    text = annotation(topology, used(topology), at=1, refresh=300)
    assert " " not in text
    assert "\n" not in text
    first = json.loads(text)["gpus"][0]
    assert (first["cores"], first["memory"]) == (100, MEMORY)
    assert published(text).topology.cards[0].memory_bytes == MEMORY


def test_unknown_holders_are_not_free_gpus() -> None:
    topology = dgx1()
    found = published(annotation(topology, None, at=1, refresh=300))
    assert found.free is None
    no_one = availability(topology, {})
    assert published(annotation(topology, no_one, at=1, refresh=300)).free == 0


@pytest.mark.parametrize(
    ("now", "stale"),
    [
        (0, True),
        (699, True),
        (700, False),
        (1000, False),
        (1900, False),
        (1901, True),
    ],
)
def test_an_annotation_is_stale_after_three_missed_refreshes_or_from_the_future(
    now: float, stale: bool
) -> None:
    assert published(written(at=1000)).stale(now) is stale


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "not JSON"),
        ("[]", "not a topology document of version 1"),
        (written(version=2), "not a topology document of version 1"),
        (written(at="now"), "at or refresh is not a number of seconds"),
        (written(at=True), "at or refresh is not a number of seconds"),
        (written(refresh=0), "refresh is not above 0"),
        (written(at=1).replace('"at": 1', '"at": 1e999'), "not"),
        (" " * 200_000 + written(), "characters, at most 131072 are allowed"),
        (written(refresh=None), "at or refresh is not a number of seconds"),
        (written(part="100"), "part: 100 has bits without a GPU"),
        (written(part="-1"), "hexadecimal"),
        (written(part=3), "not a topology document"),
        (written(free="x"), "not a topology document"),
        (
            json.dumps({k: v for k, v in json.loads(written()).items() if k != "at"}),
            "the key 'at' is missing",
        ),
    ],
)
def test_invalid_annotations_are_refused(text: str, expected: str) -> None:
    with pytest.raises(ValueError, match="not") as caught:
        published(text)
    assert expected in str(caught.value)


@settings(max_examples=examples(50), deadline=None)
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5))
def test_any_other_value_raises_a_value_error(value: object) -> None:
    for document in (value, json.loads(written()) | {"at": value, "refresh": value, "part": value}):
        try:
            published(json.dumps(document))
        except ValueError as error:
            assert str(error)  # noqa: PT017
