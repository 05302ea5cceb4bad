"""A topology and what is free of it as one JSON document, for endpoints, commands and annotations.

Masks are hexadecimal texts, since a JSON number is good for 53 bits in many readers.
"""

import re
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from pipeline.model import Level, TopologyCard, TopologyPair, TopologyRead
from pipeline.model.availability import Availability, CardUse
from pipeline.model.bitmask import bits
from pipeline.model.topology_tree import LEVELS, Topology
from pipeline.topology.tree_builder import build

VERSION: Final = 1
"""Of the document's shape. It grows when a reader of the old shape would be misled."""

MOST_GPUS: Final = 64
"""Of a document that is read; NVML knows no machine with more."""

_MOST_LINKS: Final = 64
"""NVLinks of a GPU in a document that is read; NVML knows 36."""

_LONGEST: Final = 128
"""Characters of a text in a document that is read."""

_MASK: Final = re.compile(rf"[0-9a-f]{{1,{MOST_GPUS // 4}}}")

Document: TypeAlias = dict[str, Any]


def document(
    topology: Topology, availability: Availability | None = None, *, down: str = ""
) -> Document:
    """Return the document; `docs/topology.md` tells of each of its keys.

    Args:
        topology: the node's.
        availability: what is free; without it the document says nothing of that.
        down: why the source that told the topology doesn't tell it now; empty while it does.
    """
    uses: list[CardUse | None] = [None] * len(topology.cards)
    if availability is not None:
        uses = list(availability.cards)
    count = len(topology.cards)
    rows = [[topology.links[i, j] for j in range(i + 1, count)] for i in range(count - 1)]
    made: Document = {
        "version": VERSION,
        "gpus": [_gpu(card, use) for card, use in zip(topology.cards, uses, strict=True)],
        "levels": {
            level.name: [f"{node.mask:x}" for node in nodes if node.mask.bit_count() > 1]
            for level, nodes in topology.levels.items()
        },
        "nvlink": [
            {"kind": domain.kind, "mask": f"{domain.mask:x}"}
            | ({"fabric": domain.fabric} if domain.fabric else {})
            for domain in topology.domains
        ],
        "pairs": {
            "level": [[int(link.level) for link in row] for row in rows],
            "nvlinks": [[link.nvlinks for link in row] for row in rows],
        },
    }
    if down:
        made["down"] = down
    if availability is not None:
        made["free"] = f"{availability.free:x}"
        made["part"] = f"{availability.part:x}"
        made["free_of"] = {
            level.name: [
                f"{availability.free_of(node):x}" for node in nodes if node.mask.bit_count() > 1
            ]
            for level, nodes in topology.levels.items()
        }
    return made


def _gpu(card: TopologyCard, use: CardUse | None) -> Document:
    made: Document = {
        "uuid": card.uuid,
        "index": card.index,
        "pci": card.pci_bus_id,
        "numa": card.numa_node,
        "links": card.links,
    }
    if card.clique is not None:
        made |= {"cluster": card.cluster, "clique": card.clique}
    if use is not None:
        share = use.free_share
        made |= {
            "state": use.state,
            "cores": 0 if use.state == "absent" else 100,
            "free_cores": None if share is None else round(100 * share, 4),
        }
    if card.memory_bytes is not None:
        made["memory"] = card.memory_bytes
    return made


def mask_of_text(text: object) -> int:
    """Return a mask as a document has it.

    Raises:
        ValueError: it isn't one.
    """
    if not isinstance(text, str) or _MASK.fullmatch(text) is None:
        raise ValueError("a mask is no hexadecimal text of up to 16 digits")
    return int(text, 16)


