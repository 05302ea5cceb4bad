"""The connection to the container runtime: a thread that reads the socket and responds.

The runtime writes to its plugins without a timeout, and all containers of the node wait for the
plugins. Therefore neither a slow event loop nor a slow disk may delay a response: the thread takes
no lock that is held for long, and writes no log and no file.
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
from sources.nri.mux import ConnectionLostError
from sources.nri.plugin import Plugin, Send

_SYNC_TIMEOUT_NS: Final = 20 * 1_000_000_000
"""Time limit from connecting until the runtime has listed all containers. The runtime registers one
plugin at a time, and waits five seconds for a plugin that does not respond."""

_READ_BYTES: Final = 1 << 18
_SEND_FLAGS: Final = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
_LONGEST_PATH: Final = 107  # limit of the kernel


class Connection:
    """One connection to the runtime.

    Attributes:
        plugin: handles the requests of this connection.
        lost_reason: why the connection ended; empty while it is open.
        error: the unexpected exception that ended the connection, which is a bug; None if there
            was no such exception.

    Args:
        path: the runtime's socket.
        make_plugin: creates the plugin; gets the function with which the plugin sends.
        clock: the clock for timeouts.
        notify: called in the thread after data was processed, and when the connection has ended.
    """

    def __init__(
        self,
        path: Path,
        make_plugin: Callable[[Send], Plugin],
        clock: Clock,
        notify: Callable[[], None],
    ) -> None:
        self.plugin = make_plugin(self._send)
        self.lost_reason = ""
        self.error: BaseException | None = None
        self._path = path
        self._clock = clock
        self._notify = notify
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._close_reason = ""
        self._work_count = 0
        self._is_working = False

    def start(self) -> None:
        """Connect, register, and process requests, in a new thread."""
        threading.Thread(target=self._run, name="podgpu-nri", daemon=True).start()

    def close(self, reason: str) -> None:
        """Close the connection immediately; any thread may call this. The first reason is kept."""
        self._close_reason = self._close_reason or reason
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:  # the socket is not connected
            return

    @property
    def current_task(self) -> int | None:
        """Serial number of the data that the thread processes; None while it waits for data."""
        return self._work_count if self._is_working else None

    def _run(self) -> None:
        try:
            with self._socket:
                self._connect()
                self._process()
        except ConnectionLostError as error:
            self.lost_reason = self._close_reason or str(error)
        except (BrokenPipeError, ConnectionResetError):
            self.lost_reason = self._close_reason or self._timeout_reason()
        except OSError as error:
            self.lost_reason = self._close_reason or f"the connection failed: {_reason(error)}"
        except BaseException as error:  # noqa: BLE001 - raised in the event loop
            self.error = error
            self.lost_reason = repr(error)
        self._notify()

    def _connect(self) -> None:
        if len(os.fsencode(self._path)) > _LONGEST_PATH:
            raise ConnectionLostError(
                f"the path is longer than {_LONGEST_PATH} bytes, the limit for a socket; "
                "mount its folder at a shorter path"
            )
        try:
            self._socket.connect(str(self._path))
        except OSError as error:
            raise ConnectionLostError(_HINTS.get(error.errno or 0, _reason(error))) from None

    def _process(self) -> None:
        poller = select.poll()
        poller.register(self._socket, select.POLLIN)
        until_ns = self._clock.now().mono_ns + _SYNC_TIMEOUT_NS
        if not self._close_reason:
            self.plugin.register()
        while not self._close_reason:
            left_ms = max((until_ns - self._clock.now().mono_ns) // 1_000_000, 0)
            if not poller.poll(None if self.plugin.synchronized else left_ms):
                raise ConnectionLostError(
                    f"the runtime did not synchronize within {_SYNC_TIMEOUT_NS / 1e9:.0f} s"
                )
            self._work_count += 1
            self._is_working = True
            data = self._socket.recv(_READ_BYTES)
            if not data:
                raise ConnectionLostError(self._timeout_reason())
            self.plugin.feed(data)
            self._is_working = False
            self._notify()
        raise ConnectionLostError(self._close_reason)

    def _timeout_reason(self) -> str:
        if self.plugin.synchronized:
            return "the runtime closed the connection"
        if self.plugin.configured:
            return "the runtime closed the connection before it had listed all containers"
        return "the runtime closed the connection before it sent podgpu its configuration"

    def _send(self, stream: int, message: ttrpc.Encoded) -> None:
        """Send a complete message, or raise `ConnectionLostError`.

        The runtime stops reading after an incomplete message.
        """
        parts = mux.frames(stream, *message)
        try:
            sent = self._socket.sendmsg(parts, (), _SEND_FLAGS)
        except BlockingIOError:
            sent = 0
        if sent != sum(map(len, parts)):
            raise ConnectionLostError("the runtime does not read podgpu's responses")


_HINTS: Final = {
    errno.ENOENT: "the socket does not exist; enable NRI in the container runtime, and mount its "
    "folder from the host",
    errno.ECONNREFUSED: "no process listens on the socket: the container runtime is down",
    errno.EACCES: "permission denied; run podgpu as root",
    errno.EAGAIN: "too many connections are waiting for the runtime",
}


def _reason(error: OSError) -> str:
    return os.strerror(error.errno or 0).lower()
