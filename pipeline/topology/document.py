"""Topology and availability as a JSON document, for HTTP endpoints, commands and annotations.

A mask is a hexadecimal text, because many JSON readers keep only 53 bits of a number.
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
"""Version of the document's format. It changes when a reader of the old format would be misled."""

MOST_GPUS: Final = 64
"""Limit for a document that is read; NVML knows no machine with more GPUs."""

_MOST_LINKS: Final = 64
"""Limit on NVLinks of a GPU in a document that is read; NVML knows 36."""

_LONGEST: Final = 128
"""Limit on characters of a text in a document that is read."""

_MASK: Final = re.compile(rf"[0-9a-f]{{1,{MOST_GPUS // 4}}}")

Document: TypeAlias = dict[str, Any]


def document(
    topology: Topology,
    availability: Availability | None = None,
    *,
    down: str = "",
    notes: Sequence[str] = (),
) -> Document:
    """Return the document; `docs/topology.md` describes its keys.

    Args:
        topology: the topology of the node.
        availability: which GPUs are free; None if unknown, then the document does not contain it.
        down: why the source of the topology is down; empty while it is up.
        notes: sentences about what is not measured on this node now.
    """
    uses: list[CardUse | None] = [None] * len(topology.cards)
    if availability is not None:
        uses = list(availability.cards)
    count = len(topology.cards)
    rows = [[topology.links[i, j] for j in range(i + 1, count)] for i in range(count - 1)]
    content: Document = {
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
        content["down"] = down
    if notes:
        content["notes"] = list(notes)
    if availability is not None:
        content["free"] = f"{availability.free:x}"
        content["part"] = f"{availability.part:x}"
        content["free_of"] = {
            level.name: [
                f"{availability.free_of(node):x}" for node in nodes if node.mask.bit_count() > 1
            ]
            for level, nodes in topology.levels.items()
        }
    return content


def _gpu(card: TopologyCard, use: CardUse | None) -> Document:
    content: Document = {
        "uuid": card.uuid,
        "index": card.index,
        "pci": card.pci_bus_id,
        "numa": card.numa_node,
        "links": card.links,
    }
    if card.clique is not None:
        content |= {"cluster": card.cluster, "clique": card.clique}
    if use is not None:
        share = use.free_share
        content |= {
            "state": use.state,
            "cores": 0 if use.state == "absent" else 100,
            "free_cores": None if share is None else round(100 * share, 4),
        }
    if card.memory_bytes is not None:
        content["memory"] = card.memory_bytes
    return content


def mask_of_text(text: object) -> int:
    """Return a mask from its text in a document.

    Raises:
        ValueError: the text is not a mask.
    """
    if not isinstance(text, str) or _MASK.fullmatch(text) is None:
        raise ValueError("a mask is not a hexadecimal text of up to 16 digits")
    return int(text, 16)


def restored(content: object) -> tuple[Topology, int]:
    """Return the topology of a document and the mask of its free GPUs; 0 if it does not list them.

    A document contains neither the bridges above the GPUs nor contradictory answers of the driver.
    Anyone may have written the document. For any content this takes some milliseconds at most.

    Raises:
        ValueError: the content is no topology document, or has another version, or too many GPUs.
    """
    if not isinstance(content, dict) or content.get("version") != VERSION:
        raise ValueError(f"not a topology document of version {VERSION}")
    try:
        count = len(_listed(content["gpus"], MOST_GPUS))
        cards = tuple(_card(gpu) for gpu in content["gpus"])
        levels = [
            [Level(level) for level in row] for row in _rows(content["pairs"]["level"], count)
        ]
        nvlinks = _rows(content["pairs"]["nvlinks"], count)
        joined = _joined(content["nvlink"], count)
        free = mask_of_text(content.get("free", "0"))
    except KeyError as error:
        raise ValueError(f"not a topology document: the key {error} is missing") from None
    except (IndexError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"not a topology document: {str(error)[:_LONGEST]!r}") from None
    numbers = [n for row in ([c.links for c in cards], *nvlinks) for n in row if n is not None]
    if not all(0 <= number <= _MOST_LINKS for number in numbers):
        raise ValueError(
            f"not a topology document: a number of NVLinks is not from 0 to {_MOST_LINKS}"
        )
    if not _closed(levels, count):
        raise ValueError("not a topology document: its levels contradict each other")
    pairs = []
    for j, card in enumerate(cards):
        for i in range(j):
            level, links = levels[i][j - i - 1], nvlinks[i][j - i - 1]
            in_one_group = joined[i] >> j & 1 == 1
            reachable = in_one_group or None if links is None else links > 0
            pairs.append(TopologyPair(cards[i].uuid, card.uuid, level, links, reachable))
    topology = build(TopologyRead(cards, tuple(pairs)))
    if topology.cards != cards or len({card.uuid for card in cards}) != count:
        raise ValueError(
            "not a topology document: its GPUs are not sorted by index, or a uuid occurs twice"
        )
    if free & ~topology.mask:
        raise ValueError(
            f"not a topology document: free: the mask 0x{free:x} names GPUs that are not in the "
            "document"
        )
    return topology, free


def _listed(rows: object, most: int) -> list[Any]:
    if not isinstance(rows, list) or len(rows) > most:
        raise ValueError(f"not a list of up to {most} elements")
    return rows


def _rows(rows: object, count: int) -> list[list[Any]]:
    """Return the rows of pairs: row i has the pairs of GPU i with i+1, i+2, ..."""
    listed = _listed(rows, MOST_GPUS)
    sizes = [len(_listed(row, MOST_GPUS)) for row in listed]
    if sizes != list(range(count - 1, 0, -1)):
        raise ValueError("the number of pairs does not match the number of GPUs")
    if any(cell is not None and type(cell) is not int for row in listed for cell in row):
        raise TypeError("a value in pairs is not an integer")
    return listed


def _joined(groups: object, count: int) -> list[int]:
    """Return the mask of each GPU's NVLink group; 0 if it is in none."""
    joined = [0] * count
    for group in _listed(groups, MOST_GPUS):
        mask = mask_of_text(group["mask"])
        for number in bits(mask):
            joined[number] |= mask
    return joined


def _closed(levels: Sequence[Sequence[Level]], count: int) -> bool:
    """Whether the levels are transitive: GPUs that are near a third GPU are near each other."""
    for level in LEVELS:
        near = [1 << i for i in range(count)]
        for i, row in enumerate(levels):
            for j, reported in enumerate(row, i + 1):
                if reported <= level:
                    near[i] |= 1 << j
                    near[j] |= 1 << i
        # Every GPU must have the same near GPUs as the lowest of them.
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
        raise TypeError(f"uuid, pci or cluster is not a text of up to {_LONGEST} characters")
    if not all(number is None or type(number) is int for number in numbers):
        raise TypeError("index, numa, links, clique or memory of a GPU is not an integer")
    return card
