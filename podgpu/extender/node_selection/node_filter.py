"""Decides which nodes a pod fits on.

If it is unknown which GPUs of a node are free, the node passes if the pod requires no group: then
only the scheduler's own count decides. It does not pass if the pod requires a group.
"""

from dataclasses import dataclass
from typing import Final

from podgpu.extender.node_selection.node_state import AtHand, NodeKnowledge
from podgpu.extender.node_selection.pod_demand import Demand, Requirement


@dataclass(frozen=True, slots=True)
class FilterResult:
    """Whether a node passes the filter.

    Attributes:
        reason: why the node does not pass; empty if it passes.
        is_unresolvable: whether the node would not pass even if all its GPUs were free, according
            to a fresh annotation; also True if the pod's requirement is invalid.
    """

    reason: str = ""
    is_unresolvable: bool = False


PASSED: Final = FilterResult()


def filter_node(demand: Demand, node: NodeKnowledge, now: float) -> FilterResult:
    """Return whether a node passes the filter for a pod.

    Args:
        demand: what the pod requests.
        node: what is known of the node.
        now: Unix time.
    """
    if not demand.count:
        return PASSED
    if demand.wrong:
        return _failed(demand.wrong, is_unresolvable=True)
    why = _why(demand, node.at_hand(now))
    if not why:
        return PASSED
    # A stale or invalid annotation may be replaced soon.
    lasting = node.fresh(now) and _why(demand, node.with_all_free().at_hand(now)) != ""
    return _failed(why, is_unresolvable=lasting)


def unfiltered(demand: Demand, why: str) -> FilterResult:
    """Return the result for a node that was not checked in time.

    The node fails if the pod requests GPUs and has a requirement or an invalid annotation.
    Otherwise it passes.

    Args:
        demand: what the pod requests.
        why: why the node was not checked, for messages.
    """
    needs_known = demand.requirement is not None or demand.wrong
    return _failed(why) if demand.count and needs_known else PASSED


def _why(demand: Demand, found: AtHand | str) -> str:
    """Return why a pod does not fit; empty if it fits, or if nothing is known and required."""
    if demand.requirement is None:
        return "" if isinstance(found, str) else _counted(demand.count, found)
    if isinstance(found, str):
        return f"{found}, and the pod requires {demand.requirement.value}"
    return _grouped(demand.count, demand.requirement, found)


def _counted(count: int, found: AtHand) -> str:
    """Return why there are too few GPUs; GPUs that are held in part count as free."""
    free, part = found.free.bit_count(), (found.part & ~found.free).bit_count()
    if free + part >= count:
        return ""
    total = len(found.published.topology.cards)
    text = f"{free} of {total} GPUs {'is' if free == 1 else 'are'} free"
    if part:
        text += f" and {part} in part"
    return f"{text}, the pod requests {count}"


def _grouped(count: int, requirement: Requirement, found: AtHand) -> str:
    """Return why no group has enough free GPUs.

    GPUs that are not allocatable may be in any group.
    """
    groups = requirement.groups(found.published.topology)
    most = max(((group & found.free).bit_count() for group in groups), default=0)
    if most - found.unsure >= count:
        return ""
    title = requirement.title
    if not groups:
        return f"the node has no {title}"
    gpus = "GPU" if count == 1 else "GPUs"
    largest = max(group.bit_count() for group in groups)
    if largest < count:
        return f"no {title} of the node has {count} {gpus}, the largest has {largest}"
    if most < count:
        return f"no {title} of the node has {count} free {gpus}, the most is {most}"
    are = "is" if found.unsure == 1 else "are"
    return (
        f"{found.unsure} of the node's {len(found.published.topology.cards)} GPUs {are} not "
        f"allocatable, it is unknown which, and no {title} has {count} free {gpus} without "
        f"{'it' if found.unsure == 1 else 'them'}, the most is {most}"
    )


def _failed(reason: str, *, is_unresolvable: bool = False) -> FilterResult:
    return FilterResult(f"podgpu: {reason}", is_unresolvable)
