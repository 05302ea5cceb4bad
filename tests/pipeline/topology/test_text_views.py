"""The topology as matrix, tree, Graphviz graph and JSON document."""

import json
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.model import Attribution, Evidence, Holder, Level, PartialRef, TopologyRead
from pipeline.model.availability import Availability, availability
from pipeline.model.topology_tree import Topology
from pipeline.topology.document import VERSION, document, restored
from pipeline.topology.selection import best
from pipeline.topology.text_views import dot, held_summary, matrix, symbol, tree
from pipeline.topology.tree_builder import build
from tests.pipeline.topology.layouts import (
    NODE,
    PIX,
    SYS,
    card,
    dgx1,
    four_h100,
    hgx,
    islands,
    pcie,
    read,
    reads,
)
from tests.support.examples import examples
from tests.support.nodes import START, gpu, mig, uuid_of


def holder(pod: str, share: float | None, container: str = "main") -> Holder:
    subject = PartialRef("ml", pod, container)
    return Holder(subject, share, START, "kubelet", Evidence.KUBELET_IDS)


def used(topology: Topology) -> Availability:
    """Return an availability: GPU 0 held, 1 shared, 2 in MIG mode, 3 free, others gone."""
    one, two = mig(gpu(2), 1, profile="3g.40gb"), mig(gpu(2), 2)
    parts = [
        Attribution(gpu(0), True, (holder("train-0", 1),)),
        Attribution(gpu(1), True, (holder("a", 0.5), holder("b", 0.25, ""))),
        Attribution(gpu(2), True, ()),
        Attribution(one, True, (holder("c", 1),)),
        Attribution(two, True, ()),
        Attribution(gpu(3), True, ()),
    ]
    return availability(topology, {part.device.uuid: part for part in parts})


def test_holders_are_summarized_on_one_line() -> None:
    assert held_summary(used(hgx(8))) == (
        "GPU 0 by ml/train-0 (main), "
        "GPU 1 in part by ml/a (main) 0.5 and ml/b 0.25, "
        "GPU 2 in part by ml/c (main), GPU 4-7 absent"
    )
    crowded = tuple(holder(f"p-{n}", 0.1) for n in range(5))
    one = Attribution(gpu(0), True, crowded)
    text = held_summary(availability(hgx(1), {one.device.uuid: one}))
    assert text == "GPU 0 in part by ml/p-0 (main) 0.1 and ml/p-1 (main) 0.1 and 3 more"


def test_the_matrix_shows_four_h100s() -> None:
    assert matrix(four_h100(), legend=False) == (
        "      GPU0  GPU1  GPU2  GPU3  NUMA\n"
        "GPU0   X    NV18  NV18  NV18  N/A\n"
        "GPU1  NV18   X    NV18  NV18  N/A\n"
        "GPU2  NV18  NV18   X    NV18  N/A\n"
        "GPU3  NV18  NV18  NV18   X    N/A\n"
    )


def test_the_matrix_shows_a_cube_mesh() -> None:
    assert matrix(dgx1()).startswith(
        "      GPU0  GPU1  GPU2  GPU3  GPU4  GPU5  GPU6  GPU7  NUMA\n"
        "GPU0   X    NV1   NV1   NV2   NV2   SYS   SYS   SYS   0\n"
        "GPU1  NV1    X    NV2   NV1   SYS   NV2   SYS   SYS   0\n"
    )


@pytest.mark.parametrize(
    ("answer", "cell"),
    [
        ((Level.INTERNAL, 0, False), "PIX"),
        ((Level.SINGLE, 0, False), "PIX"),
        ((Level.MULTIPLE, None, None), "PXB"),
        ((Level.HOSTBRIDGE, None, False), "PHB"),
        ((Level.NODE, 0, True), "NODE"),
        ((Level.SYSTEM, 4, False), "SYS"),
        ((Level.SYSTEM, 4, True), "NV4"),
        ((Level.SYSTEM, 4, None), "NV4"),
        ((Level.SYSTEM, None, True), "NV?"),
        ((None, 2, True), "NV2"),
        ((None, 0, False), "?"),
        ((None, None, None), "?"),
    ],
)
def test_a_cell_of_the_matrix_shows_nvlinks_or_the_level(
    answer: tuple[Level | None, int | None, bool | None], cell: str
) -> None:
    topology = build(read([card(0), card(1)], lambda _i, _j: answer))
    assert symbol(topology, 0, 1) == symbol(topology, 1, 0) == cell


