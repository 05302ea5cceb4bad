"""The cache of the cluster's Nodes."""

import asyncio
import contextlib
import gc
import json
import logging
import time
import weakref
from typing import Any

import pytest

from pipeline.base.errors import ApiError
from pipeline.model import Level
from pipeline.model.topology_tree import Topology
from pipeline.topology.node_annotation import KEY, published
from pipeline.topology.tree_builder import build
from podgpu.extender.node_cache import LONGEST, NodeRecord, Nodes, node_record, shape
from podgpu.extender.node_selection.node_fit import fit, scored
from podgpu.extender.node_selection.node_state import NOT_YET, NOTHING, AtHand
from tests.pipeline.topology.layouts import PIX, PXB, card, dgx1, hgx, islands, pcie, read
from tests.podgpu.extender.cluster import GPU, NOW, REFRESH, annotation_of, annotation_with, node

LOG = logging.getLogger("podgpu.test.extender")


def record_of(raw: dict[str, Any]) -> NodeRecord:
    made = node_record(KEY, [GPU], raw)
    assert made is not None
    return made


async def cache_of(*raws: dict[str, Any]) -> Nodes:
    nodes = Nodes(LOG)
    await nodes.replaced([record_of(raw) for raw in raws])
    return nodes


async def test_the_topology_and_the_free_gpus_of_a_node_are_known() -> None:
    nodes = await cache_of(node("a", annotation_with(hgx(), 0b1101, part=0b10), gpus="8"))
    known = nodes.known_of("a")
    assert known.published is not None
    assert (known.published.free, known.published.part) == (0b1101, 0b10)
    assert known.devices == 8
    assert known.state(NOW) == "fresh"
    assert known.state(NOW + 3 * REFRESH + 1) == "stale"


@pytest.mark.parametrize(
    ("raw", "state"),
    [
        (node("a"), "none"),
        ({"metadata": {"name": "a"}}, "none"),
        ({"metadata": {"name": "a", "annotations": {KEY: 7}}}, "none"),
        (node("a", ""), "unreadable"),
        (node("a", "nonsense"), "unreadable"),
        (node("a", "[" * 100_000), "unreadable"),
        (node("a", "\ud800"), "unreadable"),
        (node("a", json.dumps({"version": 2})), "unreadable"),
        (node("a", annotation_of(hgx(), free=False)), "no_free"),
        (node("a", annotation_of(hgx()) + " " * LONGEST), "unreadable"),
    ],
)
async def test_the_state_shows_why_a_node_has_no_topology(raw: dict[str, Any], state: str) -> None:
    nodes = await cache_of(raw)
    assert nodes.known_of("a").state(NOW) == state
    assert (nodes.known_of("a").published is None) == (state != "no_free")
    assert nodes.count(NOW)[state] == 1


async def test_nothing_is_known_of_a_node_that_is_not_listed() -> None:
    assert (await cache_of()).known_of("a") is NOTHING
    assert Nodes(LOG).known_of("a") is NOT_YET, "none is known before the first list"


@pytest.mark.parametrize("raw", [{}, {"metadata": []}, {"metadata": {"name": ""}}])
def test_an_object_without_a_name_is_ignored(raw: dict[str, Any]) -> None:
    assert node_record(KEY, [GPU], raw) is None


@pytest.mark.parametrize(
    ("allocatable", "devices"),
    [
        ({}, None),
        ({"cpu": "96"}, None),
        ({GPU: "8"}, 8),
        ({GPU: 8}, 8),
        ({GPU: "0"}, 0),
        ({GPU: "2k"}, 2000),
        ({GPU: "8", "example.com/gpu": "24"}, 32),
        ({GPU: "many"}, None),
        ({GPU: None}, None),
        ([], None),
    ],
)
def test_the_number_of_devices_is_the_allocatable_one(
    allocatable: Any, devices: int | None
) -> None:
    """The capacity includes unhealthy devices."""
    made = node_record(
        KEY,
        [GPU, "example.com/gpu"],
        {
            "metadata": {"name": "a"},
            "status": {"allocatable": allocatable, "capacity": {GPU: "99"}},
        },
    )
    assert made is not None
    assert made.devices == devices


async def test_nodes_are_added_changed_replaced_and_deleted() -> None:
    nodes = await cache_of(node("a", annotation_with(hgx(), 1)), node("b"))
    await nodes.upserted(record_of(node("a", annotation_with(hgx(), 3))))
    await nodes.upserted(record_of(node("c", annotation_with(pcie(), 1))))
    await nodes.deleted(record_of(node("b")))
    free = [None if (p := nodes.known_of(n).published) is None else p.free for n in "abc"]
    assert free == [3, None, 1]
    assert nodes.known_of("b") is NOTHING
    await nodes.replaced([record_of(node("c", annotation_with(pcie(), 7)))])
    assert nodes.known_of("a") is NOTHING
    assert sum(nodes.count(NOW).values()) == 1


async def test_an_unchanged_annotation_is_not_parsed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes = await cache_of(
        node("a", annotation_with(hgx(), 1), gpus=8), node("b", "nonsense"), node("c")
    )
    before = nodes.known_of("a").published

    def never(text: str) -> None:
        raise AssertionError(text)

    monkeypatch.setattr("podgpu.extender.node_cache.published", never)
    again = [node("a", annotation_with(hgx(), 1), gpus=32), node("b", "nonsense"), node("c")]
    await nodes.replaced([record_of(raw) for raw in again])
    for raw in again:
        await nodes.upserted(record_of(raw))
    assert nodes.known_of("a").published is before
    assert nodes.known_of("a").devices == 32


