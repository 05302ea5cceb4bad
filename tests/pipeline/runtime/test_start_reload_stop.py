"""R5, R6, R18: start, reload, stop and an error of a component in every order, in virtual time.

For each pair of events, the second one is tried before each turn of the event loop in which the
first one is in progress.
"""

import asyncio
import heapq
import logging
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from config.schema import Config
from pipeline.base.errors import PermanentError
from pipeline.component.contracts import SinkInbox, SourceContext
from pipeline.model import DevicesDiscovered
from pipeline.runtime import daemon
from pipeline.runtime.runtime import Runtime
from tests.pipeline.runtime.runtimes import GPUS
from tests.support.components import KeepingSink, Registered, configured
from tests.support.contexts import LoopClock

GRACE = 10.0
ONE = configured({"g": ("gpus", 0), "e": ("erring", 0)}, {"k": ("keep", 0), "o": ("other", 0)})
TWO = configured({"g": ("gpus", 1), "e": ("erring", 0)}, {"k": ("keep", 1), "o": ("other", 0)})
THREE = configured({"g": ("gpus", 2), "e": ("erring", 0)}, {"k": ("keep", 2), "o": ("other", 1)})
SOURCE = configured({"g": ("gpus", 1), "e": ("erring", 0)}, {"k": ("keep", 0), "o": ("other", 0)})

pytestmark = pytest.mark.filterwarnings("error")


