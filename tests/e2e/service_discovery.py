"""A Prometheus that scrapes the pods of a Service, as a ServiceMonitor configures it.

The Prometheus programs here contain no Kubernetes service discovery, so a thread queries the API
server and writes the targets to a file that Prometheus reads.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.deploy.manifests import Object
from tests.e2e import debian
from tests.e2e.kube.api import Api, ApiError
from tests.e2e.processes import Process, free_ports
from tests.e2e.promql import QueriedPrometheus

EVERY = 1.0
"""Seconds between two scrapes. The interval of the ServiceMonitor would be too long for a test."""

JOB, ITSELF = "podgpu", "prometheus"
"""The second job scrapes Prometheus: samples that are missing there too were missed because the
machine was busy."""

_LOOK = 0.25
_UNTIL_THE_END = ("setpriv", "--pdeathsig", "KILL")
"""Ends Prometheus if the test run is killed."""


class DiscoveringPrometheus(QueriedPrometheus):
    """A Prometheus with a file of targets."""

    def __init__(self, folder: Path, endpoint: Object) -> None:
        """Start it; `endpoint` is that of a ServiceMonitor."""
        folder.mkdir()
        self._targets = folder / "targets.json"
        self._written = ""
        self.write([])
        (port,) = free_ports(1)
        config = folder / "prometheus.json"
        config.write_text(json.dumps(_config(self._targets, port, endpoint)))  # JSON is YAML
        process = Process(
            [
                *_UNTIL_THE_END,
                debian.prometheus().server,
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            folder / "prometheus.log",
        )
        super().__init__(process, port)

    def write(self, targets: list[Any]) -> None:
        text = json.dumps(targets)
        if text != self._written:
            new = self._targets.with_suffix(".new")
            new.write_text(text)
            new.replace(self._targets)
            self._written = text


def _config(targets: Path, port: int, endpoint: Object) -> Any:
    return {
        "global": {"scrape_interval": f"{EVERY:g}s", "scrape_timeout": f"{EVERY:g}s"},
        "scrape_configs": [
            {
                "job_name": JOB,
                "honor_labels": endpoint["honorLabels"],
                "metrics_path": endpoint["path"],
                "scheme": endpoint["scheme"],
                "file_sd_configs": [{"files": [str(targets)]}],
            },
            {"job_name": ITSELF, "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]},
        ],
    }


def _endpoints(api: Api, service: Object, endpoint: Object) -> list[Any]:
    """Return the pods of a Service, ready or not, with the labels of the Prometheus operator."""
    meta = service["metadata"]
    where = f"/apis/discovery.k8s.io/v1/namespaces/{meta['namespace']}/endpointslices"
    found = api.request("GET", f"{where}?labelSelector=kubernetes.io/service-name={meta['name']}")
    return [
        {
            "targets": [f"{each['addresses'][0]}:{port['port']}"],
            "labels": {
                "namespace": meta["namespace"],
                "service": meta["name"],
                "endpoint": port["name"],
                "pod": each["targetRef"]["name"],
            },
        }
        for part in found["items"]
        for port in part["ports"] or ()
        if port["name"] == endpoint["port"]
        for each in part["endpoints"] or ()
    ]


@contextmanager
def discovering(
    folder: Path, api: Api, service: Object, endpoint: Object
) -> Iterator[DiscoveringPrometheus]:
    """Run a Prometheus that finds the pods of a Service within a quarter of a second."""
    server = DiscoveringPrometheus(folder, endpoint)
    ended = threading.Event()

    def follow() -> None:
        while not ended.wait(_LOOK):
            try:
                server.write(_endpoints(api, service, endpoint))
            except (OSError, ApiError):
                continue  # retried soon; the known targets stay

    thread = threading.Thread(target=follow, name="discovery")
    thread.start()
    try:
        server.wait_ready()
        yield server
    finally:
        ended.set()
        thread.join()
        server.process.stop()
