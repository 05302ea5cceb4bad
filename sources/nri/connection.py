"""The connection: a thread that reads the socket, answers at once, and waits for nothing else.

The runtime writes to its plugins without a deadline and makes all of a node's containers wait for
them. So neither a late event loop nor a slow disk may come between a question and its answer: this
thread touches no lock that is held for long, no log and no file.
"""

import errno
import os
import select
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pipeline.base.clock import Clock
from sources.nri import mux, ttrpc
from sources.nri.errors import ConnectionLostError
from sources.nri.plugin import Plugin

_SYNC_TIMEOUT_NS: Final = 20 * 1_000_000_000
"""From connecting until the runtime has told of everything. It takes plugins one at a time, and
gives one that says nothing five seconds."""

_AT_ONCE: Final = 1 << 18
_SEND: Final = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
_LONGEST_PATH: Final = 107  # the kernel's


class Connection:
    """One connection.

    Attributes:
        plugin: its conversation.
        lost_reason: why it ended; empty while it goes on.
        error: what ended it that no other side can be blamed for: a bug.

    Args:
        path: the runtime's socket.
        converse: makes the conversation, given what sends.
        clock: for deadlines.
        notify: called, in the thread, when something was heard or the connection has ended.
    """

    def __init__(
        self,
        path: Path,
        converse: Callable[[Callable[[int, ttrpc.Encoded], None]], Plugin],
        clock: Clock,
        notify: Callable[[], None],
    ) -> None:
        self.plugin = converse(self._send)
        self.lost_reason = ""
        self.error: BaseException | None = None
        self._path = path
        self._clock = clock
        self._notify = notify
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._shut = ""
        self._turns = 0
        self._working = False

    def start(self) -> None:
        """Connect, register, and listen."""
        threading.Thread(target=self._run, name="podgpu-nri", daemon=True).start()

    def close(self, reason: str) -> None:
        """End the connection, at once and for both sides. Safe to call from any thread."""
        self._shut = self._shut or reason
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:  # it isn't connected, or not any more
            return

    @property
    def current_task(self) -> int | None:
        """Which piece of work the thread is at; None while it waits for the runtime."""
        return self._turns if self._working else None

    def _run(self) -> None:
        try:
            with self._socket:
                self._connect()
                self._converse()
        except ConnectionLostError as error:
            self.lost_reason = self._shut or str(error)
        except (BrokenPipeError, ConnectionResetError):
            self.lost_reason = self._shut or self._timeout_reason()
        except OSError as error:
            self.lost_reason = self._shut or f"the connection broke: {_reason(error)}"
        except BaseException as error:  # noqa: BLE001 - raised in the event loop
            self.error = error
            self.lost_reason = repr(error)
        self._notify()

    def _connect(self) -> None:
        if len(os.fsencode(self._path)) > _LONGEST_PATH:
            raise ConnectionLostError(
                f"is longer than the {_LONGEST_PATH} bytes that a socket's path may have; "
                "mount its folder elsewhere"
            )
        try:
            self._socket.connect(str(self._path))
        except OSError as error:
            raise ConnectionLostError(_HINTS.get(error.errno or 0, _reason(error))) from None

    def _converse(self) -> None:
        poller = select.poll()
        poller.register(self._socket, select.POLLIN)
        until_ns = self._clock.now().mono_ns + _SYNC_TIMEOUT_NS
        if not self._shut:
            self.plugin.register()
        while not self._shut:
            if not poller.poll(self._left_ms(until_ns)):
                raise ConnectionLostError(
                    f"it did not synchronise within {_SYNC_TIMEOUT_NS / 1e9:.0f} s"
                )
            self._turns += 1
            self._working = True
            data = self._socket.recv(_AT_ONCE)
            if not data:
                raise ConnectionLostError(self._timeout_reason())
            self.plugin.feed(data)
            self._working = False
            self._notify()
        raise ConnectionLostError(self._shut)

    def _left_ms(self, until_ns: int) -> int | None:
        if self.plugin.synchronized:
            return None
        return max((until_ns - self._clock.now().mono_ns) // 1_000_000, 0)

    def _timeout_reason(self) -> str:
        if self.plugin.synchronized:
            return "it closed the connection"
        if self.plugin.configured:
            return "it closed the connection before it had told of all containers"
        return "it closed the connection without asking for the plugin's events"

    def _send(self, stream: int, message: ttrpc.Encoded) -> None:
        """Send a message whole, or none: half of one would make the runtime stop reading."""
        parts = mux.frames(stream, *message)
        try:
            sent = self._socket.sendmsg(parts, (), _SEND)
        except BlockingIOError:
            sent = 0
        if sent != sum(map(len, parts)):
            raise ConnectionLostError("it does not read its answers")


_HINTS: Final = {
    errno.ENOENT: "no such socket; is NRI switched on in the container runtime, and its folder "
    "mounted from the host?",
    errno.ECONNREFUSED: "nobody listens: the container runtime is down",
    errno.EACCES: "permission denied; podgpu has to run as root",
    errno.EAGAIN: "too many others wait to be taken",
}


def _reason(error: OSError) -> str:
    return os.strerror(error.errno or 0).lower()
