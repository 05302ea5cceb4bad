"""The table of all kinds of source and sink. Code of a kind is imported only when it is used.

A new component needs a package, a test, a page in `docs/` and one entry here.
"""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, cast

import msgspec

from pipeline.component.contracts import Delivery, Sink, SinkContext, Source
from pipeline.fields import all_words
from pipeline.model import Resolves, SourceAdded

_HANGING_FILE: Final = (
    "check the file system of its path: a file server may be unavailable, or a mount stale"
)
_SILENT_SERVER: Final = (
    "check that the API server responds (kubectl get nodes with the same kubeconfig), and that a "
    "credential plugin of the kubeconfig terminates"
)

Role = Literal["source", "sink"]

Holders = Literal["none", "some", "all", "relayed"]
"""Which holders a source reports: none, some, or all of the node; or it relays sources of other
kinds, which may report all."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One kind of source or sink.

    Attributes:
        summary: one line for `podgpu kinds`.
        options: dotted path `module:Class` of its `msgspec.Struct`. That module imports no
            third-party library but msgspec, so that `check` and `schema` start quickly.
        factory: dotted path of the component. A source is called with its options, a sink with its
            options and its context.
        delivery: how a sink receives snapshots.
        uses_plan: it reads its context's plan, and restarts if the plan changes.
        doctor: dotted path of its checks for `podgpu doctor`; empty if there are none. Called with
            the options and a `pipeline.diagnostics.context.DoctorContext`.
        timeout_fix: what to do if `doctor` does not finish; empty for the general advice.
        holders: which holders a source reports. Which GPUs are free is only known if a source
            reports all.
        resolves: what a source reports that the join waits for. `devices`: it enumerates devices.
            `names`: it reports the names of devices; ids that match no device count as unresolved
            only after that. `claims`: it reports the kubelet's allocations; schedulers'
            annotations are valid only after that.
    """

    summary: str
    options: str
    factory: str
    delivery: Delivery = Delivery.LATEST
    uses_plan: bool = False
    doctor: str = ""
    timeout_fix: str = ""
    holders: Holders = "none"
    resolves: frozenset[Resolves] = frozenset()


