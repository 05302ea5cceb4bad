"""How good nodes are for a pod, beside each other: 0 to 10 for each.

Up to 8 points are for the GPUs and up to 2 for what is left of the node:

* of several GPUs, their link score by the highest among the nodes in question;
* of a single one, how little taking it breaks, by the most among them;
* how few free GPUs are left, by the most that are left among them.

So of two nodes of which one is better in the one and not worse in the other, it has no fewer
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
    """Return the points of nodes that are asked about together.

    Args:
        fits: of each node; None where the pod doesn't fit, or nothing is known: it gets 0.
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
