"""Calculates how well free GPUs of a node fit a pod, and the scores of nodes from this.

A score has 0 to 10 points, relative to the other nodes of a request: up to 8 points for the GPUs,
and up to 2 for the rest of the node.

* for several GPUs: their link score, relative to the highest among the nodes
* for a single GPU: how few other free GPUs are in its group, relative to the most among the nodes
* for the rest: how few free GPUs are left on the node, relative to the most among the nodes

A node that is better in one of these, and not worse in the others, has at least as many points.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from pipeline.model.bitmask import bits
from pipeline.model.topology_tree import LEVELS, Topology
from pipeline.topology.selection import best
from podgpu.extender.node_selection.pod_demand import Requirement, groups


@dataclass(frozen=True, slots=True)
class Fit:
    """How well a pod fits on a node.

    Attributes:
        link_score: link score of the best choice of GPUs; 0 for a single GPU.
        breaks: for a single GPU, number of other free GPUs in its group; 0 for several GPUs.
        left: number of free GPUs that remain on the node.
    """

    link_score: int
    breaks: int
    left: int


def fit(
    topology: Topology,
    free: int,
    count: int,
    required: Requirement | None,
    *,
    unsure: int = 0,
    stop: Callable[[], bool] = lambda: False,
) -> Fit | None:
    """Return how well a pod fits on a node; None if it does not fit.

    Args:
        topology: the node's topology.
        free: mask of the node's free GPUs.
        count: number of GPUs that the pod requests, at least 1.
        required: kind of group that must contain the GPUs; None for any GPUs of the node.
        unsure: number of the node's GPUs that are not allocatable; they may be in any group.
        stop: function that is called repeatedly; after it returned True, the returned fit may be
            worse than the best one.
    """
    need = count if required is None else count + unsure
    among = [group & free for group in groups(topology, required)]
    among = [mask for mask in among if mask.bit_count() >= need]
    if not among:
        return None
    left = free.bit_count() - count
    if count == 1:
        return Fit(0, min(_broken(topology, free, n) for mask in among for n in bits(mask)), left)
    choices = [best(topology, mask, count, stop=stop) for mask in among if not stop()]
    return Fit(max((one.score for one in choices if one is not None), default=0), 0, left)


def _broken(topology: Topology, free: int, number: int) -> int:
    """Return the number of other free GPUs in the group of a GPU.

    The group is the NVLink group, as in `pipeline.topology.choice_ranking`. For a GPU without
    NVLink, it is the smallest node of the tree with two or more GPUs.
    """
    masks = [domain.mask for domain in topology.domains if domain.mask >> number & 1]
    if not masks:
        masks = [node.mask for level in LEVELS for node in topology.levels[level]]
    mine = [mask for mask in masks if mask >> number & 1 and mask & (mask - 1)]
    smallest = min(mine, key=int.bit_count, default=0)
    return (smallest & free & ~(1 << number)).bit_count()


LINKS: Final = 8
LEAVES: Final = 2
MOST: Final = LINKS + LEAVES
"""The highest score: kube-scheduler's MaxExtenderPriority (k8s.io/kube-scheduler/extender/v1)."""


def scored(fits: Sequence[Fit | None]) -> list[int]:
    """Return the scores of the nodes of one request.

    Args:
        fits: the fit of each node; None, with score 0, if the pod does not fit or this is unknown.
    """
    found = [fit for fit in fits if fit is not None]
    links = max((fit.link_score for fit in found), default=0)
    breaks = max((fit.breaks for fit in found), default=0)
    left = max((fit.left for fit in found), default=0)
    return [0 if fit is None else _points(fit, links, breaks, left) for fit in fits]


def _points(fit: Fit, links: int, breaks: int, left: int) -> int:
    joined = _part(fit.link_score, links) * (1 - _part(fit.breaks, breaks, none=0))
    points = LINKS * joined + LEAVES * (1 - _part(fit.left, left, none=0))
    return int(points + Fraction(1, 2))


def _part(value: int, most: int, *, none: int = 1) -> Fraction:
    return Fraction(value, most) if most > 0 else Fraction(none)