ENTRIES: dict[tuple[Role, str], Entry] = {
    ("source", "nvml"): Entry(
        "samples this node's NVIDIA GPUs through the driver's library (NVML)",
        "sources.nvml.options:Options",
        "sources.nvml.source:NvmlSource",
        uses_plan=True,
        doctor="sources.nvml.doctor:examine",
        timeout_fix="the driver does not respond: see the kernel log (dmesg), and reboot the node "
        "if this persists; or check the file system of the driver's library",
        resolves=frozenset({"devices"}),
    ),
    ("source", "podlist"): Entry(
        "reads which container holds which GPU from koordinator's podlist.json",
        "sources.podlist.options:Options",
        "sources.podlist.source:PodListSource",
        doctor="sources.podlist.doctor:examine",
        timeout_fix=_HANGING_FILE,
        holders="all",
    ),
    ("source", "podresources"): Entry(
        "asks the kubelet which container holds which GPU, on its pod-resources socket",
        "sources.podresources.options:Options",
        "sources.podresources.source:PodResourcesSource",
        doctor="sources.podresources.doctor:examine",
        timeout_fix="check that the kubelet responds, and its log (journalctl -u kubelet)",
        holders="all",
        resolves=frozenset({"claims"}),
    ),
    ("source", "checkpoint"): Entry(
        "reads which container holds which GPU from the kubelet's device plugin checkpoint",
        "sources.checkpoint.options:Options",
        "sources.checkpoint.source:CheckpointSource",
        doctor="sources.checkpoint.doctor:examine",
        timeout_fix=_HANGING_FILE,
        holders="all",
        resolves=frozenset({"claims"}),
    ),
    ("source", "pods"): Entry(
        "watches this node's pods through the API server, and the GPUs that schedulers assign",
        "sources.pods.options:Options",
        "sources.pods.source:PodsSource",
        doctor="sources.pods.doctor:examine",
        timeout_fix=_SILENT_SERVER,
        holders="some",
        resolves=frozenset({"names"}),
    ),
    ("source", "nri"): Entry(
        "receives the events of containers from the container runtime, as an NRI plugin",
        "sources.nri.options:Options",
        "sources.nri.source:NriSource",
        doctor="sources.nri.doctor:examine",
        timeout_fix=_HANGING_FILE,
        holders="all",
    ),
    ("source", "dcgm"): Entry(
        "reads the metrics page of a dcgm-exporter on this node, of any version",
        "sources.dcgm.options:Options",
        "sources.dcgm.source:DcgmSource",
        uses_plan=True,
        doctor="sources.dcgm.doctor:examine",
        timeout_fix="check that dcgm-exporter responds at url, or the file system of path",
        resolves=frozenset({"devices"}),
    ),
    ("source", "hostengine"): Entry(
        "queries a DCGM host engine for the profiling fields that NVML does not provide",
        "sources.hostengine.options:Options",
        "sources.hostengine.source:HostEngineSource",
        uses_plan=True,
        doctor="sources.hostengine.doctor:examine",
        timeout_fix="check that nv-hostengine responds (dcgmi discovery -l), "
        "and the file system of library",
        resolves=frozenset({"devices"}),
    ),
    ("source", "kernel"): Entry(
        "reads XID errors from the kernel log, with the processes that it names",
        "sources.kernel.options:Options",
        "sources.kernel.source:KernelSource",
        doctor="sources.kernel.doctor:examine",
        timeout_fix="check the file systems of path and of proc",
    ),
    ("source", "replay"): Entry(
        "plays a recording of a node's events",
        "sources.replay.options:Options",
        "sources.replay.source:ReplaySource",
        doctor="sources.replay.doctor:examine",
        timeout_fix=_HANGING_FILE,
        holders="relayed",
    ),
    ("sink", "prometheus"): Entry(
        "serves /metrics for Prometheus, with the names of dcgm-exporter",
        "sinks.prometheus.options:Options",
        "sinks.prometheus.sink:PrometheusSink",
        Delivery.LATEST,
        uses_plan=True,
    ),
    ("sink", "textfile"): Entry(
        "writes the metrics to a .prom file, for node_exporter's textfile collector",
        "sinks.textfile.options:Options",
        "sinks.textfile.sink:TextfileSink",
        Delivery.LATEST,
        uses_plan=True,
        doctor="sinks.textfile.doctor:examine",
        timeout_fix=_HANGING_FILE,
    ),
    ("sink", "jsonl"): Entry(
        "writes one JSON object per device and round of readings to a file or stdout",
        "sinks.jsonl.options:Options",
        "sinks.jsonl.factory:make_sink",
        Delivery.QUEUE,
        uses_plan=True,
        doctor="sinks.jsonl.doctor:examine",
        timeout_fix=_HANGING_FILE,
    ),
    ("sink", "otlp"): Entry(
        "pushes readings to an OpenTelemetry receiver, over gRPC or HTTP",
        "sinks.otlp.options:Options",
        "sinks.otlp.sink:OtlpSink",
        Delivery.QUEUE,
        uses_plan=True,
        doctor="sinks.otlp.doctor:examine",
        timeout_fix="check that the receiver responds, and the file systems of certificates and "
        "token",
    ),
    ("sink", "podlist"): Entry(
        "writes koordinator's podlist.json: which container holds which GPU",
        "sinks.podlist.options:Options",
        "sinks.podlist.sink:PodListSink",
        Delivery.LATEST,
        doctor="sinks.podlist.doctor:examine",
        timeout_fix=_HANGING_FILE,
    ),
    ("sink", "pods"): Entry(
        "writes the UUIDs of the GPUs that a pod holds to its annotations, through the API server",
        "sinks.pods.options:Options",
        "sinks.pods.sink:PodsSink",
        Delivery.LATEST,
        doctor="sinks.pods.doctor:examine",
        timeout_fix=_SILENT_SERVER,
    ),
    ("sink", "ledger"): Entry(
        "stores usage per container in an SQLite file, across restarts, for `podgpu usage`",
        "sinks.ledger.options:Options",
        "sinks.ledger.sink:LedgerSink",
        # Snapshots have running totals, so that a skipped snapshot loses nothing.
        Delivery.LATEST,
        doctor="sinks.ledger.doctor:examine",
        timeout_fix=_HANGING_FILE,
    ),
    ("sink", "node"): Entry(
        "writes the node's GPU topology and its free GPUs to an annotation of the Node",
        "sinks.node.options:Options",
        "sinks.node.sink:NodeSink",
        Delivery.LATEST,
        doctor="sinks.node.doctor:examine",
        timeout_fix=_SILENT_SERVER,
    ),
    ("sink", "events"): Entry(
        "writes a Kubernetes Event for each pod affected by an XID error, through the API server",
        "sinks.events.options:Options",
        "sinks.events.sink:EventsSink",
        Delivery.LATEST,
        doctor="sinks.events.doctor:examine",
        timeout_fix=_SILENT_SERVER,
    ),
}


def load(dotted: str) -> object:
    """Import the object at a dotted path `module:name`."""
    module, _, name = dotted.partition(":")
    return cast("object", getattr(importlib.import_module(module), name))


class RegisteredKinds:
    """The registry in the form that `config` needs: names of kinds, and their options."""

    def names(self, role: str) -> Sequence[str]:
        """Return the kinds of a role (`source` or `sink`), in the order of the table."""
        return [kind for entry_role, kind in ENTRIES if entry_role == role]

    def options(self, role: str, kind: str) -> type[msgspec.Struct]:
        """Return the options class of a kind.

        Raises:
            KeyError: there is no such kind.
        """
        entry = ENTRIES[cast("Role", role), kind]
        return cast("type[msgspec.Struct]", load(entry.options))

    def allowed_values(self, noun: str) -> Sequence[str]:
        """Return all names of fields and of groups of fields.

        Args:
            noun: what the option names; only "field or group" is supported.

        Raises:
            KeyError: another noun.
        """
        return {"field or group": all_words}[noun]()


def source_added(kind: str, options: msgspec.Struct, order: int) -> SourceAdded:
    """Return the event that announces a source to the join."""
    entry = ENTRIES.get(("source", kind))
    resolves = entry.resolves if entry is not None else frozenset()
    if not getattr(options, "resource_slices", True):
        resolves -= {"names"}
    return SourceAdded(order, tuple(sorted(resolves)))


def build_source(kind: str, options: msgspec.Struct) -> Source:
    """Create a source of a registered kind."""
    factory = load(ENTRIES["source", kind].factory)
    return cast("Source", factory(options))  # type: ignore[operator]


def build_sink(kind: str, options: msgspec.Struct, ctx: SinkContext) -> Sink:
    """Create a sink of a registered kind."""
    factory = load(ENTRIES["sink", kind].factory)
    return cast("Sink", factory(options, ctx))  # type: ignore[operator]
