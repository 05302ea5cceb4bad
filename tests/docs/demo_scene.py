"""The node of `podgpu demo` at one moment of its recording, always with the same values.

The recording is played into a real join, without waiting, and the ledger is written as the demo
writes it. So the page, `podgpu top` and `podgpu usage` can be compared with files.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from pipeline.base.telemetry import FAMILIES, FamilyPoints, Point
from pipeline.http.builtin_pages import Links
from pipeline.join import Join
from pipeline.ledger.file_open import open_readonly
from pipeline.ledger.queries import read_hours, read_window
from pipeline.ledger.reports import GroupBy, Prices, build_report
from pipeline.model import NS, ClockTicked, Envelope, Instant, TotalsRestored
from pipeline.status_page.daemon_state import StatusInput
from pipeline.status_page.document_builder import status_of
from pipeline.status_page.html.page import body, footer
from pipeline.status_page.last_day_usage import DAY_NS, MOST_DAYS, LastDayUsage
from pipeline.status_page.recent_past import RecentPast
from pipeline.status_page.status_document import StatusDocument
from podgpu.cli.demo.ledger_file import write
from podgpu.cli.demo.recorded_node import read_node
from podgpu.cli.top.daemon_status import DaemonStatus
from podgpu.cli.top.styled_text import Span, Style
from podgpu.cli.top.ui_state import State
from podgpu.cli.top.view import frame
from podgpu.cli.usage.report_table import report_lines
from sources.replay.continuation import Continuation
from sources.replay.options import DEMO, recording_path
from sources.replay.recording_pass import ReplayPass

STARTED: Final = Instant(1_000_000 * NS, 1_800_000_000 * NS)
"""When the demo was started: 2027-01-15 08:00 UTC."""
PASSES: Final = 1
"""How often the recording is played before, so that the graphs show some minutes."""
STEP_NS: Final = 5 * NS
"""Time between two snapshots, which the graphs and the list of problems remember."""
SECOND: Final = 62
"""The moment of the next pass: GPU 5 has fallen off the bus."""
TOP_COLUMNS, TOP_LINES = 134, 42
WEEK_NS: Final = 7 * DAY_NS

_SGR: Final = {
    Style.STRONG: "1",
    Style.HEADING: "1;4",
    Style.SOFT: "2",
    Style.USE: "32",
    Style.MEMORY: "36",
    Style.POWER: "34",
    Style.WARNING: "1;35",
    Style.CRITICAL: "1;31",
}
"""Attributes of a terminal (ECMA-48) for the styles of `podgpu top`."""


@dataclass(frozen=True)
class Scene:
    """What a user of the demo sees at this moment."""

    status: StatusDocument
    usage: str

    @property
    def page(self) -> str:
        """The status page, which never reloads."""
        links: Links = (("/metrics", "metrics"), ("/status", "the same as this page, as JSON"))
        return body(self.status, links) + footer(0)

    @property
    def top(self) -> str:
        """The screen of `podgpu top`, with the attributes of a terminal."""
        shown = frame(DaemonStatus(self.status), State(), TOP_COLUMNS, TOP_LINES)
        return "".join("".join(map(_colored, line)).rstrip() + "\n" for line in shown.lines)


@cache
def scene() -> Scene:
    """Return the scene; it takes some seconds."""
    with TemporaryDirectory() as folder:
        return _scene(Path(folder) / "demo.db")


def _scene(ledger: Path) -> Scene:
    join, past, now = Join(), RecentPast(), STARTED
    for envelope in _events():
        while envelope.at.mono_ns > now.mono_ns + STEP_NS:
            now = Instant(now.mono_ns + STEP_NS, now.wall_ns + STEP_NS)
            join.apply(Envelope("", "clock", 0, now, ClockTicked()))
            past.add(join.snapshot(now))
        join.apply(envelope)
    snapshot = join.snapshot(now)
    past.add(snapshot)
    node = read_node(recording_path(DEMO))
    write(ledger, node, now)
    with closing(open_readonly(ledger)) as connection:
        day = read_window(connection, now.wall_ns - DAY_NS, now.wall_ns)
        week = read_window(connection, now.wall_ns - WEEK_NS, now.wall_ns)
        first_day = (now.wall_ns // DAY_NS - MOST_DAYS + 1) * DAY_NS
        hours = read_hours(connection, first_day, now.wall_ns)
    by_pod, by_device = (build_report(day, GroupBy(by), Prices()) for by in ("pod", "device"))
    status = status_of(
        StatusInput(
            node=node.name,
            version="0.1.0",
            now=now,
            ready=(True, "ready"),
            snapshot=snapshot,
            sources=join.sources(),
            holders_known=join.holders_known,
            sinks={"metrics": "prometheus", "usage": "ledger"},
            telemetry=list(_telemetry()),
            last_day=LastDayUsage("usage", by_pod, by_device, now, hours=hours),
            past=past.known(),
        )
    )
    lines = report_lines(build_report(week, GroupBy("namespace"), Prices()), 0)
    return Scene(status, "\n".join(lines) + "\n")


def _events() -> Iterator[Envelope]:
    """Yield the events of the recording, played repeatedly, up to the moment."""
    path, began = recording_path(DEMO), STARTED
    content, continuation = path.read_bytes(), Continuation()
    for number in range(PASSES + 1):
        played = ReplayPass(path, began, 1, continuation, original=False)
        parsed = played.events(content)
        while batch := played.take(parsed):
            for event in batch:
                if number == PASSES and event.at.mono_ns > began.mono_ns + SECOND * NS:
                    return
                # As the source replay does.
                if not (number and isinstance(event.event, TotalsRestored)):
                    yield Envelope(
                        event.source, event.kind, 0, event.at, event.event, relayed_by="recording"
                    )
        began = played.end()


def _telemetry() -> Iterator[FamilyPoints]:
    """Yield podgpu's own metrics about its start and its sinks."""
    families = {family.name: family for family in FAMILIES}
    started = STARTED.wall_ns / NS
    yield families["process_start_time_seconds"], [Point((), started)]
    for name, value in (("podgpu_sink_up", 1.0), ("podgpu_sink_dropped_total", 0.0)):
        yield families[name], [Point((("sink", sink),), value) for sink in ("metrics", "usage")]


def _colored(span: Span) -> str:
    code = _SGR.get(span.style)
    return f"\x1b[{code}m{span.text}\x1b[0m" if code and span.text.strip() else span.text
