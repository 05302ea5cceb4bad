"""Say what a status document or a topology shows that is not measured on this node now."""

from collections.abc import Mapping, Sequence
from typing import Final

from pipeline.base.safe_text import line
from pipeline.model import Snapshot, SourceState
from pipeline.model.bitmask import mask_of, ranges
from pipeline.status_page.display_text import gpu_name
from pipeline.status_page.status_document import GpuStatus
from pipeline.status_page.usage_format import UsageStatus

_REPLAY: Final = "replay"
"""Kind of the source that plays a recording."""

_SIMULATED: Final = "(simulated)"
"""End of the model name of a GPU that the simulated NVML library made."""

_MOST_NAMED: Final = 64
"""Maximum number of simulated GPUs that are named, most of them as ranges of indexes."""

RECORDING: Final = "This is a recording, not this machine."
"""What is said of data that all comes from a recording."""


def notes(
    sources: Mapping[str, SourceState], gpus: Sequence[GpuStatus], usage: UsageStatus | None
) -> tuple[str, ...]:
    """Return a sentence each about recordings, sample data, and simulated GPUs.

    The last are the simulated GPUs, because their models say so too.

    Args:
        sources: the sources by name.
        gpus: the GPUs of the document.
        usage: usage from a ledger; None without a ledger.
    """
    simulated = [gpu for gpu in gpus if (gpu.name or "").endswith(_SIMULATED)]
    shown, more = simulated[:_MOST_NAMED], len(simulated) - _MOST_NAMED
    indexes = ranges(gpu.index for gpu in shown if gpu.index is not None)
    others = [gpu_name(gpu) for gpu in shown if gpu.index is None]
    named = ", ".join([f"GPU {indexes}", *others] if indexes else others)
    named += f" and {more} more" if more > 0 else ""
    return (
        *_recordings(sources),
        *_sample_data(usage),
        *_simulated(named, whole=len(simulated) == len(gpus)),
    )


def topology_notes(snapshot: Snapshot) -> tuple[str, ...]:
    """Return a sentence each about recordings and simulated GPUs in the topology of a snapshot."""
    topology, known = snapshot.topology, snapshot.layout.attributions
    if topology is None:
        return tuple(_recordings(snapshot.sources))
    models = [
        known[card.uuid].device.model if card.uuid in known else "" for card in topology.cards
    ]
    mask = mask_of(at for at, model in enumerate(models) if (model or "").endswith(_SIMULATED))
    named = topology.names(mask) if mask else ""
    return (*_recordings(snapshot.sources), *_simulated(named, whole=mask == topology.mask))


def _recordings(sources: Mapping[str, SourceState]) -> Sequence[str]:
    replays = [name for name, state in sources.items() if state.kind == _REPLAY]
    if not replays:
        return ()
    measured = [
        line(name)
        for name, state in sources.items()
        if name not in replays and state.relayed_by not in replays
    ]
    names = _names([line(name) for name in replays])
    if measured:
        live = _names(measured)
        return (f"A part of this is a recording ({names}). Not recorded: {live}.",)
    return (f"{RECORDING[:-1]} ({names}).",)


def _simulated(named: str, *, whole: bool) -> Sequence[str]:
    if not named:
        return ()
    return ("All GPUs are simulated.",) if whole else (f"Simulated: {named}.",)


def _sample_data(usage: UsageStatus | None) -> Sequence[str]:
    if usage is None or usage.sample_data is None:
        return ()
    what = "The usage of 28 days and the energy of containers contain"
    return (f"{what} sample data of {usage.sample_data}, not measured.",)


def _names(names: Sequence[str]) -> str:
    quoted = ", ".join(f'"{name}"' for name in names)
    return f"the source{'s' if len(names) > 1 else ''} {quoted}"
