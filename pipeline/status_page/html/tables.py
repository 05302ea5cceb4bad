"""Render the tables of sources and sinks."""

from typing import Final

from pipeline.status_page.display_text import amount, size, span, unresolved_text
from pipeline.status_page.html.elements import cell, row, table, text, unknown
from pipeline.status_page.status_document import ErrorStatus, SinkStatus, SourceStatus

_SOURCES: Final = ("Source", "State", "Last report", "Holders confirmed", "Restarts", "Last error")
_SINKS: Final = ("Sink", "State", "Emitted", "Queued", "Lost", "Last error")
_STATES: Final = {
    "up": "up",
    "down": '<span class="bad">down</span>',
    "waiting": '<span class="warn">no report yet</span>',
}


def sources(found: tuple[SourceStatus, ...]) -> str:
    """Return the table of sources."""
    return table("parts", "sources", _SOURCES, "".join(map(_source, found)))


def sinks(found: tuple[SinkStatus, ...]) -> str:
    """Return the table of sinks, or a sentence if there are none."""
    if not found:
        return "<p>No sinks are configured.</p>"
    return table("parts", "sinks", _SINKS, "".join(map(_sink, found)))


def _row(name: str, kind: str | None, note: str, *cells: str) -> str:
    kind_text = f' <span class="soft">{text(kind)}</span>' if kind and kind != name else ""
    return row(f"<b>{text(name)}</b>{kind_text}{note}", "".join(cells))


def _count(count: int | None, label: str) -> str:
    """Return the cell of a count; empty where the component has no such count."""
    return cell("", "no") if count is None else cell(amount(count), "num", label)


def _source(source: SourceStatus) -> str:
    played = "" if source.relayed_by is None else "<small>in the recording</small>"
    unresolved = unresolved_text(source.unresolved)
    note = f'<small class="warn">{unresolved}</small>' if unresolved else ""
    age, confirmed = source.age_seconds, source.confirmed_seconds
    return _row(
        source.name,
        source.kind,
        played,
        cell(_STATES[source.state] + note, label="State"),
        cell("never" if age is None else _ago(age), "num", "Last report"),
        # Empty for a source that reports no holders.
        cell(_ago(confirmed), "num", "Holders confirmed")
        if confirmed is not None
        else cell("", "no"),
        _count(source.restarts, "Restarts"),
        cell(_error(source.error), "wide", "Last error"),
    )


def _sink(sink: SinkStatus) -> str:
    state = '<span class="bad">down</span>'
    if sink.up is None:
        state = unknown("no report yet")
    elif sink.up:
        state = "up"
        if sink.delivering is not None:
            state = "delivering" if sink.delivering else '<span class="bad">not delivering</span>'
    if sink.queue_writable is False:
        state += '<small class="bad">its queue cannot be written to disk</small>'
    queued = "" if sink.queued is None else amount(sink.queued)
    if sink.queued and sink.oldest_seconds is not None:
        queued += f", oldest {span(sink.oldest_seconds)}"
    if sink.queue_bytes:
        queued += f"<small>{size(sink.queue_bytes)}</small>"
    lost = [
        f'<span class="warn">{amount(count)} {word}</span>'
        for count, word in ((sink.dropped, "dropped"), (sink.rejected, "rejected"))
        if count
    ]
    if sink.errors:
        lost.append(f'<small class="warn">{amount(sink.errors)} other errors</small>')
    none = "" if sink.dropped is None else amount(0)
    lost_text = "<br>".join(lost) or none
    return _row(
        sink.name,
        sink.kind,
        "",
        cell(state, label="State"),
        _count(sink.emitted, "Emitted"),
        cell(queued, "num", "Queued") if queued else cell("", "no"),
        cell(lost_text, "num", "Lost") if lost_text else cell("", "no"),
        cell(_error(sink.error), "wide", "Last error"),
    )


def _error(error: ErrorStatus | None) -> str:
    if error is None:
        return '<span class="soft">none</span>'
    age = "" if error.age_seconds is None else _ago(error.age_seconds)
    when = ", ".join(word for word in (age, "resolved" if error.over else "") if word)
    suffix = f' <span class="soft">({when})</span>' if when else ""
    kind = {True: "soft", False: "bad", None: "warn"}[error.over]
    return f'<span class="{kind}">{text(error.text)}</span>{suffix}'


def _ago(seconds: float) -> str:
    return f"{span(seconds)} ago"
