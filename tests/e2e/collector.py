"""A real OpenTelemetry Collector that receives OTLP and writes it to files."""

import json
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.e2e import peers
from tests.e2e.logs import Log, logs
from tests.e2e.points import Point, Request, count, requests
from tests.e2e.processes import Process, free_ports, wait_until

_READY = "Everything is ready"


class Collector:
    """A Collector that tests can kill and restart on the same ports.

    It responds to a request only after it has written the request to a file, without a buffer. So
    acknowledged data survives any kill. Each run writes a separate file, so only the last line of a
    file can be incomplete.

    Attributes:
        grpc, http: the ports of the two receivers.
    """

    def __init__(
        self,
        folder: Path,
        *,
        tls: Mapping[str, object] | None = None,
        more: Mapping[str, Any] | None = None,
        logs: bool = True,
    ) -> None:
        """Prepare a folder and ports.

        Args:
            tls: for both receivers: `cert_file`, `key_file`, and `client_ca_file` for mutual TLS.
            more: configuration that is merged into the default one, at any depth.
            logs: whether it has a pipeline for log records.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.grpc, self.http = free_ports(2)
        self.process: Process | None = None
        self._runs = 0
        self._tls = tls
        self._more = more or {}
        self._logs = logs

    @property
    def grpc_url(self) -> str:
        return self._url(self.grpc)

    @property
    def http_url(self) -> str:
        return self._url(self.http)

    def url(self, protocol: str) -> str:
        """Return where it is reached by `grpc` or by `http/protobuf`."""
        return self.grpc_url if protocol == "grpc" else self.http_url

    def start(self) -> None:
        """Start it; after a stop on the same ports as before."""
        assert self.process is None or not self.process.running
        self._runs += 1
        config = self.folder / "collector.json"
        config.write_text(json.dumps(self._config()))  # JSON is YAML
        self.process = Process(
            [peers.collector(), f"--config=file:{config}"], self.folder / "collector.log"
        )
        wait_until(self._up, "the Collector")

    def kill(self) -> None:
        """Kill it."""
        assert self.process is not None
        self.process.stop(signal.SIGKILL)

    def stop(self) -> None:
        """Stop it. It finishes requests in progress first."""
        assert self.process is not None
        assert self.process.stop() == 0, self.output()[-3000:]

    def output(self) -> str:
        return self.process.output() if self.process is not None else ""

    def requests(self) -> list[Request]:
        """Return all received requests of all runs, in the order of arrival."""
        return [request for file in self._files() for request in requests(file)]

    def count(self) -> int:
        """Return the number of received requests."""
        return sum(map(count, self._files()))

    def size(self) -> int:
        """Return the size of the files of received requests; faster than `count`."""
        return sum(file.stat().st_size for file in self._files() if file.exists())

    def points(self) -> list[Point]:
        return [point for request in self.requests() for point in request.points]

    def logs(self) -> list[Log]:
        """Return all received log records, in the order of arrival."""
        files = [self._file_of_logs(run) for run in range(1, self._runs + 1)]
        return [log for file in files for log in logs(file)]

    def _up(self) -> bool:
        assert self.process is not None
        assert self.process.running, self.output()[-3000:]
        return self.output().count(_READY) == self._runs

    def _url(self, port: int) -> str:
        return f"http{'s' if self._tls else ''}://127.0.0.1:{port}"

    def _files(self) -> list[Path]:
        return [self._file(run) for run in range(1, self._runs + 1)]

    def _file(self, run: int) -> Path:
        return self.folder / f"taken-{run}.jsonl"

    def _file_of_logs(self, run: int) -> Path:
        return self.folder / f"logs-{run}.jsonl"

    def _config(self) -> dict[str, Any]:
        def receiver(port: int) -> dict[str, object]:
            endpoint = f"127.0.0.1:{port}"
            return {"endpoint": endpoint, **({"tls": dict(self._tls)} if self._tls else {})}

        def file(path: Path) -> dict[str, object]:
            # Without rotation it buffers data in memory and responds before it writes them.
            return {"path": str(path), "rotation": {"max_megabytes": 100_000}}

        pipelines = {"metrics": {"receivers": ["otlp"], "exporters": ["file"]}}
        if self._logs:
            pipelines["logs"] = {"receivers": ["otlp"], "exporters": ["file/logs"]}
        config = {
            "receivers": {
                "otlp": {"protocols": {"grpc": receiver(self.grpc), "http": receiver(self.http)}}
            },
            "exporters": {
                "file": file(self._file(self._runs)),
                **({"file/logs": file(self._file_of_logs(self._runs))} if self._logs else {}),
            },
            "service": {
                "telemetry": {"metrics": {"level": "none"}},
                "pipelines": pipelines,
            },
        }
        return _laid_over(config, self._more)


def _laid_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        merged[key] = _laid_over(old, value) if both else value  # type: ignore[arg-type]
    return merged


@contextmanager
def collecting(
    folder: Path,
    *,
    tls: Mapping[str, object] | None = None,
    more: Mapping[str, Any] | None = None,
    up: bool = True,
    logs: bool = True,
) -> Iterator[Collector]:
    """Run a Collector and stop it at the end.

    Args:
        up: whether to start it.
        logs: whether it has a pipeline for log records.
    """
    collector = Collector(folder, tls=tls, more=more, logs=logs)
    try:
        if up:
            collector.start()
        yield collector
    finally:
        if collector.process is not None:
            collector.process.stop()
        # pytest shows it if the test has failed.
        print(collector.output()[-3000:])
