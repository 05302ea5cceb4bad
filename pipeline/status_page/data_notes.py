"""Say what a status document shows that is not measured on this node now."""

from collections.abc import Mapping, Sequence
from typing import Final

from pipeline.base.safe_text import line
from pipeline.model import SourceState
from pipeline.status_page.display_text import gpu_name
from pipeline.status_page.status_document import GpuStatus
from pipeline.status_page.usage_format import UsageStatus

_REPLAY: Final = "replay"
"""Kind of the source that plays a recording."""

_SIMULATED: Final = "(simulated)"
"""End of the model name of a GPU that the simulated NVML library made."""

_MOST_NAMED: Final = 8


def notes(
    sources: Mapping[str, SourceState], gpus: Sequence[GpuStatus], usage: UsageStatus | None
) -> tuple[str, ...]:
    """Return a sentence each about recordings, simulated GPUs, and sample data.

    Args:
        sources: the sources by name.
        gpus: the GPUs of the document.
        usage: usage from a ledger; None without a ledger.
    """
    return (*_recordings(sources), *_simulated(gpus), *_sample_data(usage))


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
        return (f"A part of this is a recording, played by {names}. Not recorded: {live}.",)
    return (f"This is a recording, played by {names}. It does not show this machine.",)


def _simulated(gpus: Sequence[GpuStatus]) -> Sequence[str]:
    found = [gpu_name(gpu) for gpu in gpus if (gpu.name or "").endswith(_SIMULATED)]
    if not found:
        return ()
    if len(found) == len(gpus):
        return ("All GPUs are simulated.",)
    listed = ", ".join(found[:_MOST_NAMED])
    more = len(found) - _MOST_NAMED
    listed += f" and {more} more" if more > 0 else ""
    return (f"These GPUs are simulated: {listed}.",)


def _sample_data(usage: UsageStatus | None) -> Sequence[str]:
    if usage is None or usage.sample_data is None:
        return ()
    what = "The usage of the last 24 hours and 28 days"
    return (f"{what} is sample data, made by {usage.sample_data}. It was not measured.",)


def _names(names: Sequence[str]) -> str:
    quoted = ", ".join(f'"{name}"' for name in names)
    return f"the source{'s' if len(names) > 1 else ''} {quoted}"
