"""What of a node's status needs somebody."""

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
"""Seconds after which a source that is up should have reported, and stood by its word."""

RECENT: Final = 900.0
"""Seconds for which a loss needs somebody."""


def problems(status: StatusDocument) -> list[str]:
    """Return one line each, the gravest first; none if all is well."""
    return [*_gpus(status), *_sources(status.sources), *_sinks(status.sinks), *_claims(status)]


def summary(status: StatusDocument) -> str:
    """Return how many GPUs there are in which state: `8 GPUs: 7 up, 1 lost; 56 MIG instances`."""
    if status.gpus is None:
        return "no GPU is known"
    count = len(status.gpus)
    states = [gpu.state for gpu in status.gpus]
    told = ", ".join(
        f"{states.count(state)} {state}" for state in ("up", "lost", "unknown") if state in states
    )
    instances = sum(len(gpu.instances) for gpu in status.gpus)
    whole = f"{count} GPU{'' if count == 1 else 's'}" + (f": {told}" if told else "")
    if not instances:
        return whole
    return f"{whole}; {instances} MIG instance{'' if instances == 1 else 's'}"


def _gpus(status: StatusDocument) -> Iterator[str]:
    if status.gpus is None:
        down = [each.name for each in status.sources if each.state == "down"]
        why = f": {', '.join(down)} can't work" if down else " yet"
        yield f"no source has told of GPUs{why}"
        return
    for gpu in status.gpus:
        if gpu.state == "lost":
            yield f"{gpu_name(gpu)} is lost: it was there, and does not answer any more"
    if status.devices_left_out:
        yield f"{amount(status.devices_left_out)} more devices are not shown"


def _sources(sources: tuple[SourceStatus, ...]) -> Iterator[str]:
    for source in sources:
        if source.state == "down":
            why = source.error.text if source.error is not None else "it doesn't say why"
            yield f"source {source.name} is down: {why}"
        elif source.state == "up":
            yield from _silent_source(source)
        if said := unresolved_text(source.unresolved):
            yield f"source {source.name} names {said}"


def _silent_source(source: SourceStatus) -> Iterator[str]:
    age, confirmed = source.age_seconds, source.confirmed_seconds
    if age is not None and age > SILENT:
        yield f"source {source.name} is up, and has said nothing for {span(age)}"
    elif confirmed is not None and confirmed > SILENT:
        yield (
            f"source {source.name} has not stood by what it says of holders for {span(confirmed)}"
        )


def _sinks(sinks: tuple[SinkStatus, ...]) -> Iterator[str]:
    for sink in sinks:
        error = sink.error
        # What a sink warns of, though it goes on, need not be why it can't work or loses something.
        why = f": {error.text}" if error is not None and error.over is not None else ""
        if sink.up is False:
            yield f"sink {sink.name} is down{why}"
        elif sink.delivering is False:
            yield f"sink {sink.name}: nothing is delivered{why}"
        if sink.queue_writable is False:
            yield (
                f"sink {sink.name}: the disk of its queue takes nothing, and what waits in memory "
                "is lost if podgpu ends"
            )
        if sink.lost_seconds is not None and sink.lost_seconds <= RECENT:
            counts = ((sink.dropped, "dropped"), (sink.rejected, "rejected"))
            told = ", ".join(f"{amount(count)} {word}" for count, word in counts if count)
            why = f": {error.text}" if error is not None and error.over is False else ""
            yield f"sink {sink.name} loses data, {told} since podgpu started{why}"


def _claims(status: StatusDocument) -> Iterator[str]:
    for gpu in status.gpus or ():
        if said := conflicts_text(gpu):
            yield f"{gpu_name(gpu)}: {said}"
        for each in gpu.instances:
            if said := conflicts_text(each):
                yield f"{gpu_name(gpu)} {each.profile or 'MIG'} {placement_text(each)}: {said}"
