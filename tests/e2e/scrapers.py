"""Programs that scrape a page: two releases of Prometheus, vmagent, a Collector, node_exporter."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.points import NO_RECORDED_VALUE, messages
from tests.e2e.processes import Process, free_ports, get, wait_until
from tests.e2e.promql import QueriedPrometheus

EVERY = 1
"""Seconds between two scrapes."""

JOB = "podgpu"

OPENMETRICS, TEXT = "OpenMetricsText1.0.0", "PrometheusText0.0.4"

_SERIOUS = re.compile(r"(?i)\b(level=)?(warn(ing)?|error|fatal|panic)\b")
_OWN = re.compile(r"(?:up|scrape_\w+)")
"""Metrics that a scraper adds about the scrape."""


def job(address: str, **more: Any) -> dict[str, Any]:
    """Return a scrape job for one page; `more` are further keys of it."""
    return {
        "job_name": JOB,
        "honor_labels": True,
        "scrape_interval": f"{EVERY}s",
        "scrape_timeout": f"{EVERY}s",
        "static_configs": [{"targets": [address]}],
        **more,
    }


def serious(log: str) -> list[str]:
    """Return the lines of a log that are warnings or errors about something else than its user."""
    lines = [line for line in log.splitlines() if _SERIOUS.search(line)]
    return [line for line in lines if "running as root user" not in line]


class Scraping(QueriedPrometheus):
    """A Prometheus that scrapes, and that accepts what others send to it."""

    def __init__(self, program: Path, folder: Path, jobs: Sequence[Mapping[str, Any]]) -> None:
        folder.mkdir(parents=True)
        (port,) = free_ports(1)
        config = folder / "prometheus.json"
        config.write_text(json.dumps({"scrape_configs": list(jobs)}))  # JSON is YAML
        process = Process(
            [
                program,
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--web.enable-remote-write-receiver",
            ],
            folder / "prometheus.log",
        )
        super().__init__(process, port)

    def number(self, promql: str) -> float:
        """Return the only value of a query; 0 if there is none."""
        found = self.query(promql)
        assert len(found) < 2, (promql, found)
        return found[0].value if found else 0.0

    def refused(self) -> dict[str, float]:
        """Return its counts of samples that it did not accept, by reason."""
        page = get(self.port, "/metrics").body.decode()
        name = (
            r"prometheus_target_scrapes?_(?:sample_\w+|exceeded_\w+|cache_flush_\w+)_total"
            r"|prometheus_tsdb_out_of_order_samples_total|prometheus_tsdb_too_old_samples_total"
        )
        counted = re.findall(rf"^({name})(?:{{.*}})? (\S+)$", page, re.MULTILINE)
        assert any("duplicate_timestamp" in reason for reason, _ in counted)
        return {reason: float(count) for reason, count in counted if float(count)}


@contextmanager
def stopped(process: Process) -> Iterator[None]:
    """Stop a program at the end; its status must be 0."""
    try:
        yield
    finally:
        status = process.stop()
        # pytest shows it if the test has failed.
        print(process.output()[-3000:])
    assert status == 0


@contextmanager
def prometheus(
    program: Path, folder: Path, jobs: Sequence[Mapping[str, Any]]
) -> Iterator[Scraping]:
    server = Scraping(program, folder, jobs)
    with stopped(server.process):
        server.wait_ready()
        yield server


class Vmagent:
    """A vmagent that scrapes a page, and sends what it has scraped to a Prometheus."""

    def __init__(
        self, program: Path, folder: Path, jobs: Sequence[Mapping[str, Any]], receiver: Scraping
    ) -> None:
        folder.mkdir(parents=True)
        (self.port,) = free_ports(1)
        config = folder / "scrape.json"
        config.write_text(json.dumps({"scrape_configs": list(jobs)}))
        self.process = Process(
            [
                program,
                f"-httpListenAddr=127.0.0.1:{self.port}",
                f"-promscrape.config={config}",
                "-promscrape.config.strictParse",
                "-promscrape.maxScrapeSize=64MB",
                f"-remoteWrite.url=http://127.0.0.1:{receiver.port}/api/v1/write",
                "-remoteWrite.forcePromProto",
                # With several queues, samples can overtake each other.
                "-remoteWrite.queues=1",
                "-remoteWrite.flushInterval=200ms",
                f"-remoteWrite.tmpDataPath={folder / 'queue'}",
            ],
            folder / "vmagent.log",
        )

    def counts(self, name: str) -> dict[str, float]:
        """Return its own metrics whose name matches, by name and labels."""
        page = get(self.port, "/metrics").body.decode()
        found = re.findall(rf"^((?:{name})(?:{{.*}})?) (\S+)$", page, re.MULTILINE)
        return {series: float(value) for series, value in found}


@contextmanager
def vmagent(
    program: Path, folder: Path, jobs: Sequence[Mapping[str, Any]], receiver: Scraping
) -> Iterator[Vmagent]:
    agent = Vmagent(program, folder, jobs, receiver)
    with stopped(agent.process):
        agent.process.wait_for_answer(agent.port, "/health")
        yield agent


class ScrapingCollector:
    """A Collector whose Prometheus receiver scrapes, and which writes the points to a file."""

    def __init__(self, program: Path, folder: Path, jobs: Sequence[Mapping[str, Any]]) -> None:
        folder.mkdir(parents=True)
        self._file = folder / "points.jsonl"
        config = folder / "collector.json"
        # `$` begins a variable in a Collector's configuration.
        config.write_text(json.dumps(self._config(jobs)).replace("$", "$$"))
        self.process = Process([program, f"--config=file:{config}"], folder / "collector.log")
        wait_until(lambda: "Everything is ready" in self.process.output(), "the Collector")

    def scrapes(self) -> list["Scrape"]:
        return [_scrape(message) for message in messages(self._file)]

    def _config(self, jobs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return {
            "receivers": {"prometheus": {"config": {"scrape_configs": list(jobs)}}},
            "exporters": {
                "file": {"path": str(self._file), "rotation": {"max_megabytes": 100_000}}
            },
            "service": {
                "pipelines": {"metrics": {"receivers": ["prometheus"], "exporters": ["file"]}},
                "telemetry": {"metrics": {"level": "none"}},
            },
        }


@contextmanager
def scraping_collector(
    program: Path, folder: Path, jobs: Sequence[Mapping[str, Any]]
) -> Iterator[ScrapingCollector]:
    collector = ScrapingCollector(program, folder, jobs)
    with stopped(collector.process):
        yield collector


@dataclass(slots=True)
class Scrape:
    """What a Collector has made of one scrape.

    Attributes:
        about: values of the metrics that the Collector adds about the scrape.
        samples: number of samples of the page, by name and labels; more than one is a duplicate.
        ended: number of series that are not on the page any more.
    """

    about: dict[str, float]
    samples: Counter[tuple[str, str]]
    ended: int = 0


def _scrape(message: Mapping[str, Any]) -> Scrape:
    found = Scrape({}, Counter())
    for metric in (
        metric
        for resource in message.get("resourceMetrics", ())
        for scope in resource.get("scopeMetrics", ())
        for metric in scope.get("metrics", ())
    ):
        name = metric["name"]
        ((kind, data),) = (
            (kind, metric[kind]) for kind in ("gauge", "sum", "summary") if kind in metric
        )
        for point in data["dataPoints"]:
            if point.get("flags", 0) & NO_RECORDED_VALUE:
                found.ended += 1
            elif _OWN.fullmatch(name):
                found.about[name] = float(point.get("asDouble", point.get("asInt")))
            else:
                labels = json.dumps(point.get("attributes", []), sort_keys=True)
                # A summary has a sum and a count, and each quantile is a sample.
                parts = ["sum", "count", *map(str, point.get("quantileValues", ()))]
                for part in parts if kind == "summary" else [""]:
                    found.samples[f"{name} {part}", labels] += 1
    return found


class NodeExporter:
    """A node_exporter with its collector of text files, and no other."""

    def __init__(self, program: Path, folder: Path, files: Path) -> None:
        folder.mkdir(parents=True)
        (self.port,) = free_ports(1)
        self.process = Process(
            [
                program,
                f"--web.listen-address=127.0.0.1:{self.port}",
                "--collector.disable-defaults",
                "--collector.textfile",
                f"--collector.textfile.directory={files}",
            ],
            folder / "node_exporter.log",
        )

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def page(self) -> str:
        return get(self.port, "/metrics").body.decode()


@contextmanager
def node_exporter(program: Path, folder: Path, files: Path) -> Iterator[NodeExporter]:
    exporter = NodeExporter(program, folder, files)
    try:
        exporter.process.wait_for_answer(exporter.port, "/metrics")
        yield exporter
    finally:
        # It has no handler for SIGTERM.
        exporter.process.stop()
        print(exporter.process.output()[-3000:])
