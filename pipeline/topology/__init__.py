"""Topology of a node's GPUs, their availability, and the choice of GPUs for a pod. Pure."""

from pipeline.topology.document import VERSION, Document, document, restored
from pipeline.topology.link_scores import DEFAULT, Scores
from pipeline.topology.selection import Choice, best, link_score
from pipeline.topology.text_views import dot, matrix, symbol, tree
from pipeline.topology.tree_builder import build

__all__ = [
    "DEFAULT",
    "VERSION",
    "Choice",
    "Document",
    "Scores",
    "best",
    "build",
    "document",
    "dot",
    "link_score",
    "matrix",
    "restored",
    "symbol",
    "tree",
]
