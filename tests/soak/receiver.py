"""OTLP receivers that fail in many ways, and record each point that they accept."""

import gzip
import hashlib
import socket
import threading
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, Literal

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import NumberDataPoint

from tests.e2e.processes import free_ports

Mood = Literal["well", "busy", "silent", "forgetful", "garbled"]
"""How a receiver responds: it accepts; responds with "unavailable"; does not respond; accepts and
disconnects; responds with bytes that are not its protocol."""

MOODS: Final[tuple[Mood, ...]] = ("busy", "silent", "forgetful", "garbled")


@dataclass
class Taken:
    """The received points.

    Attributes:
        points: the contents by a hash of the identity.
        again: the number of identical repetitions.
        contradicting: identities that were received with different contents.
    """

    points: dict[bytes, bytes] = field(default_factory=dict)
    again: int = 0
    contradicting: list[str] = field(default_factory=list)

    def add(self, message: bytes) -> None:
        request = ExportMetricsServiceRequest.FromString(message)
        for resource in request.resource_metrics:
            resource_key = resource.resource.SerializeToString(deterministic=True)
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    for point in (*metric.gauge.data_points, *metric.sum.data_points):
                        self._point(resource_key, metric.name, point)

    def _point(self, resource_key: bytes, name: str, point: NumberDataPoint) -> None:
        at = point.time_unix_nano
        pairs = sorted((one.key, one.value.SerializeToString()) for one in point.attributes)
        identity = _hash(resource_key, name.encode(), repr(pairs).encode(), str(at).encode())
        content = point.SerializeToString(deterministic=True)
        known = self.points.setdefault(identity, content)
        if known is content:
            return
        if known == content:
            self.again += 1
            return
        before = NumberDataPoint.FromString(known)
        place = [value.decode("ascii", "ignore") for key, value in pairs if key == "hw.id"]
        contents = ", ".join(_text(each) for each in (before, point))
        now = time.strftime("%H:%M:%S")
        self.contradicting.append(f"{now} {name} of {place} at {at}: {contents}")


def _value(point: NumberDataPoint) -> float:
    return point.as_int if point.WhichOneof("value") == "as_int" else point.as_double


def _text(point: NumberDataPoint) -> str:
    return f"{_value(point)} since {point.start_time_unix_nano}, flags {point.flags}"


def _hash(*parts: bytes) -> bytes:
    return hashlib.blake2b(b"\0".join(parts), digest_size=12).digest()


class Receiver(ABC):
    """A receiver at one address that can be stopped and restarted.

    Attributes:
        protocol: the value of the sink's option.
        taken: the received points.
        mood: how it responds; see `set_mood`.
    """

    protocol: str

    def __init__(self) -> None:
        (self.port,) = free_ports(1)
        self.taken = Taken()
        self.mood: Mood = "well"
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @abstractmethod
    def start(self) -> None:
        """Start to listen."""

    @abstractmethod
    def kill(self) -> None:
        """Stop; open connections get no response any more."""

    def set_mood(self, mood: Mood) -> None:
        """Change how the receiver responds."""
        self.mood = mood

    def take(self, message: bytes) -> None:
        with self._lock:
            self.taken.add(message)


class HttpReceiver(Receiver):
    """Receives messages over HTTP."""

    protocol = "http/protobuf"

    def __init__(self) -> None:
        super().__init__()
        self._server: ThreadingHTTPServer | None = None

    def start(self) -> None:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 30

            def do_POST(self) -> None:
                receiver.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            allow_reuse_address = True

            def handle_error(self, request: object, client_address: object) -> None:
                pass

        self._server = Server(("127.0.0.1", self.port), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def kill(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length", "0")))
        mood = self.mood if self._server is not None else "gone"
        if mood in {"well", "forgetful"} and request.path == "/v1/metrics":
            packed = request.headers.get("Content-Encoding") == "gzip"
            self.take(gzip.decompress(body) if packed else body)
        if mood == "silent":
            time.sleep(3)
        if mood in {"silent", "forgetful", "gone"}:
            request.close_connection = True
            request.connection.shutdown(socket.SHUT_RDWR)
            return
        if mood == "garbled":
            request.wfile.write(b"\x15\x03\x01 no HTTP\r\n\r\n")
            request.close_connection = True
            return
        request.send_response(200 if mood == "well" else 503)
        request.send_header("Content-Length", "0")
        request.end_headers()