def test_an_unknown_pair_has_a_question_mark() -> None:
    assert symbol(build(TopologyRead((card(0), card(1)), ())), 0, 1) == "?"


def test_the_matrix_shows_the_driver_s_level_and_the_tree_the_implied_one() -> None:
    answers = {(0, 1): PIX, (1, 2): PIX, (0, 2): SYS}
    topology = build(read([card(n) for n in range(3)], lambda i, j: (answers[i, j], 0, False)))
    assert symbol(topology, 0, 2) == "SYS"
    assert tree(topology) == (
        "PIX: GPU 0-2\n"
        "├─ GPU0  00000000:01:00.0\n"
        "├─ GPU1  00000000:02:00.0\n"
        "└─ GPU2  00000000:03:00.0\n"
        "contradiction: the driver reports GPU0 and GPU2 as SYS, but through GPU1 they are PIX\n"
    )


def test_the_tree_shows_holders() -> None:
    topology = pcie(4)
    assert tree(topology, used(topology)) == (
        "SYS: GPU 0-3, 1 of 4 free\n"
        "├─ PIX: GPU 0-1, 0 of 2 free\n"
        "│  ├─ GPU0  00000000:01:00.0  held; ml/train-0 (main)\n"
        "│  └─ GPU1  00000000:02:00.0  part; ml/a (main) 0.5; ml/b 0.25\n"
        "└─ PIX: GPU 2-3, 1 of 2 free\n"
        "   ├─ GPU2  00000000:03:00.0  part; ml/c (main) on 3g.40gb\n"
        "   └─ GPU3  00000000:04:00.0  free\n"
    )


def test_the_tree_shows_nvlink_domains_and_absent_gpus() -> None:
    topology = hgx()
    lines = tree(topology, used(topology)).splitlines()
    assert lines[0] == "SYS: GPU 0-7, 1 of 8 free"
    assert lines[-2] == "   └─ GPU7  00000000:08:00.0  absent"
    assert lines[-1] == "NVLink switch: GPU 0-7, 1 of 8 free"


def test_views_show_one_gpu_and_no_gpus() -> None:
    assert tree(hgx(1)) == "GPU0  00000000:01:00.0\n"
    assert tree(hgx(0)) == "no GPUs\n"
    assert matrix(hgx(0), legend=False) == "  NUMA\n"
    assert dot(hgx(0)) == "graph topology {\n  node [shape=box];\n}\n"


def test_a_graphviz_graph_shows_levels_nvlinks_and_holders() -> None:
    cards = [card(0, links=4), card(1, links=4), card(2)]
    answers = {(0, 1): (NODE, 4, True), (0, 2): (SYS, 0, False), (1, 2): (SYS, 0, False)}
    topology = build(read(cards, lambda i, j: answers[i, j]))
    parts = [
        Attribution(gpu(0), True, (holder('odd"name\\', 0.5),)),
        *(Attribution(gpu(n), True, ()) for n in (1, 2)),
    ]
    shown = dot(topology, availability(topology, {p.device.uuid: p for p in parts}))
    assert shown == (
        "graph topology {\n"
        "  node [shape=box];\n"
        '  g0 [label="GPU0\\npart\\nml/odd\\"name\\\\ (main) 0.5", style=filled];\n'
        '  g1 [label="GPU1\\nfree"];\n'
        '  g2 [label="GPU2\\nfree"];\n'
        '  system0 [label="SYS", shape=ellipse];\n'
        '  node0 [label="NODE", shape=ellipse];\n'
        "  node0 -- g0;\n"
        "  node0 -- g1;\n"
        "  system0 -- node0;\n"
        "  system0 -- g2;\n"
        '  g0 -- g1 [label="NV4", constraint=false];\n'
        "}\n"
    )


