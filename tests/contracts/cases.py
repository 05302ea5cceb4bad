"""Options to create each registered component for the contract tests: one entry for each kind."""

import gzip
import threading
from collections.abc import Callable
from functools import cache
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import count
from pathlib import Path

import msgspec

from config.value_types import Duration, ListenAddress
from pipeline.delivery.options import QueueOptions
from pipeline.model import DevicesDiscovered, Envelope, Instant
from pipeline.recording import Header, RecordingWriter
from sinks.events.options import Options as EventsOptions
from sinks.jsonl.options import Options as JsonLinesOptions
from sinks.ledger.options import Options as LedgerOptions
from sinks.node.options import Options as NodeOptions
from sinks.otlp.options import Options as OtlpOptions
from sinks.podlist.options import Options as PodListSinkOptions
from sinks.pods.options import Options as PodsSinkOptions
from sinks.prometheus.options import Options as PrometheusOptions
from sinks.textfile.options import Options as TextfileOptions
from sources.checkpoint.options import Options as CheckpointOptions
from sources.dcgm.options import Options as DcgmOptions
from sources.hostengine.options import Options as HostEngineOptions
from sources.kernel.options import Options as KernelOptions
from sources.nri.options import Options as NriOptions
from sources.nvml.options import Options as NvmlOptions
from sources.podlist.options import Options as PodListOptions
from sources.podresources.options import Options as PodResourcesOptions
from sources.pods.options import Options as PodsOptions
from sources.replay.options import Options as ReplayOptions
from tests.fakes.dcgm import Card, FakeDcgm, Scenario
from tests.sources.checkpoint.checkpoints import checkpoint, entry
from tests.sources.dcgm.reading import PAGES
from tests.sources.kernel.logs import busy_log
from tests.sources.pods.pod_objects import raw_pod
from tests.support.kube import ApiServer, Collection, ThreadedApiServer
from tests.support.nodes import gpu

KUBELET = "kubelet.sock"
"""The name of the kubelet's socket in the folder of a test."""
RUNTIME = "nri.sock"
"""The name of the container runtime's socket there."""

MakeOptions = Callable[[Path], msgspec.Struct]


def _replay(folder: Path) -> msgspec.Struct:
    path = folder / "recording.podgpu.gz"
    start = Instant(0, 1_800_000_000_000_000_000)
    with RecordingWriter(path, Header("0", "node-1", start)) as writer:
        event = DevicesDiscovered((gpu(0),))
        for second in range(3):
            at = Instant(second * 100_000_000, start.wall_ns + second * 100_000_000)
            writer.write(Envelope("gpus", "nvml", second + 1, at, event))
    assert gzip.decompress(path.read_bytes())
    return ReplayOptions(path=str(path), loop=True)


def _podlist(folder: Path) -> msgspec.Struct:
    path = folder / "podlist.json"
    path.write_text('[{"name": "a", "namespace": "ml", "container": "c", "gpu_list": [0]}]')
    return PodListOptions(path=path, interval=Duration.parse("1s"))


@cache
def _api_server() -> ThreadedApiServer:
    """Return an API server whose only pod changes continuously."""
    pods, number = "/api/v1/pods", count()

    def change(server: ApiServer) -> None:
        server.paths[pods].put(raw_pod(status={"qosClass": str(next(number))}))

    return ThreadedApiServer(lambda: ApiServer({pods: Collection()}), change)


def _pods(folder: Path) -> msgspec.Struct:
    return PodsOptions(kubeconfig=_api_server().server.kubeconfig(folder / "kubeconfig"))


def _podresources(folder: Path) -> msgspec.Struct:
    return PodResourcesOptions(sockets=(folder / KUBELET,), interval=Duration.parse("1s"))


def _checkpoint(folder: Path) -> msgspec.Struct:
    path = folder / "kubelet_internal_checkpoint"
    path.write_bytes(checkpoint(entry()))
    return CheckpointOptions(path=path, interval=Duration.parse("1s"))


@cache
def _exporter() -> str:
    """Return the address of a metrics page that a separate thread serves."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = (PAGES / "4.2.prom").read_bytes()
            self.send_response(200)
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/metrics"


def _dcgm(_: Path) -> msgspec.Struct:
    return DcgmOptions(url=_exporter(), interval=Duration.parse("1s"))


def _hostengine(folder: Path) -> msgspec.Struct:
    fake = FakeDcgm(Scenario((Card(0, values={1001: 0.5}),)), folder)
    return HostEngineOptions(library=fake.library, interval=Duration.parse("200ms"))


def _otlp(folder: Path) -> msgspec.Struct:
    # No server listens on port 1; the points wait in the folder.
    return OtlpOptions(endpoint="http://127.0.0.1:1", queue=QueueOptions(path=folder / "queue"))


SOURCES: dict[str, MakeOptions] = {
    "nvml": lambda _: NvmlOptions(interval=Duration.parse("200ms")),
    "podlist": _podlist,
    "podresources": _podresources,
    "checkpoint": _checkpoint,
    "pods": _pods,
    "nri": lambda folder: NriOptions(socket=folder / RUNTIME),
    "dcgm": _dcgm,
    "hostengine": _hostengine,
    "kernel": lambda _: KernelOptions(path=busy_log()),
    "replay": _replay,
}
SINKS: dict[str, MakeOptions] = {
    "prometheus": lambda _: PrometheusOptions(listen=ListenAddress.parse("127.0.0.1:0")),
    "textfile": lambda folder: TextfileOptions(path=folder / "podgpu.prom"),
    "jsonl": lambda folder: JsonLinesOptions(path=str(folder / "lines.jsonl")),
    "otlp": _otlp,
    "podlist": lambda folder: PodListSinkOptions(path=folder / "podlist.json"),
    "pods": lambda _: PodsSinkOptions(),
    "ledger": lambda folder: LedgerOptions(path=folder / "usage.db"),
    "node": lambda _: NodeOptions(),
    "events": lambda _: EventsOptions(),
}
