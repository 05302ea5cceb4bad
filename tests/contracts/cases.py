"""How to make each registered component for the contract suite: one entry a kind, no exceptions."""

import gzip
from collections.abc import Callable
from functools import cache
from itertools import count
from pathlib import Path

import msgspec

from config.types import Duration, ListenAddress
from pipeline.model import DevicesDiscovered, Envelope, Instant
from pipeline.recording import Header, RecordingWriter
from sinks.jsonl.options import Options as JsonLinesOptions
from sinks.podlist.options import Options as PodListSinkOptions
from sinks.prometheus.options import Options as PrometheusOptions
from sources.checkpoint.options import Options as CheckpointOptions
from sources.nri.options import Options as NriOptions
from sources.nvml.options import Options as NvmlOptions
from sources.podlist.options import Options as PodListOptions
from sources.podresources.options import Options as PodResourcesOptions
from sources.pods.options import Options as PodsOptions
from sources.replay.options import Options as ReplayOptions
from tests.sources.checkpoint.files import checkpoint, entry
from tests.sources.pods.raws import raw_pod
from tests.support.kube import ApiServer, Collection, Elsewhere
from tests.support.nodes import gpu

KUBELET = "kubelet.sock"
"""Where a kubelet listens in the folder that options are made for."""
RUNTIME = "nri.sock"
"""Where a container runtime listens there."""

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
def _api_server() -> Elsewhere:
    """Return a server whose one pod changes all the time."""
    pods, turn = "/api/v1/pods", count()

    def change(server: ApiServer) -> None:
        server.paths[pods].put(raw_pod(status={"qosClass": str(next(turn))}))

    return Elsewhere(lambda: ApiServer({pods: Collection()}), change)


def _pods(folder: Path) -> msgspec.Struct:
    return PodsOptions(kubeconfig=_api_server().server.kubeconfig(folder / "kubeconfig"))


def _podresources(folder: Path) -> msgspec.Struct:
    return PodResourcesOptions(sockets=(folder / KUBELET,), interval=Duration.parse("1s"))


def _checkpoint(folder: Path) -> msgspec.Struct:
    path = folder / "kubelet_internal_checkpoint"
    path.write_bytes(checkpoint(entry()))
    return CheckpointOptions(path=path, interval=Duration.parse("1s"))


SOURCES: dict[str, MakeOptions] = {
    "nvml": lambda _: NvmlOptions(interval=Duration.parse("200ms")),
    "podlist": _podlist,
    "podresources": _podresources,
    "checkpoint": _checkpoint,
    "pods": _pods,
    "nri": lambda folder: NriOptions(socket=folder / RUNTIME),
    "replay": _replay,
}
SINKS: dict[str, MakeOptions] = {
    "prometheus": lambda _: PrometheusOptions(listen=ListenAddress.parse("127.0.0.1:0")),
    "jsonl": lambda folder: JsonLinesOptions(path=str(folder / "lines.jsonl")),
    "podlist": lambda folder: PodListSinkOptions(path=folder / "podlist.json"),
}
