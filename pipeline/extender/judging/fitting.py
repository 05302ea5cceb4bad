"""How well some free GPUs of a node fit together: what the scores of nodes are made from."""

from dataclasses import dataclass

from pipeline.extender.judging.requirement import Requirement, groups
from pipeline.topology import LEVELS, Topology, best, bits


@dataclass(frozen=True, slots=True)
class Fit:
    """What a node gives to a pod.

    Attributes:
        link_score: of the best choice, see `pipeline.topology.best`; 0 of a single GPU.
        breaks: of a single GPU, how many others are free in the smallest group that it is taken
            from; 0 of several.
        left: free GPUs that are left on the node.
    """

    link_score: int
    breaks: int
    left: int


def fit(topology: Topology, free: int, count: int, required: Requirement | None) -> Fit | None:
    """Return how well a pod fits on a node; None if it doesn't.

    Args:
        topology: the node's.
        free: mask of its free GPUs.
        count: how many the pod asks for, at least 1.
        required: what they have to have in common.
    """
    among = [group & free for group in groups(topology, required)]
    among = [mask for mask in among if mask.bit_count() >= count]
    if not among:
        return None
    left = free.bit_count() - count
    if count == 1:
        return Fit(0, min(_broken(topology, free, n) for mask in among for n in bits(mask)), left)
    choices = [best(topology, mask, count) for mask in among]
    return Fit(max(choice.score for choice in choices if choice is not None), 0, left)


def _broken(topology: Topology, free: int, number: int) -> int:
    """Return how many other GPUs are free in the smallest group of two or more that a GPU is in."""
    masks = [domain.mask for domain in topology.domains]
    masks += [node.mask for level in LEVELS for node in topology.levels[level]]
    mine = [mask for mask in masks if mask >> number & 1 and mask & (mask - 1)]
    smallest = min(mine, key=int.bit_count, default=0)
    return (smallest & free & ~(1 << number)).bit_count()