def test_the_document_has_gpus_levels_pairs_and_free_gpus() -> None:
    answers = four_h100().read
    first = replace(answers.cards[0], memory_bytes=85_520_809_984)
    topology = build(replace(answers, cards=(first, *answers.cards[1:])))
    content = document(topology, used(topology))
    assert content["version"] == VERSION
    assert content["gpus"][0] == {
        "uuid": uuid_of(0),
        "index": 0,
        "pci": "00000000:00:06.0",
        "numa": None,
        "links": 18,
        "cluster": "",
        "clique": 0,
        "state": "held",
        "cores": 100,
        "free_cores": 0,
        "memory": 85_520_809_984,
    }
    assert [gpu["free_cores"] for gpu in content["gpus"]] == [0, 25, 25, 100]
    assert content["levels"] == {
        "SINGLE": [],
        "MULTIPLE": [],
        "HOSTBRIDGE": ["f"],
        "NODE": ["f"],
        "SYSTEM": ["f"],
    }
    assert content["free_of"]["HOSTBRIDGE"] == ["8"]
    assert content["nvlink"] == [{"kind": "switch", "mask": "f"}]
    assert content["pairs"] == {
        "level": [[30, 30, 30], [30, 30], [30]],
        "nvlinks": [[18, 18, 18], [18, 18], [18]],
    }
    assert (content["free"], content["part"]) == ("8", "6")
    assert not {"free", "part", "free_of", "down"} & document(topology).keys()
    assert document(topology, down="gone")["down"] == "gone"


def test_a_document_of_sixty_four_gpus_fits_into_an_annotation() -> None:
    topology = hgx(64)
    text = json.dumps(document(topology, used(topology)), separators=(",", ":"))
    assert len(text) < 40_000


@settings(max_examples=examples(50))
@given(reads(), st.integers(0, 255))
def test_a_restored_document_is_the_same_topology_with_the_same_choice(
    answers: TopologyRead, free: int
) -> None:
    topology = build(answers)
    uses = {
        c.uuid: Attribution(gpu(n), True, () if free >> n & 1 else (holder("a", 1),))
        for n, c in enumerate(topology.cards)
    }
    found = availability(topology, uses)
    restored_topology, mask = restored(json.loads(json.dumps(document(topology, found))))
    assert mask == found.free
    assert restored_topology.links == topology.links
    assert [d.mask for d in restored_topology.domains] == [d.mask for d in topology.domains]
    masks = [[n.mask for n in nodes] for nodes in topology.levels.values()]
    assert [[n.mask for n in nodes] for nodes in restored_topology.levels.values()] == masks
    for n in range(1, len(topology.cards) + 1):
        one, other = best(topology, found.free, n), best(restored_topology, mask, n)
        assert (one and (one.mask, one.score)) == (other and (other.mask, other.score))


VALID = document(islands(), used(islands()))


