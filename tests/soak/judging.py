"""Checks at the end of a soak test: no leaks, no missing points, and a correct ledger."""

import json
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Final

from pipeline.model import NS
from tests.e2e.queue_content import kept
from tests.pipeline.ledger.open_ledger import assert_adds_up, window_of
from tests.soak.checker import Checker, Figures, Page
from tests.soak.world import BUSY, GPUS, PODS, WATTS, World

MEMORY: Final = 40.0
"""MiB by which podgpu may have grown: the most that it holds for clients."""

THREADS, DESCRIPTORS = 6, 16
"""By how much these may have grown: a thread and some files for each restarted component."""

_DRAIN: Final = 60.0
_EXACT: Final = 6.0
"""Seconds of a device's time that may be missing, besides those with a known reason."""

_LATE: Final = 2.0
"""Seconds that podgpu may take to notice another holder of a GPU, and to take a sample."""

_ACCEPT: Final = "socket.accept() out of system resource"
_LINES: Final = 40
"""The highest mean number of log lines for each fault."""


def judge(world: World, checker: Checker, first: Figures, last: Figures) -> None:
    """Check everything, stop podgpu, and check its files; pass errors to `Checker.note`."""
    print(f"at first {first}\nat last  {last}\nat most  {checker.most}")
    print(f"{checker.pages} pages; the slowest response took {checker.slowest:.2f} s", flush=True)
    for text in _grown(first, last):
        checker.note(text)
    drained = time.monotonic() + _DRAIN
    while checker.last is not None and time.monotonic() < drained:
        if all(_queued(checker.last, sink) < 1000 for sink in world.receivers):
            break
        time.sleep(1)
    else:
        checker.note("a queue is not empty a minute after the receivers are back")
    checker.stop()
    status = world.stop()
    if status != 0:
        checker.note(f"status {status} at SIGTERM")
    for part in (_points, _ledger, _lines, _log):
        try:
            for text in part(world, checker):
                checker.note(text)
        except Exception as error:  # noqa: BLE001 - a file that cannot be read is an error
            checker.note(f"{part.__name__}: {type(error).__name__}: {error}")


def _queued(page: Page, sink: str) -> float:
    return sum(page.of_sink(sink, "queued").values())


def _grown(first: Figures, last: Figures) -> Iterator[str]:
    if last.memory > first.memory + MEMORY:
        yield f"memory grew from {first.memory:.0f} to {last.memory:.0f} MiB"
    if last.threads > first.threads + THREADS:
        yield f"threads grew from {first.threads} to {last.threads}"
    if last.descriptors > first.descriptors + DESCRIPTORS:
        yield f"descriptors grew from {first.descriptors} to {last.descriptors}"


def _points(world: World, checker: Checker) -> Iterator[str]:
    for sink, receiver in world.receivers.items():
        totals, taken = kept(world.queue(sink)).totals, receiver.taken
        received = len(taken.points) + len(taken.contradicting)
        dropped, rejected = sum(totals.dropped.values()), sum(totals.rejected.values())
        print(
            f"points by {receiver.protocol}: {totals.appended} produced, {dropped} dropped and "
            f"counted, {rejected} rejected; {len(taken.points)} received, {taken.again} of them "
            "again",
            flush=True,
        )
        if (missing := totals.appended - dropped - rejected - received) > 0:
            yield f"{missing} points by {receiver.protocol} are lost and not counted"
        for text in taken.contradicting[:5]:
            yield f"received with two values by {receiver.protocol}: {text}"


def _ledger(world: World, checker: Checker) -> Iterator[str]:
    if aside := list(world.disk.glob("usage.db.corrupt-*")):
        yield f"ledger was set aside as corrupt: {aside}"
    with closing(sqlite3.connect(world.ledger)) as connection:
        if (result := connection.execute("PRAGMA integrity_check").fetchall()) != [("ok",)]:
            yield f"the ledger is damaged: {result}"
    window = window_of(world.ledger)
    assert_adds_up(window)
    totals = {one.device: one for one in window.totals}
    end = world.runs[-1].ended
    for gpu in range(GPUS):
        total = totals[world.uuid(gpu)]
        accounted, gap = total.accounted_ns / NS, total.gap_ns / NS
        whole = end - checker.account_start[world.uuid(gpu)]
        busy, joules = (total.busy_ns or 0) / NS, (total.energy_mj or 0) / 1000
        print(
            f"GPU {gpu}: {whole:.1f} s, of which {accounted:.1f} s accounted and {gap:.1f} s gap; "
            f"busy {100 * busy / accounted:.1f} %, {joules / accounted:.1f} W",
            flush=True,
        )
        # If a full disk prevents reading the accounts, they restart at zero without a gap before.
        unrecorded = world.unrecorded()
        if not -_EXACT - unrecorded <= accounted + gap - whole <= _EXACT:
            yield f"GPU {gpu}: {accounted + gap:.1f} s accounted and gap, of {whole:.1f} s"
        breaks = _EXACT + _LATE * world.breaks
        if abs(joules - WATTS * accounted) > WATTS * breaks:
            yield f"GPU {gpu}: {joules:.0f} J, and {WATTS * accounted:.0f} J were simulated"
        # Between a break and the next sample it is unknown which container was busy.
        more = busy - accounted * BUSY / 100
        most = _EXACT + world.wrong_busy + accounted * 0.02
        if not -breaks - world.wrong_busy - accounted * 0.02 <= more <= most:
            yield f"GPU {gpu}: busy {busy:.0f} s, and {accounted * BUSY / 100:.0f} s were simulated"
        for pod in PODS:
            parts = (
                one.held_ns / NS
                for one in window.usage
                if one.device == total.device and one.container and one.container.subject.pod == pod
            )
            held, true = sum(parts), world.held(gpu, pod, checker.account_start[total.device], end)
            late = _EXACT + _LATE * len(world.holding) + world.late
            if not true - gap - unrecorded - late <= held <= true + late:
                yield f"GPU {gpu}: {pod} held {held:.1f} s, and {true:.1f} s were simulated"


def _lines(world: World, checker: Checker) -> Iterator[str]:
    incomplete = 0
    for path in sorted(world.disk.glob("lines.jsonl*")):
        for line in path.read_text(errors="replace").splitlines():
            try:
                json.loads(line)
            except ValueError:
                incomplete += 1
    most = sum(run.killed or run.disk_full for run in world.runs)
    if incomplete > most:
        yield f"{incomplete} incomplete lines; podgpu was killed or its disk was full {most} times"


def _log(world: World, checker: Checker) -> Iterator[str]:
    text = world.log_text()
    for found in re.finditer("Traceback", text):
        place = found.start()
        if _ACCEPT in text[max(place - 300, 0) : place]:
            continue  # asyncio logs this itself, a few times a minute
        yield f"a traceback:\n{text[max(place - 500, 0) : place + 3000]}"
    lines, most = text.count("\n"), _LINES * (world.faults + 5)
    print(f"log: {lines} lines, of {world.faults} faults", flush=True)
    if lines > most:
        yield f"{lines} lines in the log"