class SteppingLoop(asyncio.SelectorEventLoop):
    """An event loop that jumps to its next timer when it is idle, and counts its turns.

    Attributes:
        now: seconds since the loop began.
        turns: number of turns until now.
        before: called before each turn with its number.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.turns = 0
        self.before: Callable[[int], None] = lambda _: None
        super().__init__()

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        self.before(self.turns)
        self.turns += 1
        loop: Any = self
        while loop._scheduled and loop._scheduled[0]._cancelled:
            heapq.heappop(loop._scheduled)._scheduled = False
            loop._timer_cancelled_count -= 1
        if not loop._ready:
            assert loop._scheduled, "no event and no timer are left"
            self.now = max(self.now, loop._scheduled[0]._when)
        assert self.now < 300, "podgpu hangs"
        super()._run_once()  # type: ignore[misc]


class InlineExecutor(ThreadPoolExecutor):
    """An executor without threads: each call runs in the event loop, after `turns` timers."""

    turns = 0

    def __init__(self, *_: object, **__: object) -> None:
        super().__init__(1)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        loop = asyncio.get_running_loop()

        def after(turns: int) -> None:
            if turns:
                loop.call_later(0.02, after, turns - 1)
            elif done.set_running_or_notify_cancel():
                done.set_result(fn(*args, **kwargs))

        after(self.turns)
        return done


class SlowSink(KeepingSink):
    """A sink that takes some time to start and to stop."""

    async def __aenter__(self) -> "SlowSink":
        await asyncio.sleep(0.1)
        await super().__aenter__()
        return self

    async def run(self, inbox: SinkInbox) -> None:
        await super().run(inbox)
        await asyncio.sleep(0.5)


@dataclass
class Outcome:
    """The outcome of a run.

    Attributes:
        status: the exit status.
        config: the configuration in force at the end.
        stopped: seconds from the first SIGTERM to the end; None without one.
        turns: number of turns of the loop.
        unhandled: errors that the loop's exception handler received.
        tasks: names of the tasks that still exist.
        held: sinks that were entered and not closed.
    """

    status: int
    config: Config
    stopped: float | None
    turns: int
    unhandled: list[str]
    tasks: list[str]
    held: list[str]


@dataclass
class Machine:
    """A podgpu process, and the events that can happen to it."""

    registered: Registered
    path: Path
    stuck: str = ""
    loop: SteppingLoop = field(default_factory=SteppingLoop)
    handlers: dict[int, Callable[[], None]] = field(default_factory=dict)
    file: Config = ONE
    broken: bool = False
    terminated: float | None = None

    def sigterm(self) -> None:
        if self.terminated is None:
            self.terminated = self.loop.now
        self.handlers[signal.SIGTERM]()

    def reload(self, config: Config = TWO) -> None:
        self.file = config
        if self.stuck == "entering":
            self._sink("keep").door.clear()
        if self.stuck == "stopping":
            self._sink("keep").gate.clear()
        self.handlers[signal.SIGHUP]()

    def reload_again(self) -> None:
        self.reload(THREE)

    def reload_source(self) -> None:
        """Only a source changes: it starts without waiting for anything."""
        self.reload(SOURCE)

    def error(self) -> None:
        self.broken = True
        self.wake.set()

    def _sink(self, kind: str) -> KeepingSink:
        sink = self.registered.sinks[kind]
        assert isinstance(sink, KeepingSink)
        return sink

    def play(self, *events: tuple[int, Callable[["Machine"], None]]) -> Outcome:
        """Run podgpu; each event comes before the turn of its number, once podgpu can handle it."""
        self.wake = asyncio.Event()
        pending = sorted(events, key=lambda event: event[0])
        unhandled: list[str] = []

        def before(turn: int) -> None:
            while signal.SIGHUP in self.handlers and pending and pending[0][0] <= turn:
                pending.pop(0)[1](self)

        async def erring(_: SourceContext) -> None:
            while not self.broken:
                await self.wake.wait()
            raise PermanentError("the component can't start")

        async def gpus(ctx: SourceContext) -> None:
            while True:
                await ctx.emit(DevicesDiscovered(GPUS))
                await ctx.clock.sleep(1)

        self.registered.sources = {"gpus": gpus, "erring": erring}
        self.registered.sinks |= {"keep": SlowSink(), "other": KeepingSink()}
        loop = self.loop
        loop.before = before
        loop.add_signal_handler = self._handle  # type: ignore[method-assign, assignment]
        loop.set_exception_handler(lambda _, context: unhandled.append(str(context)))
        runtimes: list[Runtime] = []

        async def main() -> int:
            runtimes.append(Runtime(ONE, clock=LoopClock()))
            return await daemon.run(runtimes[0], self.path)

        try:
            status = loop.run_until_complete(main())
            config = runtimes[0].config
            stopped = None if self.terminated is None else loop.now - self.terminated
        finally:
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            loop.close()
        tasks = [task.get_name() for task in left]
        held = [
            kind for kind in ("keep", "other") if self._sink(kind).entered != self._sink(kind).left
        ]
        return Outcome(status, config, stopped, loop.turns, unhandled, tasks, held)

    def _handle(self, signum: int, call: Callable[..., object], *args: Any) -> None:
        self.handlers[signum] = lambda: (call(*args), None)[1]


Machines = Callable[..., Machine]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Machines]:
    registered = Registered()
    registered.sinks |= {"keep": SlowSink(), "other": KeepingSink()}
    # Earlier ones are not kept: the more tasks exist, the longer it takes to list those of a loop.
    current: list[Machine] = []

    def make(stuck: str = "") -> Machine:
        current[:] = [Machine(registered, tmp_path / "podgpu.yaml", stuck)]
        return current[0]

    # Calls of threads run in the event loop here, in which the path must not be resolved.
    monkeypatch.setattr("pipeline.files.file_watch.links_of", lambda _: ())
    monkeypatch.setattr(daemon, "DaemonExecutor", InlineExecutor)
    monkeypatch.setattr(daemon, "load", lambda *_, **__: current[0].file)
    with registered.installed(monkeypatch):
        yield make


Event = Callable[[Machine], None]
READY = 30
"""The number of a turn at which all components run."""

SPANS = {0: 26, 5: 38}
"""Number of turns within which a start, a reload or a stop ends, by the turns of reading a file."""

SPAN = SPANS[0]


def check(outcome: Outcome, caplog: pytest.LogCaptureFixture, *, grace: float = GRACE) -> None:
    assert outcome.unhandled == []
    assert outcome.tasks == []
    assert outcome.held == []
    assert outcome.stopped is None or outcome.stopped <= grace
    assert not [
        r
        for r in caplog.records
        if r.exc_info or (r.name == "asyncio" and r.levelno > logging.DEBUG)
    ]


PAIRS = [
    pytest.param(None, Machine.sigterm, 0, None, id="start-SIGTERM"),
    pytest.param(None, Machine.reload, 0, TWO, id="start-reload"),
    pytest.param(None, Machine.error, 2, None, id="start-error"),
    pytest.param(Machine.reload, Machine.sigterm, 0, None, id="reload-SIGTERM"),
    pytest.param(Machine.reload_source, Machine.sigterm, 0, None, id="source-SIGTERM"),
    pytest.param(Machine.reload, Machine.reload_again, 0, THREE, id="reload-reload"),
    pytest.param(Machine.reload, Machine.error, 2, None, id="reload-error"),
    pytest.param(Machine.sigterm, Machine.sigterm, 0, None, id="SIGTERM-SIGTERM"),
    pytest.param(Machine.sigterm, Machine.reload, 0, None, id="SIGTERM-reload"),
]


@pytest.mark.slow
@pytest.mark.parametrize("reading", [0, 5])
@pytest.mark.parametrize(("first", "second", "status", "config"), PAIRS)
def test_r5_r6_two_events_at_every_turn_of_the_loop_end_well(
    *,
    machine: Machines,
    caplog: pytest.LogCaptureFixture,
    first: Event | None,
    second: Event,
    status: int,
    config: Config | None,
    reading: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Reading the file takes no time, or some turns."""
    monkeypatch.setattr(InlineExecutor, "turns", reading)
    caplog.set_level(logging.INFO)
    begin = READY if first is not None else 0
    for turn in range(begin, begin + SPANS[reading]):
        # Until the end, there is time for two reloads.
        events = [(turn, second), (begin + 3 * SPANS[reading], Machine.sigterm)]
        outcome = machine().play(*([(begin, first)] if first is not None else []), *events)
        check(outcome, caplog)
        assert outcome.status == status, turn
        assert config is None or outcome.config == config, turn
        if outcome.turns <= turn:
            break  # podgpu ended before the second event, so later turns are the same