async def test_the_last_known_nodes_stay_in_use_while_the_api_server_is_away(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    nodes = Nodes(LOG)
    assert not nodes.complete
    await nodes.watch_failed(ApiError("away", status=500))
    await nodes.watch_failed(ApiError("away still", status=500))
    assert (nodes.complete, nodes.followed) == (False, False)
    await nodes.replaced([record_of(node("a", annotation_with(hgx(), 1)))])
    assert (nodes.complete, nodes.followed) == (True, True)
    await nodes.watch_failed(ApiError("forbidden", status=403))
    assert (nodes.complete, nodes.followed) == (True, False)
    assert nodes.known_of("a").published is not None
    await nodes.confirmed()
    assert nodes.followed
    assert [record.getMessage() for record in caplog.records] == [
        "away; no node is known yet",
        "watching nodes again",
        "forbidden; the last known nodes stay in use",
        "watching nodes again",
    ]


async def test_the_first_invalid_annotation_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    await cache_of(node("a\nb", "nonsense"), node("c", "nonsense"))
    (record,) = caplog.records
    assert "node a b: invalid topology annotation: not JSON" in record.getMessage()


# Whatever an annotation contains: it barely delays the event loop and affects no other node.


def chain(count: int) -> str:
    """Return an annotation in which each GPU is near the next and far from all others."""
    made = json.loads(annotation_of(pcie(2)))
    card_ = made["gpus"][0]
    made["gpus"] = [{**card_, "uuid": f"GPU-{n}", "index": n} for n in range(count)]
    made["pairs"] = {
        "level": [[10] + [40] * (count - n - 2) for n in range(count - 1)],
        "nvlinks": [[0] * (count - n - 1) for n in range(count - 1)],
    }
    return json.dumps(made)


def linked(nvlinks: int) -> str:
    made = json.loads(annotation_with(hgx(), 0xFF))
    made["pairs"]["nvlinks"] = [[nvlinks] * len(row) for row in made["pairs"]["nvlinks"]]
    return json.dumps(made)


@pytest.mark.slow
@pytest.mark.parametrize("text", [chain(64), chain(100), annotation_of(hgx(64))])
async def test_no_annotation_blocks_the_event_loop(text: str) -> None:
    nodes = Nodes(LOG)
    taking = asyncio.create_task(nodes.replaced([record_of(node("a", text))]))
    turns = 0
    async with asyncio.timeout(20):
        while not taking.done():
            await asyncio.sleep(0)
            turns += 1
    assert turns > 2, "it is parsed in a thread"
    start = time.process_time()
    with contextlib.suppress(ValueError):
        published(text)
    assert time.process_time() - start < 0.5


@pytest.mark.parametrize("nvlinks", [10**12, 2**63, 1000, 65, -1, -(10**9)])
async def test_an_impossible_number_of_links_does_not_raise_the_score(nvlinks: int) -> None:
    nodes = await cache_of(
        node("good", linked(64)),
        node("bad", linked(nvlinks)),
        node("usual", annotation_with(hgx(), 0xFF)),
    )
    fits = []
    for name in ("good", "bad", "usual"):
        at_hand = nodes.known_of(name).at_hand(NOW)
        fits.append(
            fit(at_hand.published.topology, at_hand.free, 4, None)
            if isinstance(at_hand, AtHand)
            else None
        )
    good, bad, usual = scored(fits)
    assert good > usual > 0
    assert bad == 0


# Topologies that are shared by nodes.


async def test_nodes_with_equal_hardware_share_one_topology() -> None:
    text = annotation_of(hgx())
    nodes = await cache_of(node("a", text), node("b", text.replace("5eed", "feed")))
    assert topology_of(nodes, "b") is topology_of(nodes, "a")


def topology_of(nodes: Nodes, name: str) -> Topology:
    found = nodes.known_of(name).published
    assert found is not None
    return found.topology


def test_topologies_of_different_hardware_are_different() -> None:
    layouts = (hgx(), hgx(4), pcie(), dgx1(), islands(), pcie(4))
    assert len(set(map(shape, layouts))) == len(layouts)
    other = published(annotation_of(hgx()).replace("5eed", "feed")).topology
    assert other.cards[0].uuid != hgx().cards[0].uuid
    assert shape(other) == shape(hgx())


def two(level: Level, nvlinks: int | None, reachable: bool | None) -> Topology:
    """Return a topology of two GPUs with these facts from the driver."""
    return build(
        read([card(0, links=None), card(1, links=None)], lambda *_: (level, nvlinks, reachable))
    )


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        (two(PIX, 4, True), two(PIX, 4, True), True),
        (two(PIX, 4, True), two(PXB, 4, True), False),
        (two(Level.INTERNAL, 4, True), two(PIX, 4, True), False),
        (two(PIX, 4, True), two(PIX, 2, True), False),
        (two(PIX, 0, True), two(PIX, None, False), True),
        # The number of links is unknown, but it is known that links exist.
        (two(PIX, None, True), two(PIX, None, None), False),
    ],
)
def test_topologies_are_shared_only_if_all_facts_for_a_choice_are_equal(
    one: Topology, other: Topology, alike: bool
) -> None:
    assert (shape(one) == shape(other)) == alike


async def test_a_topology_that_no_node_has_any_more_is_released() -> None:
    nodes = await cache_of(node("a", annotation_of(hgx())), node("b", annotation_of(pcie())))
    kept, gone = (weakref.ref(topology_of(nodes, name)) for name in "ab")
    await nodes.deleted(record_of(node("b")))
    await nodes.upserted(record_of(node("c", annotation_of(hgx()))))  # the thread keeps its last
    gc.collect()
    assert kept() is not None
    assert gone() is None
