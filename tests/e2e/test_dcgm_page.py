"""podgpu reads the page of a dcgm-exporter, adds pods, and writes a file for node_exporter.

A second podgpu with dcgm-exporter's command line replaces dcgm-exporter here.
"""

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.exporter import COUNTERS, Exporter, exporting
from tests.e2e.node import Node
from tests.e2e.processes import wait_until
from tests.e2e.prometheus import Server
from tests.e2e.scenes import distinct
from tests.e2e.scrape_target import Scraped
from tests.fakes.nvml import Scenario

IDS = [gpu.uuid for gpu in distinct().gpus]
HELD = {"train-0": IDS[:2], "train-1": [IDS[3]]}
PODS = {"0": "train-0", "1": "train-0", "2": "", "3": "train-1"}

VALUES = {
    "DCGM_FI_DEV_GPU_TEMP": [41.0, 42.0, 43.0, 44.0],
    "DCGM_FI_DEV_POWER_USAGE": [100.5, 101.5, 102.5, 103.5],
    "DCGM_FI_DEV_FB_USED": [1024.0, 1025.0, 1026.0, 1027.0],
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": [0.125, 0.25, 0.375, 0.5],
}


class Collector(Scraped):
    """Serves a .prom file, as node_exporter does."""

    def __init__(self, server: Server, file: Path) -> None:
        super().__init__(server)

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = file.read_bytes()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", self.port), Handler)

    @contextmanager
    def serving(self) -> Iterator[None]:
        thread = threading.Thread(target=self.http.serve_forever, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.http.shutdown()
            self.http.server_close()
            thread.join(10)


@pytest.fixture(params=["dcgm", "dcgm-1x"])
def exporter(
    request: pytest.FixtureRequest, prometheus: Server, tmp_path: Path
) -> Iterator[Exporter]:
    """The other exporter, with label names of the current and the first release."""
    with exporting(prometheus, tmp_path / "exporter", distinct()) as exporter:
        exporter.start("-f", COUNTERS, "--own=false", env={"PODGPU_LABELS": request.param})
        yield exporter


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "podgpu.prom"


@pytest.fixture
def node(exporter: Exporter, prometheus: Server, tmp_path: Path, file: Path) -> Iterator[Node]:
    """A podgpu without a driver: it has GPUs only from that page."""
    node = Node(prometheus, tmp_path, Scenario())
    address = node.settings.port
    node.settings = replace(
        node.settings,
        more={
            "sources": {
                "exporter": {
                    "kind": "dcgm",
                    "url": f"http://{exporter.address}/metrics",
                    "interval": "1s",
                },
                "podlist": {"kind": "podlist", "path": str(node.settings.podlist)},
            },
            "sinks": {
                "metrics": {"kind": "prometheus", "listen": f"127.0.0.1:{address}"},
                "file": {"kind": "textfile", "path": str(file), "interval": "1s"},
            },
        },
    )
    node.config.write_text(node.settings.text())
    node.hold(HELD)
    node.start()
    yield node
    assert node.stop() == 0


def check(scraped: Scraped) -> None:
    """Assert that every GPU has its values and the label of its pod."""
    for metric, values in VALUES.items():
        expected = {str(at): value for at, value in enumerate(values)}
        scraped.wait(f"{metric}{{$i}}", expected)
        pods = {
            each.labels["gpu"]: each.labels.get("pod", "")
            for each in scraped.query(f"{metric}{{$i}}")
        }
        assert pods == PODS, metric


def test_pods_are_added_to_the_readings_of_another_exporter(
    exporter: Exporter, node: Node, file: Path
) -> None:
    node.wait(
        "count by (pod) (DCGM_FI_DEV_GPU_TEMP{$i})", {"train-0": 2, "train-1": 1, "": 1}, "pod"
    )
    check(node)
    ((labels, _),) = [
        (series.labels, series.value)
        for series in node.query(f'DCGM_FI_DEV_GPU_TEMP{{$i,UUID="{IDS[3]}"}}')
    ]
    assert (labels["namespace"], labels["container"]) == ("ml", "main")
    assert (labels["device"], labels["Hostname"]) == ("nvidia3", "gpu-node")

    wait_until(file.exists, "the file")
    collector = Collector(node.server, file)
    with collector.serving():
        check(collector)

    assert exporter.process is not None
    assert exporter.process.stop() == 0
    # Readings that are no longer known end instead of keeping the last value.
    node.wait('podgpu_source_up{$i,source="exporter"}', {"exporter": 0}, "source")
    node.wait("DCGM_FI_DEV_GPU_TEMP{$i}", {})