def test_r5_an_error_during_a_stop_does_not_prevent_the_end(
    machine: Machines, caplog: pytest.LogCaptureFixture
) -> None:
    """The exit status is that of the signal, or of the error if its source had not yet ended."""
    found = set()
    for turn in range(READY, READY + SPAN):
        outcome = machine().play((READY, Machine.sigterm), (turn, Machine.error))
        check(outcome, caplog)
        found.add(outcome.status)
        if outcome.turns <= turn:
            break
    assert found <= {0, 2}


@pytest.mark.slow
@pytest.mark.parametrize("stuck", ["entering", "stopping"])
def test_r5_sigterm_ends_podgpu_during_a_reload_that_hangs(
    machine: Machines, caplog: pytest.LogCaptureFixture, stuck: str
) -> None:
    """The new sink can't be entered, or the old one doesn't stop."""
    for turn in range(READY, READY + SPAN):
        outcome = machine(stuck).play((READY, Machine.reload), (turn, Machine.sigterm))
        check(outcome, caplog, grace=GRACE + 1)
        assert outcome.status == 0, turn


@pytest.mark.slow
@pytest.mark.parametrize("stop", [Machine.sigterm, Machine.error])
def test_r5_podgpu_ends_during_two_reloads(
    machine: Machines, caplog: pytest.LogCaptureFixture, stop: Event
) -> None:
    """The second reload waits for the first one, or its file is being read."""
    for turn in range(READY, READY + SPAN, 4):
        for last in range(turn, READY + 3 * SPAN // 2, 6):
            outcome = machine().play(
                (READY, Machine.reload), (turn, Machine.reload_again), (last, stop)
            )
            check(outcome, caplog)
            assert outcome.status == (0 if stop is Machine.sigterm else 2), (turn, last)