def restored(made: object) -> tuple[Topology, int]:
    """Return the topology of a document and the mask of its free GPUs; 0 where it says none.

    Bridges above the GPUs and contradictory answers of the driver aren't in a document. Whatever
    it has in it, this takes some milliseconds: anybody may have written it.

    Raises:
        ValueError: it isn't such a document, one of another version, or one of too many GPUs.
    """
    if not isinstance(made, dict) or made.get("version") != VERSION:
        raise ValueError(f"not a topology document of version {VERSION}")
    try:
        count = len(_listed(made["gpus"], MOST_GPUS))
        cards = tuple(_card(gpu) for gpu in made["gpus"])
        levels = [[Level(level) for level in row] for row in _rows(made["pairs"]["level"], count)]
        nvlinks = _rows(made["pairs"]["nvlinks"], count)
        joined = _joined(made["nvlink"], count)
        free = mask_of_text(made.get("free", "0"))
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"not a topology document: {str(error)[:_LONGEST]!r}") from None
    if not all(_possible(n) for row in ([c.links for c in cards], *nvlinks) for n in row):
        raise ValueError(f"not a topology document: no GPU has more than {_MOST_LINKS} NVLinks")
    if not _closed(levels, count):
        raise ValueError("not a topology document: its levels contradict each other")
    pairs = tuple(
        _pair(
            cards[i],
            cards[j],
            levels[i][j - i - 1],
            nvlinks[i][j - i - 1],
            joined=joined[i] >> j & 1 == 1,
        )
        for j in range(count)
        for i in range(j)
    )
    topology = build(TopologyRead(cards, pairs))
    if topology.cards != cards or len({card.uuid for card in cards}) != count:
        raise ValueError("not a topology document: its GPUs are not in their order")
    if free & ~topology.mask:
        raise ValueError(f"not a topology document: {free:x} has bits that are no GPU's")
    return topology, free


def _listed(rows: object, most: int) -> list[Any]:
    if not isinstance(rows, list) or len(rows) > most:
        raise ValueError(f"no list of up to {most}")
    return rows


def _rows(rows: object, count: int) -> list[list[Any]]:
    """Return the rows of pairs, of which row i has those of GPU i with i+1, i+2, ..."""
    listed = _listed(rows, MOST_GPUS)
    sizes = [len(_listed(row, MOST_GPUS)) for row in listed]
    if sizes != list(range(count - 1, 0, -1)):
        raise ValueError("there are not as many pairs as pairs of GPUs")
    if any(cell is not None and type(cell) is not int for row in listed for cell in row):
        raise TypeError("there is something else than whole numbers in the pairs")
    return listed


def _possible(number: int | None) -> bool:
    return number is None or 0 <= number <= _MOST_LINKS


def _joined(groups: object, count: int) -> list[int]:
    """Return the NVLink group of each GPU, 0 if it is in none."""
    joined = [0] * count
    for group in _listed(groups, MOST_GPUS):
        mask = mask_of_text(group["mask"])
        for number in bits(mask):
            joined[number] |= mask
    return joined


def _closed(levels: Sequence[Sequence[Level]], count: int) -> bool:
    """Whether GPUs that are at a level with a third one are so with each other, at each level."""
    for level in LEVELS:
        near = [1 << i for i in range(count)]
        for i, row in enumerate(levels):
            for j, told in enumerate(row, i + 1):
                if told <= level:
                    near[i] |= 1 << j
                    near[j] |= 1 << i
        # Of each the same is near as of the lowest one that is near it.
        if any(near[(mask & -mask).bit_length() - 1] != mask for mask in near):
            return False
    return True


def _card(gpu: Any) -> TopologyCard:
    card = TopologyCard(
        gpu["uuid"],
        gpu["index"],
        gpu["pci"],
        gpu["numa"],
        (),
        gpu["links"],
        gpu.get("cluster", ""),
        gpu.get("clique"),
        gpu.get("memory"),
    )
    texts: tuple[Any, ...] = (card.uuid, card.pci_bus_id, card.cluster)
    numbers = (card.index, card.numa_node, card.links, card.clique, card.memory_bytes)
    if not all(isinstance(text, str) and len(text) <= _LONGEST for text in texts):
        raise TypeError(f"uuid, pci and cluster are no texts of up to {_LONGEST} characters")
    if not all(number is None or type(number) is int for number in numbers):
        raise TypeError("there is something else than whole numbers in a GPU")
    return card


def _pair(
    a: TopologyCard, b: TopologyCard, level: Level, nvlinks: int | None, *, joined: bool
) -> TopologyPair:
    reachable = joined or None if nvlinks is None else nvlinks > 0
    return TopologyPair(a.uuid, b.uuid, level, nvlinks, reachable)
