"""Calculates how well free GPUs of a node fit a pod; node scores are made from this."""

from collections.abc import Callable
from dataclasses import dataclass

from pipeline.model.bitmask import bits
from pipeline.model.topology_tree import LEVELS, Topology
from pipeline.topology import best
from podgpu.extender.node_selection.gpu_requirement import Requirement, groups


@dataclass(frozen=True, slots=True)
class Fit:
    """How well a pod fits on a node.

    Attributes:
        link_score: of the best choice of GPUs, see `pipeline.topology.best`; 0 for a single GPU.
        breaks: for a single GPU, how many other GPUs are free in its group; 0 for several GPUs.
        left: free GPUs that remain on the node.
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
        free: mask of its free GPUs.
        count: how many GPUs the pod requests, at least 1.
        required: the group that must contain them; None for any.
        unsure: how many of the node's GPUs are not allocatable; they may be in any group.
        stop: called repeatedly; once it returns True, the fit may be worse than the best.
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
    """Return how many other GPUs are free in the group of a GPU.

    NVLink groups come first, as in `pipeline.topology.choice_ranking`. A GPU without NVLink is in
    the smallest node of the tree with two or more GPUs.
    """
    masks = [domain.mask for domain in topology.domains if domain.mask >> number & 1]
    if not masks:
        masks = [node.mask for level in LEVELS for node in topology.levels[level]]
    mine = [mask for mask in masks if mask >> number & 1 and mask & (mask - 1)]
    smallest = min(mine, key=int.bit_count, default=0)
    return (smallest & free & ~(1 << number)).bit_count()
