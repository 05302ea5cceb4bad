"""A topology and what is free of it as one JSON document, for endpoints, commands and annotations.

Masks are hexadecimal texts, since a JSON number is good for 53 bits in many readers.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from pipeline.model import Level, TopologyCard, TopologyPair, TopologyRead
from pipeline.topology.availability import Availability, CardUse
from pipeline.topology.building import build
from pipeline.topology.shape import Topology

VERSION: Final = 1
"""Of the document's shape. It grows when a reader of the old shape would be misled."""

Document: TypeAlias = dict[str, Any]


def document(
    topology: Topology,
    availability: Availability | None = None,
    memory: Mapping[str, int] | None = None,
) -> Document:
    """Return the document; `docs/topology.md` tells of each of its keys.

    Args:
        topology: the node's.
        availability: what is free; without it the document says nothing of that.
        memory: bytes of each GPU, by uuid, as far as they are known.
    """
    uses: list[CardUse | None] = [None] * len(topology.cards)
    if availability is not None:
        uses = list(availability.cards)
    count = len(topology.cards)
    rows = [[topology.links[i, j] for j in range(i + 1, count)] for i in range(count - 1)]
    made: Document = {
        "version": VERSION,
        "gpus": [
            _gpu(card, use, (memory or {}).get(card.uuid))
            for card, use in zip(topology.cards, uses, strict=True)
        ],
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


def _gpu(card: TopologyCard, use: CardUse | None, memory: int | None) -> Document:
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
    if memory is not None:
        made["memory"] = memory
    return made


def restored(made: object) -> tuple[Topology, int]:
    """Return the topology of a document and the mask of its free GPUs; 0 where it says none.

    Bridges above the GPUs and contradictory answers of the driver aren't in a document.

    Raises:
        ValueError: it isn't such a document, or one of another version.
    """
    if not isinstance(made, dict) or made.get("version") != VERSION:
        raise ValueError(f"not a topology document of version {VERSION}")
    try:
        cards = tuple(_card(gpu) for gpu in made["gpus"])
        levels, nvlinks = made["pairs"]["level"], made["pairs"]["nvlinks"]
        domains = [int(domain["mask"], 16) for domain in made["nvlink"]]
        pairs = tuple(
            _pair(
                cards[i],
                cards[j],
                levels[i][j - i - 1],
                nvlinks[i][j - i - 1],
                joined=any(mask >> i & mask >> j & 1 for mask in domains),
            )
            for j in range(len(cards))
            for i in range(j)
        )
        free = int(made.get("free", "0"), 16)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"not a topology document: {error!r}") from None
    topology = build(TopologyRead(cards, pairs))
    if topology.cards != cards or len({card.uuid for card in cards}) != len(cards):
        raise ValueError("not a topology document: its GPUs are not in their order")
    if free < 0 or free & ~topology.mask:
        raise ValueError(f"not a topology document: {free:x} has bits that are no GPU's")
    return topology, free


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
    )
    texts = (card.uuid, card.pci_bus_id, card.cluster)
    numbers = (card.index, card.numa_node, card.links, card.clique)
    if not all(isinstance(text, str) for text in texts):
        raise TypeError(f"{texts} are not texts")
    if not all(number is None or type(number) is int for number in numbers):
        raise TypeError(f"{numbers} are not whole numbers")
    return card


def _pair(
    a: TopologyCard, b: TopologyCard, level: Any, nvlinks: Any, *, joined: bool
) -> TopologyPair:
    if nvlinks is not None and type(nvlinks) is not int:
        raise TypeError(f"{nvlinks!r} is no number of NVLinks")
    reachable = joined or None if nvlinks is None else nvlinks > 0
    return TopologyPair(a.uuid, b.uuid, Level(level), nvlinks, reachable)
