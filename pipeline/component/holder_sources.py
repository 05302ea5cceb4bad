"""Which sources tell who holds the GPUs, and why it isn't known what is free."""

from typing import Final

from pipeline.base.safe_text import shortened
from pipeline.component.registry import ENTRIES, Holders
from pipeline.model import Snapshot, SourceState


def _kinds(*holders: Holders) -> frozenset[str]:
    return frozenset(kind for (_, kind), entry in ENTRIES.items() if entry.holders in holders)


LISTING_KINDS: Final = _kinds("all")
"""Kinds of source that list all that is held: it takes the word of one to know what is free."""

_REPORTING_KINDS: Final = _kinds("some", "all")
_MAY_LIST: Final = _kinds("all", "relayed")
_SHOWN: Final = 3


def lists_holders(snapshot: Snapshot) -> bool:
    """Whether a source is configured that lists all that is held, or may relay the word of one."""
    return any(state.kind in _MAY_LIST for state in snapshot.sources.values())


def availability_unknown_reason(snapshot: Snapshot) -> str:
    """Return why it isn't known what is free, and the mend.

    Returns:
        Empty where it is known, and where nobody is there to tell of holders.
    """
    if snapshot.topology is None or snapshot.availability is not None:
        return ""
    if not snapshot.topology_is_current:
        return topology_down_reason(snapshot)
    telling = {n: state for n, state in snapshot.sources.items() if state.kind in _REPORTING_KINDS}
    listing = {name: state for name, state in telling.items() if state.kind in LISTING_KINDS}
    if not listing:
        if not telling:
            return ""
        return (
            f"the source {next(iter(telling))} alone doesn't tell who holds what: "
            "add podresources or checkpoint"
        )
    if not any(state.up for state in listing.values()):
        told = "; ".join(_describe_source(name, state) for name, state in listing.items())
        return f"no source that lists the holders stands by its word: {told}"
    strange = [raw.text for state in snapshot.sources.values() for raw in state.unresolved]
    named = ", ".join(repr(shortened(text)) for text in strange[:_SHOWN])
    return (
        "some container holds GPUs by ids that name none of this node's, and nothing else tells "
        f"which it has: {named}; see podgpu_unresolved_device_ids_total"
    )


def topology_down_reason(snapshot: Snapshot) -> str:
    """Return why the source that told the topology doesn't tell it now; empty while it does."""
    if snapshot.topology is None or snapshot.topology_is_current:
        return ""
    state = snapshot.sources.get(snapshot.topology_source)
    reason = f": {state.reason}" if state is not None and state.reason else ""
    who = f"the source {snapshot.topology_source}, which told how the GPUs are joined"
    return f"{who}, is down{reason}"


def _describe_source(name: str, state: SourceState) -> str:
    return f"{name}: {state.reason or 'has said nothing yet'}"
