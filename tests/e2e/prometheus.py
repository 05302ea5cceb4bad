"""A Prometheus that scrapes podgpus."""

import json
import re
from pathlib import Path
from typing import Any

from tests.e2e.debian import Prometheus
from tests.e2e.processes import Process, free_ports, get
from tests.e2e.promql import QueriedPrometheus

INTERVAL = 1.0
"""Seconds between two scrapes."""

HONOURED, OVERRIDDEN = "podgpu", "overridden"
"""The job with `honor_labels: true`, and the one without."""

EXPORTER = {"namespace": "monitoring", "pod": "podgpu-x7k2p", "container": "podgpu"}
"""The labels of podgpu's own pod, which a ServiceMonitor would add."""


class Server(QueriedPrometheus):
    """A Prometheus with a fixed number of targets.

    Prometheus needs five seconds to start with a new target, and an absent target costs nothing. So
    all targets are configured at the start, and each podgpu uses a free one.
    """

    def __init__(self, programs: Prometheus, folder: Path, count: int) -> None:
        *self._targets, port = free_ports(count + 1)
        targets = [f"127.0.0.1:{port}" for port in self._targets]
        config = folder / "prometheus.json"
        config.write_text(json.dumps(_config(targets)))  # JSON is YAML
        process = Process(
            [
                programs.server,
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            folder / "prometheus.log",
        )
        super().__init__(process, port)

    def take_target(self) -> int:
        """Return the port of an unused target."""
        return self._targets.pop()

    def dropped(self) -> dict[str, float]:
        """Return its counts of samples that it did not accept, by reason."""
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
    # Series of the second job have another instance, so that queries without a job do not count
    # each GPU twice.
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