@pytest.mark.parametrize(
    "content",
    [
        None,
        [],
        {},
        {**VALID, "version": VERSION + 1},
        {**VALID, "gpus": VALID["gpus"][::-1]},
        {**VALID, "gpus": [VALID["gpus"][0]] * 8},
        {**VALID, "gpus": [{**VALID["gpus"][0], "uuid": 1}, *VALID["gpus"][1:]]},
        {**VALID, "gpus": [{**VALID["gpus"][0], "links": "4"}, *VALID["gpus"][1:]]},
        {**VALID, "gpus": [{**VALID["gpus"][0], "index": True}, *VALID["gpus"][1:]]},
        {**VALID, "gpus": ["GPU-0"]},
        {**VALID, "gpus": 5},
        {**VALID, "pairs": {"level": [], "nvlinks": []}},
        {**VALID, "pairs": {**VALID["pairs"], "level": [[35] * 7] * 7}},
        {**VALID, "pairs": {**VALID["pairs"], "nvlinks": [["4"] * 7] * 7}},
        {**VALID, "free": "zz"},
        {**VALID, "free": 15},
        {**VALID, "free": "100"},
        {**VALID, "free": "-1"},
        {**VALID, "nvlink": [{}]},
        {**VALID, "nvlink": [{"mask": "1" * 100}]},
        {**VALID, "nvlink": [{"mask": "0"}] * 65},
        {**VALID, "gpus": [{**VALID["gpus"][0], "uuid": "x" * 200}, *VALID["gpus"][1:]]},
        {**VALID, "gpus": [{**VALID["gpus"][0], "memory": "80"}, *VALID["gpus"][1:]]},
        {**VALID, "free": "0x1"},
        {**VALID, "free": " 1"},
        {**VALID, "gpus": [{**VALID["gpus"][0], "links": -1}, *VALID["gpus"][1:]]},
        *(
            {**VALID, "pairs": {**VALID["pairs"], "nvlinks": [[n] * (7 - i) for i in range(7)]}}
            for n in (-1, 65, 1 << 62)
        ),
    ],
)
def test_invalid_documents_are_refused(content: object) -> None:
    with pytest.raises(ValueError, match="not a topology document"):
        restored(content)


@pytest.mark.parametrize("key", ["gpus", "pairs", "nvlink"])
def test_a_missing_key_is_named(key: str) -> None:
    content = {name: value for name, value in VALID.items() if name != key}
    expected = f"not a topology document: the key '{key}' is missing"
    with pytest.raises(ValueError, match=f"^{expected}$"):
        restored(content)


def document_of(count: int, levels: Callable[[int, int], int], links: int) -> dict[str, Any]:
    cells = [(i, range(i + 1, count)) for i in range(count - 1)]
    return {
        "version": VERSION,
        "gpus": [
            {"uuid": f"GPU-{n:03}", "index": n, "pci": "", "numa": None, "links": 0}
            for n in range(count)
        ],
        "levels": {},
        "nvlink": [{"kind": "switch", "mask": f"{1 << n:x}"} for n in range(min(count, 64))],
        "pairs": {
            "level": [[levels(i, j) for j in row] for i, row in cells],
            "nvlinks": [[links] * len(row) for _, row in cells],
        },
        "free": "0",
    }


LEVELS = (10, 20, 30, 40, 50)
HOSTILE = {
    "random": (document_of(64, lambda i, j: LEVELS[i * j % 5], 1), False),
    "a chain": (document_of(64, lambda i, j: 10 if j - i == 1 else 50, 1), False),
    "too many GPUs": (document_of(200, lambda _i, _j: 10, 1), False),
    "all equal": (document_of(64, lambda _i, _j: 10, 64), True),
    "halves": (document_of(64, lambda i, j: LEVELS[min((i ^ j).bit_length() // 2, 4)], 0), True),
    "none connected": (document_of(64, lambda _i, _j: 50, 0), True),
}


@pytest.mark.parametrize(("content", "valid"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_documents_are_read_or_refused_quickly(
    content: dict[str, Any], valid: bool
) -> None:
    taken = []
    for _ in range(3):
        start = time.process_time()
        with nullcontext() if valid else pytest.raises(ValueError, match="not a topology document"):
            restored(content)
        taken.append(time.process_time() - start)
    assert min(taken) < 0.05


def test_levels_that_contradict_each_other_are_refused() -> None:
    """If 0 and 1 share a switch, and 1 and 2 share one, 0 and 2 share it too."""
    levels = {(0, 1): 10, (1, 2): 10, (0, 2): 40}
    with pytest.raises(ValueError, match="levels contradict"):
        restored(document_of(3, lambda i, j: levels[i, j], 0))
