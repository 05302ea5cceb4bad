"""An OTLP receiver over gRPC that can fail."""

import contextlib
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import grpc

from tests.sinks.otlp.transport.receivers import METHOD, SERVICE
from tests.soak.receiver import Mood, Receiver

_NOISE: Final = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n\x15\x03\x01"
_WORKERS: Final = 8


class GrpcReceiver(Receiver):
    """Receives messages over gRPC; in the mood `garbled` it does not respond in HTTP/2."""

    protocol = "grpc"

    def __init__(self) -> None:
        super().__init__()
        self._server: grpc.Server | None = None
        self._noise: _Noise | None = None

    def start(self) -> None:
        if self.mood == "garbled":
            self._noise = _Noise(self.port)
            return
        pool = ThreadPoolExecutor(_WORKERS)
        server = grpc.server(pool, options=[("grpc.so_reuseport", 0)])
        handler = grpc.unary_unary_rpc_method_handler(self._export)
        service = grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler})
        server.add_generic_rpc_handlers((service,))
        server.add_insecure_port(f"127.0.0.1:{self.port}")
        server.start()
        self._server = server

    def kill(self) -> None:
        if self._server is not None:
            self._server.stop(None).wait()
            self._server = None
        if self._noise is not None:
            self._noise.end()
            self._noise = None

    def set_mood(self, mood: Mood) -> None:
        garbled = "garbled" in (mood, self.mood)
        if garbled:
            self.kill()
        super().set_mood(mood)
        if garbled:
            self.start()

    def _export(self, message: bytes, context: Any) -> bytes:
        mood = self.mood
        if mood in {"well", "forgetful"}:
            self.take(message)
        if mood == "silent":
            time.sleep(3)
        if mood != "well":
            context.abort(grpc.StatusCode.UNAVAILABLE, mood)
        return b""


class _Noise:
    """A server that sends bytes that are not HTTP/2 to every client."""

    def __init__(self, port: int) -> None:
        self._listening = socket.create_server(("127.0.0.1", port))
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            with client, contextlib.suppress(OSError):
                client.sendall(_NOISE)

    def end(self) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()
