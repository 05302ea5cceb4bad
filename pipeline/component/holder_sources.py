"""Which sources report holders, and why it can be unknown which GPUs are free."""

from typing import Final

from pipeline.base.safe_text import shortened
from pipeline.component.kind import Holders
from pipeline.component.registry import KINDS
from pipeline.model import Snapshot, SourceState


def _kinds(*holders: Holders) -> frozenset[str]:
    return frozenset(kind for (_, kind), entry in KINDS.items() if entry.holders in holders)


LISTING_KINDS: Final = _kinds("all")
"""Kinds of source that list all holders. Without one, it is unknown which GPUs are free."""

_REPORTING_KINDS: Final = _kinds("some", "all")
_MAY_LIST: Final = _kinds("all", "relayed")
_OWNER_KINDS: Final = frozenset(
    kind for (_, kind), entry in KINDS.items() if "owners" in entry.resolves
)
"""Kinds of source that list all jobs, or all containers without pods."""

POD_LISTING_KINDS: Final = LISTING_KINDS - _OWNER_KINDS
"""Kinds of source that list all pods that hold GPUs."""

_TOPOLOGY_KINDS: Final = frozenset({"nvml"})
_SHOWN: Final = 3


def lists_holders(snapshot: Snapshot) -> bool:
    """Return whether a configured source lists all holders, or can relay a source that does."""
    return any(state.kind in _MAY_LIST for state in snapshot.sources.values())


def availability_unknown_reason(snapshot: Snapshot) -> str:
    """Return why it is unknown which GPUs are free, and how to fix it.

    Returns:
        An empty text if it is known, if there is no topology, or if no configured source reports
        holders.
    """
    if snapshot.topology is None or snapshot.availability is not None:
        return ""
    if not snapshot.topology_is_current:
        return topology_down_reason(snapshot)
    reporting = {
        name: state for name, state in snapshot.sources.items() if state.kind in _REPORTING_KINDS
    }
    listing = {name: state for name, state in reporting.items() if state.kind in LISTING_KINDS}
    if not listing:
        if not reporting:
            return ""
        return (
            f"source {next(iter(reporting))} does not report all containers that hold GPUs: "
            "add a source of kind podresources or checkpoint"
        )
    down = "; ".join(_describe_source(name, one) for name, one in listing.items() if not one.up)
    if not any(state.up for state in listing.values()):
        return f"no source that lists all holders is up: {down}"
    if down and any(state.kind in _OWNER_KINDS for state in listing.values()):
        return (
            f"pods, jobs and containers without pods can hold GPUs, and not all are known: {down}"
        )
    unresolved = [raw.text for state in snapshot.sources.values() for raw in state.unresolved]
    named = ", ".join(repr(shortened(text)) for text in unresolved[:_SHOWN])
    return (
        "a container holds GPUs under ids that match no GPU of this node, so podgpu does not know "
        f"which GPUs are free: {named}; see podgpu_unresolved_device_ids_total"
    )


def topology_down_reason(snapshot: Snapshot) -> str:
    """Return that the source of the topology is down, and why; empty if the source is up."""
    if snapshot.topology is None or snapshot.topology_is_current:
        return ""
    state = snapshot.sources.get(snapshot.topology_source)
    reason = f": {state.reason}" if state is not None and state.reason else ""
    source = f"the source {snapshot.topology_source}, which reported the topology"
    return f"{source}, is down{reason}"


def topology_missing_reason(snapshot: Snapshot) -> str:
    """Return why a source that can read the topology has not reported one; empty if none can."""
    silent = [
        _describe_source(name, state)
        for name, state in snapshot.sources.items()
        if state.kind in _TOPOLOGY_KINDS and not state.up
    ]
    return f"no source has reported the topology yet; {'; '.join(silent)}" if silent else ""


def _describe_source(name: str, state: SourceState) -> str:
    return f"{name}: {state.reason or 'has not reported yet'}"
