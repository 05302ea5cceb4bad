"""Calculates the scores of nodes for a pod, relative to each other: 0 to 10 points.

Up to 8 points are for the GPUs and up to 2 for the rest of the node:

* for several GPUs, their link score relative to the highest among the nodes;
* for a single GPU, how few free GPUs are left in its group, relative to the most among the nodes;
* how few free GPUs are left on the node, relative to the most among the nodes.

A node that is better than another in one of these, and not worse in the others, has no fewer
points.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Final

from podgpu.extender.node_selection.node_fit import Fit

LINKS: Final = 8
LEAVES: Final = 2
MOST: Final = LINKS + LEAVES
"""kube-scheduler's MaxExtenderPriority (k8s.io/kube-scheduler/extender/v1)."""


def scored(fits: Sequence[Fit | None]) -> list[int]:
    """Return the scores of the nodes of one request.

    Args:
        fits: one per node; None if the pod does not fit or nothing is known: the score is 0.
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
