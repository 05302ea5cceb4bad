"""List the problems in a status document that need attention."""

from collections.abc import Iterator
from typing import Final

from pipeline.status_page.display_text import (
    amount,
    conflicts_text,
    gpu_name,
    placement_text,
    span,
    unresolved_text,
)
from pipeline.status_page.status_document import SinkStatus, SourceStatus, StatusDocument

SILENT: Final = 300.0
"""Seconds within which a source that is up should report and confirm its claims."""

RECENT: Final = 900.0
"""Seconds for which a loss of data counts as a problem."""


def problems(status: StatusDocument) -> list[str]:
    """Return one line for each problem, the most severe first; empty if there is none."""
    return [*_gpus(status), *_sources(status.sources), *_sinks(status.sinks), *_claims(status)]


def summary(status: StatusDocument) -> str:
    """Return the number of GPUs by state: `8 GPUs: 7 up, 1 lost; 56 MIG instances`."""
    if status.gpus is None:
        return "no GPU is known"
    count = len(status.gpus)
    states = [gpu.state for gpu in status.gpus]
    counts_text = ", ".join(
        f"{states.count(state)} {state}" for state in ("up", "lost", "unknown") if state in states
    )
    instances = sum(len(gpu.instances) for gpu in status.gpus)
    whole = f"{count} GPU{'' if count == 1 else 's'}" + (f": {counts_text}" if counts_text else "")
    if not instances:
        return whole
    return f"{whole}; {instances} MIG instance{'' if instances == 1 else 's'}"


def _gpus(status: StatusDocument) -> Iterator[str]:
    if status.gpus is None:
        down = [each.name for each in status.sources if each.state == "down"]
        why = f" (down: {', '.join(down)})" if down else " yet"
        yield f"no source has reported GPUs{why}"
        return
    for gpu in status.gpus:
        if gpu.state == "lost":
            yield f"{gpu_name(gpu)} is lost: it was present before and no longer responds"
    if status.devices_left_out:
        yield f"{amount(status.devices_left_out)} more devices are not shown"


def _sources(sources: tuple[SourceStatus, ...]) -> Iterator[str]:
    for source in sources:
        if source.state == "down":
            why = source.error.text if source.error is not None else "no reason is known"
            yield f"source {source.name} is down: {why}"
        elif source.state == "up":
            yield from _silent_source(source)
        if text := unresolved_text(source.unresolved):
            yield f"source {source.name} reports {text}"


def _silent_source(source: SourceStatus) -> Iterator[str]:
    age, confirmed = source.age_seconds, source.confirmed_seconds
    if age is not None and age > SILENT:
        yield f"source {source.name} is up, but has not reported for {span(age)}"
    elif confirmed is not None and confirmed > SILENT:
        yield (
            f"source {source.name} has not confirmed its reports of holders for {span(confirmed)}"
        )


def _sinks(sinks: tuple[SinkStatus, ...]) -> Iterator[str]:
    for sink in sinks:
        error = sink.error
        # The text of a warning is omitted: it need not be the reason for the problem.
        why = f": {error.text}" if error is not None and error.over is not None else ""
        if sink.up is False:
            yield f"sink {sink.name} is down{why}"
        elif sink.delivering is False:
            yield f"sink {sink.name}: nothing is delivered{why}"
        if sink.queue_writable is False:
            yield (
                f"sink {sink.name}: its queue cannot be written to disk; data that waits in memory "
                "is lost if podgpu stops"
            )
        if sink.lost_seconds is not None and sink.lost_seconds <= RECENT:
            counts = ((sink.dropped, "dropped"), (sink.rejected, "rejected"))
            counts_text = ", ".join(f"{amount(count)} {word}" for count, word in counts if count)
            why = f": {error.text}" if error is not None and error.over is False else ""
            yield f"sink {sink.name} loses data, {counts_text} since podgpu started{why}"


def _claims(status: StatusDocument) -> Iterator[str]:
    for gpu in status.gpus or ():
        if text := conflicts_text(gpu):
            yield f"{gpu_name(gpu)}: {text}"
        for each in gpu.instances:
            if text := conflicts_text(each):
                yield f"{gpu_name(gpu)} {each.profile or 'MIG'} {placement_text(each)}: {text}"
