"""A Prometheus that scrapes podgpus, and what can be asked of it."""

import json
import re
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.debian import Prometheus
from tests.e2e.processes import Process, free_ports, get

INTERVAL = 1.0
"""Seconds between two scrapes."""

HONOURED, OVERRIDDEN = "podgpu", "overridden"
"""The jobs with `honor_labels: true` and without."""

EXPORTER = {"namespace": "monitoring", "pod": "podgpu-x7k2p", "container": "podgpu"}
"""What a ServiceMonitor would attach: where podgpu itself runs."""


@dataclass(frozen=True, slots=True)
class Series:
    """One element of a result; `labels` are without the metric's name."""

    name: str
    labels: Mapping[str, str]
    points: Sequence[tuple[float, float]]
    """Times and values; a single one in the answer to an instant query."""

    @property
    def value(self) -> float:
        return self.points[-1][1]


class Server:
    """A Prometheus of its own, which scrapes as many targets as there are seats.

    It takes five seconds to begin with a new target, but a target that isn't there yet costs
    nothing. So all targets are there from the beginning, and each podgpu takes a free seat.
    """

    def __init__(self, programs: Prometheus, folder: Path, seats: int) -> None:
        *self._seats, self.port = free_ports(seats + 1)
        targets = [f"127.0.0.1:{port}" for port in self._seats]
        config = folder / "prometheus.json"
        config.write_text(json.dumps(_config(targets)))  # JSON is YAML
        self.process = Process(
            [
                programs.server,
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
            ],
            folder / "prometheus.log",
        )

    def wait_ready(self) -> None:
        self.process.wait_for_answer(self.port, "/-/ready")

    def take_seat(self) -> int:
        """Return a port that is scraped and not yet used."""
        return self._seats.pop()

    def api(self, path: str, **parameters: str) -> Any:
        question = urllib.parse.urlencode(parameters)
        answer = get(self.port, f"/api/v1/{path}?{question}")
        assert answer.status == 200, answer.body.decode()
        return json.loads(answer.body)["data"]

    def query(self, promql: str) -> list[Series]:
        """Answer an instant query, as of now."""
        found = []
        data = self.api("query", query=promql)
        if data["resultType"] == "scalar":
            data["result"] = [{"metric": {}, "value": data["result"]}]
        for element in data["result"]:
            labels = dict(element["metric"])
            points = element["values"] if "values" in element else [element["value"]]
            name = labels.pop("__name__", "")
            found.append(Series(name, labels, [(float(t), float(v)) for t, v in points]))
        return found

    def troubles(self) -> list[str]:
        """Return what it had to complain of: dropped samples are warnings, failures are errors."""
        said = self.process.said().splitlines()
        return [line for line in said if re.search(r"\blevel=(warn|error)\b", line)]

    def dropped(self) -> dict[str, float]:
        """Return its own counts of samples that it did not take, by reason."""
        page = get(self.port, "/metrics").body.decode()
        counted = re.findall(
            r"^prometheus_target_scrapes?_(sample_\w+|exceeded_\w+|cache_flush_\w+)_total (\S+)$",
            page,
            re.MULTILINE,
        )
        assert any("duplicate_timestamp" in reason for reason, _ in counted)
        return {reason: float(count) for reason, count in counted if float(count)}


def _config(targets: list[str]) -> dict[str, Any]:
    static = [{"targets": targets, "labels": EXPORTER}]
    # The second job's series get an instance of their own: else each GPU would be there twice
    # for queries that don't name the job.
    renamed = {
        "source_labels": ["__address__"],
        "target_label": "instance",
        "replacement": f"{OVERRIDDEN}-$1",
    }
    return {
        "global": {"scrape_interval": f"{INTERVAL:g}s", "scrape_timeout": f"{INTERVAL:g}s"},
        "scrape_configs": [
            {"job_name": HONOURED, "honor_labels": True, "static_configs": static},
            {
                "job_name": OVERRIDDEN,
                "honor_labels": False,
                "static_configs": static,
                "relabel_configs": [renamed],
            },
        ],
    }
