"""The connection of the fake runtime with one plugin."""

import queue
import socket
import struct
import threading
import time
from contextlib import suppress

from tests.fakes.nri import wire
from tests.fakes.nri.rules import HEADER, BrokenRuleError, Stream, require

PLUGIN = "nri.pkg.api.v1alpha1.Plugin"
_MUX = struct.Struct(">II")
_BUFFER = 4096


class GoneError(Exception):
    """The plugin has disconnected or was dropped."""


class RefusedError(Exception):
    """The plugin returned an error."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"code {code}: {text}")
        self.code = code


class Connection:
    """Reads in a thread, which checks the rules of the protocol, and writes like the Go side.

    Attributes:
        broken: the violated rules.
        registered: name and index of the plugin after it has registered.
        mask: the events that the plugin subscribes to.
    """

    def __init__(self, sock: socket.socket, number: int) -> None:
        self.number = number
        self.broken: list[str] = []
        self.registered: tuple[str, str] | None = None
        self.mask = 0
        self.alive = True
        self.old_methods = False
        self.replies = 0
        self.slowest = 0.0
        self.calls: queue.SimpleQueue[tuple[int, str, bytes] | None] = queue.SimpleQueue()
        self._socket = sock
        self._answers: dict[int, queue.SimpleQueue[bytes | None]] = {}
        self._next = 1
        self._streams = {1: Stream(1), 2: Stream(2)}
        threading.Thread(target=self._read, daemon=True).start()

    def close(self) -> None:
        self.alive = False
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def call(self, method: str, payload: bytes, deadline: float) -> bytes:
        """Call the plugin and return its response.

        As in Go, the deadline does not apply to writing.

        Raises:
            GoneError: the plugin has disconnected, or was late and is dropped.
            RefusedError: the plugin returned an error.
        """
        stream, self._next = self._next, self._next + 2
        answer = self._answers[stream] = queue.SimpleQueue()
        request = wire.message({1: PLUGIN, 2: method, 3: payload, 4: int(2e9), 5: [b"\n\x01a"]})
        started = time.monotonic()
        try:
            self.send(1, HEADER.pack(len(request), stream, 1, 0) + request)
            data = answer.get(timeout=max(deadline - time.monotonic(), 0.001))
        except (OSError, queue.Empty) as error:
            self.close()
            raise GoneError(f"{method}: {error!r}") from error
        self.slowest = max(self.slowest, time.monotonic() - started)
        if data is None:
            raise GoneError(f"{method}: the connection is closed")
        status = wire.one(data, 1)
        if code := wire.number(status, 1):
            raise RefusedError(code, wire.one(status, 2).decode())
        return wire.one(data, 2)

    def answer(self, stream: int, payload: bytes = b"", code: int = 0, text: str = "") -> None:
        status = wire.message({1: code, 2: text})
        data = wire.message({1: status, 2: payload})
        self.send(2, HEADER.pack(len(data), stream, 2, 0) + data)

    def send(self, channel: int, message: bytes) -> None:
        """Write a message like the Go side: a part of the buffer's size first, then the rest."""
        parts = [message[:_BUFFER], message[_BUFFER:]]
        self.raw(b"".join(_MUX.pack(channel, len(part)) + part for part in parts if part))

    def raw(self, data: bytes) -> None:
        self._socket.sendall(data)

    def _read(self) -> None:
        with self._socket, suppress(OSError):
            buffer = bytearray()
            try:
                while data := self._socket.recv(1 << 16):
                    buffer += data
                    self._take(buffer)
            except BrokenRuleError as error:
                self.broken.append(str(error))
            if buffer and not self.broken and self.alive:
                self.broken.append("half a frame was left behind")
        self.alive = False
        self.calls.put(None)
        for answer in list(self._answers.values()):
            answer.put(None)

    def _take(self, buffer: bytearray) -> None:
        while len(buffer) >= _MUX.size:
            channel, length = _MUX.unpack_from(buffer)
            require(channel in self._streams, f"a frame of id {channel}")
            require(length <= 4194314, f"a frame of {length} bytes")
            if len(buffer) < _MUX.size + length:
                return
            payload = bytes(buffer[_MUX.size : _MUX.size + length])
            del buffer[: _MUX.size + length]
            for stream, data in self._streams[channel].frame(payload):
                if channel == 1:
                    require(stream in self._answers, f"an answer to call {stream}")
                    self.replies += 1
                    self._answers.pop(stream).put(data)
                else:
                    service, method = wire.one(data, 1).decode(), wire.one(data, 2).decode()
                    require(service == "nri.pkg.api.v1alpha1.Runtime", f"service {service}")
                    self.calls.put((stream, method, wire.one(data, 3)))
