"""A Prometheus 3 and a VictoriaMetrics with old samples, and the recording rules over them.

Samples and rules are backfilled, so that three hours of data do not need three hours: promtool and
vmalert evaluate the rules at the times that the data has.
"""

import http.client
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tests.e2e import peers
from tests.e2e.processes import Process, free_ports, get, wait_until
from tests.e2e.promql import QueriedPrometheus

_PASSES: Final = 3
"""promtool reads what other rules have recorded from the server: five minutes, hours, days."""


class BackfilledPrometheus(QueriedPrometheus):
    """A Prometheus 3 that has only what was backfilled.

    Args:
        folder: folder of its data and logs.
        options: more options.
    """

    def __init__(self, folder: Path, *options: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (port,) = free_ports(1)
        config = folder / "prometheus.yaml"
        config.write_text("{}")
        process = Process(
            [
                peers.prometheus().server,
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}",
                "--storage.tsdb.retention.time=100y",
                f"--web.listen-address=127.0.0.1:{port}",
                *options,
            ],
            folder / "prometheus.log",
        )
        super().__init__(process, port)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def prometheus(folder: Path, *options: str) -> Iterator[BackfilledPrometheus]:
    """Run a Prometheus on the data of a folder."""
    server = BackfilledPrometheus(folder, *options)
    try:
        server.wait_ready()
        yield server
    finally:
        server.process.stop()


def load_prometheus(folder: Path, samples: str) -> None:
    """Backfill samples in OpenMetrics."""
    folder.mkdir(parents=True, exist_ok=True)
    feed = folder / "samples.txt"
    feed.write_text(samples)
    _promtool("create-blocks-from", "openmetrics", str(feed), str(folder / "data"))


def record_prometheus(folder: Path, rules: Path, start: int, end: int) -> None:
    """Backfill the rules between two times, in seconds of Unix time."""
    for number in range(_PASSES):
        recorded = folder / f"recorded-{number}"
        with prometheus(folder) as server:
            _promtool(
                *("create-blocks-from", "rules", f"--start={start}", f"--end={end}"),
                *(f"--url={server.url}", f"--output-dir={recorded}", str(rules)),
            )
        # A later pass has what the earlier one has, and more.
        for earlier in folder.glob("data/recorded-*"):
            shutil.rmtree(earlier)
        for old in (folder / "blocks").read_text().split() if (folder / "blocks").exists() else ():
            shutil.rmtree(folder / "data" / old)
        names = [block.name for block in recorded.iterdir()]
        for name in names:
            shutil.move(recorded / name, folder / "data" / name)
        (folder / "blocks").write_text(" ".join(names))


def _promtool(*words: str) -> None:
    done = subprocess.run(
        [peers.prometheus().promtool, "tsdb", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _rfc3339(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class VictoriaMetrics(QueriedPrometheus):
    """A VictoriaMetrics."""

    def __init__(self, folder: Path, *options: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        (port,) = free_ports(1)
        process = Process(
            [
                peers.victoria_metrics().server,
                f"-storageDataPath={folder / 'data'}",
                "-retentionPeriod=100y",
                f"-httpListenAddr=127.0.0.1:{port}",
                "-inmemoryDataFlushInterval=1s",
                *options,
            ],
            folder / "victoria-metrics.log",
        )
        super().__init__(process, port)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def load(self, samples: str) -> None:
        """Import samples in OpenMetrics."""
        # Times are milliseconds here.
        lines = [line.rpartition(" ") for line in samples.splitlines() if line[:1] != "#"]
        body = "\n".join(f"{line} {round(float(at) * 1000)}" for line, _, at in lines)
        self._post("/api/v1/import/prometheus", body.encode())
        self.flush()

    def flush(self) -> None:
        """Make what was imported visible to queries."""
        assert get(self.port, "/internal/force_flush").status == 200
        assert get(self.port, "/internal/resetRollupResultCache").status == 200

    def record(self, rules: Path, start: int, end: int) -> None:
        """Evaluate the rules between two times, in seconds of Unix time, with vmalert."""
        (port,) = free_ports(1)
        process = Process(
            [
                peers.victoria_metrics().vmalert,
                f"-rule={rules}",
                f"-datasource.url={self.url}",
                f"-remoteWrite.url={self.url}",
                f"-replay.timeFrom={_rfc3339(start)}",
                f"-replay.timeTo={_rfc3339(end)}",
                "-replay.rulesDelay=1s",
                "-replay.disableProgressBar",
                f"-httpListenAddr=127.0.0.1:{port}",
                "-remoteWrite.flushInterval=100ms",
            ],
            self.folder / "vmalert.log",
        )
        wait_until(lambda: not process.running, f"vmalert: {process.output()[-2000:]}", 240, 0.5)
        assert process.stop() == 0, process.output()[-3000:]
        self.flush()

    def _post(self, path: str, body: bytes) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("POST", path, body)
            assert connection.getresponse().status == 204
        finally:
            connection.close()


@contextmanager
def victoria_metrics(folder: Path, *options: str) -> Iterator[VictoriaMetrics]:
    """Run a VictoriaMetrics."""
    server = VictoriaMetrics(folder, *options)
    try:
        server.process.wait_for_answer(server.port, "/health")
        yield server
    finally:
        server.process.stop()
