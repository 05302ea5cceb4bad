"""R5, R6, R18: start, reload, stop and a component's error in every order, on virtual time.

Of each pair the second comes before each turn of the event loop in which the first is under way.
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
    """Jumps to the next timer when there is nothing to do, and counts its turns.

    Attributes:
        now: seconds since the loop began.
        turns: how many there have been.
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
            assert loop._scheduled, "nothing will ever happen any more"
            self.now = max(self.now, loop._scheduled[0]._when)
        assert self.now < 300, "podgpu hangs"
        super()._run_once()  # type: ignore[misc]


class InlineExecutor(ThreadPoolExecutor):
    """Has no threads: each call ends in the event loop, after so many turns."""

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
    """Takes some time for everything."""

    async def __aenter__(self) -> "SlowSink":
        await asyncio.sleep(0.1)
        await super().__aenter__()
        return self

    async def run(self, inbox: SinkInbox) -> None:
        await super().run(inbox)
        await asyncio.sleep(0.5)


@dataclass
class Played:
    """What came of a run.

    Attributes:
        status: the exit status.
        config: in force at the end.
        stopped: seconds from the first SIGTERM to the end; None without one.
        turns: of the loop.
        unhandled: what the loop was told of.
        tasks: names of tasks left.
        held: sinks that were entered and not left.
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
    """One podgpu, and what can happen to it."""

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
        """Only a source changes: nothing is waited for before it starts."""
        self.reload(SOURCE)

    def error(self) -> None:
        self.broken = True
        self.wake.set()

    def _sink(self, kind: str) -> KeepingSink:
        sink = self.registered.sinks[kind]
        assert isinstance(sink, KeepingSink)
        return sink

    def play(self, *events: tuple[int, Callable[["Machine"], None]]) -> Played:
        """Run; each event comes before the turn of its number, at the earliest once it can."""
        self.wake = asyncio.Event()
        coming = sorted(events, key=lambda event: event[0])
        unhandled: list[str] = []

        def before(turn: int) -> None:
            while signal.SIGHUP in self.handlers and coming and coming[0][0] <= turn:
                coming.pop(0)[1](self)

        async def erring(_: SourceContext) -> None:
            while not self.broken:
                await self.wake.wait()
            raise PermanentError("it can't be had")

        async def gpus(ctx: SourceContext) -> None:
            while True:
                await ctx.emit(DevicesDiscovered(GPUS))
                await ctx.clock.sleep(1)

        self.registered.sources = {"gpus": gpus, "erring": erring}
        self.registered.sinks |= {"keep": SlowSink(), "other": KeepingSink()}
        loop = self.loop
        loop.before = before
        loop.add_signal_handler = self._handle  # type: ignore[method-assign, assignment]
        loop.set_exception_handler(lambda _, found: unhandled.append(str(found)))
        runtimes: list[Runtime] = []

        async def main() -> int:
            runtimes.append(Runtime(ONE, clock=LoopClock()))
            return await daemon.run(runtimes[0], self.path)

        try:
            status = loop.run_until_complete(main())
            tasks = [task.get_name() for task in asyncio.all_tasks(loop)]
            config = runtimes[0].config
            stopped = None if self.terminated is None else loop.now - self.terminated
        finally:
            for task in asyncio.all_tasks(loop):
                task.cancel()
            loop.close()
        held = [
            kind for kind in ("keep", "other") if self._sink(kind).entered != self._sink(kind).left
        ]
        return Played(status, config, stopped, loop.turns, unhandled, tasks, held)

    def _handle(self, signum: int, call: Callable[..., object], *args: Any) -> None:
        self.handlers[signum] = lambda: (call(*args), None)[1]


Machines = Callable[..., Machine]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Machines]:
    registered = Registered()
    registered.sinks |= {"keep": SlowSink(), "other": KeepingSink()}
    made: list[Machine] = []

    def make(stuck: str = "") -> Machine:
        made.append(Machine(registered, tmp_path / "podgpu.yaml", stuck))
        return made[-1]

    monkeypatch.setattr(daemon, "DaemonExecutor", InlineExecutor)
    monkeypatch.setattr(daemon, "load", lambda *_, **__: made[-1].file)
    with registered.installed(monkeypatch):
        yield make


Event = Callable[[Machine], None]
READY = 60
"""A turn of the loop in which all runs that has started."""

SPAN = 40
"""Turns within which a start, a reload or a stop is done."""


def sound(played: Played, caplog: pytest.LogCaptureFixture, *, grace: float = GRACE) -> None:
    assert played.unhandled == []
    assert played.tasks == []
    assert played.held == []
    assert played.stopped is None or played.stopped <= grace
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


@pytest.mark.parametrize("reading", [0, 5])
@pytest.mark.parametrize(("first", "second", "status", "config"), PAIRS)
def test_r5_r6_every_pair_at_every_turn_of_the_loop(
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
    """To read the file takes no time, or some turns."""
    monkeypatch.setattr(InlineExecutor, "turns", reading)
    caplog.set_level(logging.INFO)
    begin = READY if first is not None else 0
    for turn in range(begin, begin + SPAN):
        events = [(turn, second), (2 * READY + SPAN, Machine.sigterm)]
        played = machine().play(*([(begin, first)] if first is not None else []), *events)
        sound(played, caplog)
        assert played.status == status, turn
        assert config is None or played.config == config, turn


def test_r5_an_error_within_the_stop_ends_it_too(
    machine: Machines, caplog: pytest.LogCaptureFixture
) -> None:
    """The status is that of the signal, or of the error where that came before its source ended."""
    found = set()
    for turn in range(READY, READY + SPAN):
        played = machine().play((READY, Machine.sigterm), (turn, Machine.error))
        sound(played, caplog)
        found.add(played.status)
    assert found <= {0, 2}


@pytest.mark.parametrize("stuck", ["entering", "stopping"])
def test_r5_sigterm_within_a_reload_that_never_ends(
    machine: Machines, caplog: pytest.LogCaptureFixture, stuck: str
) -> None:
    """The new sink can't be entered, or the old one doesn't stop."""
    for turn in range(READY, READY + SPAN):
        played = machine(stuck).play((READY, Machine.reload), (turn, Machine.sigterm))
        sound(played, caplog, grace=GRACE + 1)
        assert played.status == 0, turn


@pytest.mark.parametrize("stop", [Machine.sigterm, Machine.error])
def test_r5_two_reloads_and_an_end(
    machine: Machines, caplog: pytest.LogCaptureFixture, stop: Event
) -> None:
    """The second reload waits behind the first, or is just being read."""
    for turn in range(READY, READY + SPAN, 4):
        for last in range(turn, READY + SPAN, 6):
            played = machine().play(
                (READY, Machine.reload), (turn, Machine.reload_again), (last, stop)
            )
            sound(played, caplog)
            assert played.status == (0 if stop is Machine.sigterm else 2), (turn, last)
