"""List the problems of sources and sinks, and of GPUs that no source reports, from a document."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

from pipeline.status_page.display_text import amount, span, unresolved_text
from pipeline.status_page.status_document import (
    ErrorStatus,
    SinkStatus,
    SourceStatus,
    StatusDocument,
)
from pipeline.status_page.use_format import ProblemStatus

SILENT: Final = 300.0
"""Seconds after which a source that is up should have reported, or confirmed its claims, again."""

RECENT: Final = 900.0
"""Seconds after a loss of data during which the loss counts as a problem."""

_WHOLE_NODE: Final[dict[str, Any]] = {"where": None, "device": None}


def component_problems(status: StatusDocument) -> tuple[ProblemStatus, ...]:
    """Return the problems of podgpu's sources and sinks, in the order of the document."""
    return (*_gpus(status), *_sources(status), *_sinks(status))


def _gpus(status: StatusDocument) -> Iterator[ProblemStatus]:
    if status.gpus is None:
        down = [each.name for each in status.sources if each.state == "down"]
        why = f" (down: {', '.join(down)})" if down else " yet"
        cure = "the error of each source that is down says what to do" if down else None
        yield ProblemStatus(
            kind="no_gpus",
            severity="critical" if down else "warning",
            text=f"no source has reported GPUs{why}",
            advice=cure and f"{cure}; podgpu doctor says what the machine lacks",
            **_WHOLE_NODE,
        )
    if status.devices_left_out:
        yield ProblemStatus(
            kind="devices_left_out",
            severity="info",
            text=f"{amount(status.devices_left_out)} more devices are not shown",
            **_WHOLE_NODE,
        )


def _sources(status: StatusDocument) -> Iterator[ProblemStatus]:
    for source in status.sources:
        where = f"source {source.name}"
        if source.state == "down":
            why = source.error.text if source.error is not None else "no reason is known"
            begun = _begun(status, source.error)
            yield _problem("source_down", where, f"is down: {why}", **begun)
        elif source.state == "up" and (text := _silence(source)):
            yield _problem("source_silent", where, text)
        if text := unresolved_text(source.unresolved):
            yield _problem("unresolved_ids", where, f"reports {text}")


def _problem(kind: str, where: str, text: str, colon: str = "", **other: Any) -> ProblemStatus:
    return ProblemStatus(
        kind=kind,
        severity="warning",
        where=where,
        device=None,
        text=f"{where}{colon} {text}",
        **other,
    )


def _begun(status: StatusDocument, error: ErrorStatus | None) -> dict[str, Any]:
    """Return since when an error is known; it can have been reported before."""
    if error is None or error.age_seconds is None:
        return {}
    return {"since": status.time - timedelta(seconds=error.age_seconds)}


def _silence(source: SourceStatus) -> str:
    age, confirmed = source.age_seconds, source.confirmed_seconds
    if age is not None and age > SILENT:
        return f"is up, but has not reported for {span(age)}"
    if confirmed is not None and confirmed > SILENT:
        return f"has not confirmed its reports of holders for {span(confirmed)}"
    return ""


def _sinks(status: StatusDocument) -> Iterator[ProblemStatus]:
    for sink in status.sinks:
        yield from _sink(status, sink)


def _sink(status: StatusDocument, sink: SinkStatus) -> Iterator[ProblemStatus]:
    where, error = f"sink {sink.name}", sink.error
    # The text of a warning is omitted: it need not be the reason for the problem.
    why = f": {error.text}" if error is not None and error.over is not None else ""
    if sink.up is False:
        yield _problem("sink_down", where, f"is down{why}")
    elif sink.delivering is False:
        yield _problem("sink_not_delivering", where, f"nothing is delivered{why}", ":")
    if sink.queue_writable is False:
        text = (
            "its queue cannot be written to disk; data that waits in memory is lost if podgpu stops"
        )
        yield _problem("sink_queue", where, text, ":")
    if sink.lost_seconds is not None and sink.lost_seconds <= RECENT:
        counts = ((sink.dropped, "dropped"), (sink.rejected, "rejected"))
        counts_text = ", ".join(f"{amount(count)} {word}" for count, word in counts if count)
        why = f": {error.text}" if error is not None and error.over is False else ""
        text = f"loses data, {counts_text} since podgpu started{why}"
        last = status.time - timedelta(seconds=sink.lost_seconds)
        yield _problem("sink_losing", where, text, since=last)
