"""How a node's GPUs are joined, what of them is free, and which to choose. Pure."""

from pipeline.topology.availability import Availability, CardState, CardUse, availability
from pipeline.topology.building import build
from pipeline.topology.choosing import Choice, best, link_score
from pipeline.topology.document import VERSION, Document, document, restored
from pipeline.topology.masks import bits, mask_of
from pipeline.topology.scores import DEFAULT, Scores
from pipeline.topology.shape import (
    LEVELS,
    SYMBOLS,
    Contradiction,
    Domain,
    DomainKind,
    Group,
    Link,
    Node,
    Topology,
)
from pipeline.topology.views import dot, matrix, symbol, tree

__all__ = [
    "DEFAULT",
    "LEVELS",
    "SYMBOLS",
    "VERSION",
    "Availability",
    "CardState",
    "CardUse",
    "Choice",
    "Contradiction",
    "Document",
    "Domain",
    "DomainKind",
    "Group",
    "Link",
    "Node",
    "Scores",
    "Topology",
    "availability",
    "best",
    "bits",
    "build",
    "document",
    "dot",
    "link_score",
    "mask_of",
    "matrix",
    "restored",
    "symbol",
    "tree",
]
