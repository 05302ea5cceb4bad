"""Runs functions that block as if at the same time, in an order that a test decides.

Only one of them runs at any moment. Each runs in a thread until its next pause.
"""

import threading
from collections.abc import Callable


class KilledError(BaseException):
    """Ends an actor at a pause, as SIGKILL would: no code of it that catches exceptions runs."""


class Actors:
    """Functions that are run step by step."""

    def __init__(self) -> None:
        self._running: _Actor | None = None
        self.active: list[_Actor] = []

    def start(self, run: Callable[[], None]) -> None:
        """Add a function. It does not run yet."""
        self.active.append(_Actor(run))

    def step(self, index: int, *, kill: bool = False) -> None:
        """Run a function until its next pause or its end, or end it where it is."""
        actor = self._running = self.active[index]
        actor.step(kill=kill)
        self._running = None
        if not actor.thread.is_alive():
            self.active.remove(actor)
            if actor.error is not None:
                raise actor.error

    def pause(self) -> None:
        """Called by a function that runs: let the test decide what runs next."""
        if self._running is not None and threading.current_thread() is self._running.thread:
            self._running.pause()


class _Actor:
    def __init__(self, run: Callable[[], None]) -> None:
        self._go = threading.Semaphore(0)
        self._stopped = threading.Semaphore(0)
        self._run = run
        self._killed = False
        self._ended = False
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._main, daemon=True)
        self.thread.start()

    def step(self, *, kill: bool) -> None:
        self._killed = kill
        self._go.release()
        self._stopped.acquire()
        # A thread that has ended may still be alive for a moment.
        if self._killed or self._ended:
            self.thread.join()

    def pause(self) -> None:
        self._stopped.release()
        self._go.acquire()
        if self._killed:
            raise KilledError

    def _main(self) -> None:
        self._go.acquire()
        try:
            if not self._killed:
                self._run()
        except KilledError:
            pass
        except BaseException as error:  # noqa: BLE001 - the test raises it
            self.error = error
        finally:
            self._ended = True
            self._stopped.release()
