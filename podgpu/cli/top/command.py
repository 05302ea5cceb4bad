"""Run `podgpu top`: query a daemon, and show its status live in a terminal, or once."""

import argparse
import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from shutil import get_terminal_size
from typing import Final

import msgspec

from pipeline.base.clock import Clock, SystemClock
from pipeline.base.errors import ComponentError, PermanentError, TransientError
from pipeline.model import Instant
from pipeline.status_page.display_text import summary
from pipeline.status_page.problem_text import problems
from pipeline.status_page.status_document import VERSION, StatusDocument
from podgpu.cli import daemon_client
from podgpu.cli.client_options import NO_ACCESS_OPTIONS, Access, access_of
from podgpu.cli.terminal_text import EXIT_UNWRITTEN, is_terminal, out, put, terminal_safe
from podgpu.cli.top.columns import heading, needed
from podgpu.cli.top.ui_state import State
from podgpu.cli.top.view import DaemonStatus, components, table

PATH: Final = "/status"
_DEFAULT_WIDTH: Final = 140
"""Width of the output if there is no terminal or the terminal's width is unknown."""


def top(arguments: argparse.Namespace) -> int:
    """`podgpu top`: show the status live, or print it once; return the exit status.

    Raises:
        ComponentError: the status cannot be read, or the terminal is unsuitable.
    """
    live = not arguments.once and is_terminal(out()) and is_terminal(sys.stdin)
    query = partial(fetch_status, access=access_of(arguments, os.environ))
    status = query(arguments.url)
    if not live:
        text = "\n".join(plain(status, _width(status)))
        return 0 if put(text, "podgpu top: the table") else EXIT_UNWRITTEN
    # Imported only if it is needed.
    from podgpu.cli.top.screen import show

    show(Poller(arguments.url, float(arguments.interval), SystemClock(), status, query))
    return 0


def plain(status: StatusDocument, width: int) -> list[str]:
    """Return the whole status as lines of text."""
    state = State(whole=True)
    lines = [f"{status.node}: {summary(status)}, {status.time:%Y-%m-%d %H:%M:%S} UTC"]
    lines += [f"! {problem}" for problem in problems(status)]
    lines += ["", heading(width), *(line.text for line in table(status, state, width)), ""]
    lines += components(status, width)
    return [terminal_safe(line).rstrip() for line in lines]


def _width(status: StatusDocument) -> int:
    """Return the terminal's width; without a terminal, a width at which no name is cut."""
    if is_terminal(out()):
        return get_terminal_size((_DEFAULT_WIDTH, 0)).columns
    devices = [device for gpu in status.gpus or () for device in (gpu, *gpu.instances)]
    return needed((each for device in devices for each in device.holders or ()), _DEFAULT_WIDTH)


class _Versioned(msgspec.Struct):
    version: int
    node: str


def fetch_status(url: str, access: Access = NO_ACCESS_OPTIONS) -> StatusDocument:
    """Return the status of a daemon.

    Args:
        url: address of the daemon.
        access: TLS and credentials.

    Raises:
        PermanentError: the address is invalid, a file of `access` cannot be used, or the server is
            not podgpu or is a newer podgpu.
        TransientError: there is no usable response now.
    """
    try:
        body = daemon_client.get(url, PATH, {}, access)
    except daemon_client.NotListeningError as error:
        raise TransientError(
            f"{error}; check that podgpu runs there, or give its address as --url"
        ) from error
    try:
        version = msgspec.json.decode(body, type=_Versioned).version
        if version > VERSION:
            raise PermanentError(
                f"{url}: the podgpu there is newer than this one; use its version of `podgpu top`"
            )
        return msgspec.json.decode(body, type=StatusDocument)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise PermanentError(f"{url}{PATH}: the response is not from podgpu") from error


class Poller:
    """Queries the daemon repeatedly, in a thread, because a response can take long.

    Args:
        url: address of the daemon.
        interval: seconds between a response and the next query.
        clock: the clock with which ages of responses are measured.
        first: the status that is known at the start.
        query: function that queries the daemon at an address.
    """

    def __init__(
        self,
        url: str,
        interval: float,
        clock: Clock,
        first: StatusDocument,
        query: Callable[[str], StatusDocument] = fetch_status,
    ) -> None:
        self._url = url
        self._interval = interval
        self._clock = clock
        self._query = query
        self._stop = threading.Event()
        # Replaced as a whole, so that the threads need no lock.
        self._known: tuple[StatusDocument, Instant, str] = (first, clock.now(), "")

    def start(self) -> None:
        """Start the thread. It runs until `stop` or the end of the process."""
        threading.Thread(target=self._run, name="podgpu-top", daemon=True).start()

    def stop(self) -> None:
        """Stop the queries."""
        self._stop.set()

    def feed(self) -> DaemonStatus:
        """Return the last status, its age, and the error of the last query."""
        status, at, error = self._known
        return DaemonStatus(status, at.seconds_until(self._clock.now()), error)

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            try:
                self._known = (self._query(self._url), self._clock.now(), "")
            except Exception as error:  # noqa: BLE001 - the user has to see every error
                bug = f"{type(error).__name__}: {error}; this is a bug in podgpu"
                text = str(error) if isinstance(error, ComponentError) else bug
                self._known = (*self._known[:2], text)
