"""Which nodes a pod fits on.

Unknown is not full: where nothing is required, a node that can't be judged passes, and the
scheduler's own count decides. Where something is required it doesn't.
"""

from dataclasses import dataclass
from typing import Final

from podgpu.extender.node_selection.gpu_requirement import Requirement
from podgpu.extender.node_selection.node_state import AtHand, NodeKnowledge
from podgpu.extender.node_selection.pod_demand import Demand


@dataclass(frozen=True, slots=True)
class FilterResult:
    """Whether a node passes.

    Attributes:
        reason: why it doesn't, for people; empty if it does.
        is_unresolvable: it would not even if all of its GPUs were free, by what a fresh annotation
            says; or the pod's requirement means nothing.
    """

    reason: str = ""
    is_unresolvable: bool = False


PASSED: Final = FilterResult()


def filter_node(demand: Demand, node: NodeKnowledge, now: float) -> FilterResult:
    """Return whether a pod fits on a node.

    Args:
        demand: what the pod asks for.
        node: what the node says.
        now: Unix time.
    """
    if not demand.count:
        return PASSED
    if demand.wrong:
        return _failed(demand.wrong, for_good=True)
    why = _why(demand, node.at_hand(now))
    if not why:
        return PASSED
    # What is stale or can't be read may become known.
    lasting = node.fresh(now) and _why(demand, node.with_all_free().at_hand(now)) != ""
    return _failed(why, for_good=lasting)


def unfiltered(demand: Demand, why: str) -> FilterResult:
    """Return the verdict on a node that there was no time to look at.

    Args:
        demand: what the pod asks for.
        why: for people.
    """
    return _failed(why) if demand.count and demand.required else PASSED


def _why(demand: Demand, found: AtHand | str) -> str:
    """Return why a pod doesn't fit on what is at hand; empty if it does, or nothing forbids it."""
    if demand.requirement is None:
        return "" if isinstance(found, str) else _counted(demand.count, found)
    if isinstance(found, str):
        return f"{found}, and the pod requires {demand.requirement.value}"
    return _grouped(demand.count, demand.requirement, found)


def _counted(count: int, found: AtHand) -> str:
    """Judge by how many GPUs there are; one that is held in part may have room."""
    free, part = found.free.bit_count(), (found.part & ~found.free).bit_count()
    if free + part >= count:
        return ""
    all_of_them = len(found.published.topology.cards)
    told = f"{free} of {all_of_them} GPUs {'is' if free == 1 else 'are'} free"
    if part:
        told += f" and {part} in part"
    return f"{told}, {count} {'is' if count == 1 else 'are'} asked for"


def _grouped(count: int, requirement: Requirement, found: AtHand) -> str:
    """Judge by the groups; any GPU of one may be among those that are not handed out."""
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
        f"handed out, nobody knows which, and no {title} has {count} free {gpus} without "
        f"{'it' if found.unsure == 1 else 'them'}, the most is {most}"
    )


def _failed(reason: str, *, for_good: bool = False) -> FilterResult:
    return FilterResult(f"podgpu: {reason}", for_good)
