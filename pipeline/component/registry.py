"""Which kinds of source and sink there are: a table, so that nothing loads until it is asked for.

A new component costs its package, its test, its page under `docs/` and one line here.
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
    "see the file system of its path: a file server that is away, or a mount of one that went"
)
_SILENT_SERVER: Final = (
    "see that the API server answers (kubectl get nodes with the same kubeconfig), and that a "
    "credential plugin which the kubeconfig names comes to an end by itself"
)

Role = Literal["source", "sink"]

Holders = Literal["none", "some", "all", "relayed"]
"""Of what is held a source tells nothing, some of it, or all; or it relays the word of sources of
other kinds, which may tell all."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One kind.

    Attributes:
        summary: one line for `podgpu kinds`.
        options: dotted path `module:Class` of its `msgspec.Struct`; that module imports no
            third-party library but msgspec, so that `check` and `schema` stay light.
        factory: dotted path of the component. A source is called with its options, a sink with its
            options and its context.
        delivery: how snapshots reach a sink.
        uses_plan: it looks at the plan of its context, so that another plan makes it another one.
        doctor: dotted path of what `podgpu doctor` looks at for it; empty if there is nothing. It
            is called with the options and a `pipeline.diagnostics.context.DoctorContext`.
        timeout_fix: what to do if what `doctor` looks at comes to no end, for people; empty if that
            is the same as for anything that hangs.
        holders: what a source tells of who holds what. It takes the word of one that tells all to
            know what is free.
        resolves: what a source tells that others wait for: it enumerates devices, or it says what
            devices are called, and ids that fit no device count once it has said so; or it tells
            what the kubelet gave out, and schedulers' annotations count once it has said so.
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
        "samples this machine's NVIDIA GPUs through the driver's own library",
        "sources.nvml.options:Options",
        "sources.nvml.source:NvmlSource",
        uses_plan=True,
        doctor="sources.nvml.doctor:examine",
        timeout_fix="the driver hangs: see the kernel log (dmesg); reboot the node if it stays so; "
        "or the file system that its library is on does not answer",
        resolves=frozenset({"devices"}),
    ),
    ("source", "podlist"): Entry(
        "reads who holds which GPU from koordinator's podlist.json",
        "sources.podlist.options:Options",
        "sources.podlist.source:PodListSource",
        doctor="sources.podlist.doctor:examine",
        timeout_fix=_HANGING_FILE,
        holders="all",
    ),
    ("source", "podresources"): Entry(
        "asks the kubelet who holds which GPU, on its pod-resources socket",
        "sources.podresources.options:Options",
        "sources.podresources.source:PodResourcesSource",
        doctor="sources.podresources.doctor:examine",
        timeout_fix="see that the kubelet answers, and its log (journalctl -u kubelet)",
        holders="all",
        resolves=frozenset({"claims"}),
    ),
    ("source", "checkpoint"): Entry(
        "reads who holds which GPU from the kubelet's checkpoint of device plugins",
        "sources.checkpoint.options:Options",
        "sources.checkpoint.source:CheckpointSource",
        doctor="sources.checkpoint.doctor:examine",
        timeout_fix=_HANGING_FILE,
        holders="all",
        resolves=frozenset({"claims"}),
    ),
    ("source", "pods"): Entry(
        "follows this node's pods through the API server, and what schedulers gave them",
        "sources.pods.options:Options",
        "sources.pods.source:PodsSource",
        doctor="sources.pods.doctor:examine",
        timeout_fix=_SILENT_SERVER,
        holders="some",
        resolves=frozenset({"names"}),
    ),
    ("source", "nri"): Entry(
        "hears from the container runtime of each container, as a plugin of its NRI",
        "sources.nri.options:Options",
        "sources.nri.source:NriSource",
        doctor="sources.nri.doctor:examine",
        timeout_fix=_HANGING_FILE,
        holders="all",
    ),
    ("source", "dcgm"): Entry(
        "reads the page of a dcgm-exporter on this node, of any version",
        "sources.dcgm.options:Options",
        "sources.dcgm.source:DcgmSource",
        uses_plan=True,
        doctor="sources.dcgm.doctor:examine",
        timeout_fix="see that dcgm-exporter answers at url, or the file system of path",
        resolves=frozenset({"devices"}),
    ),
    ("source", "hostengine"): Entry(
        "asks a DCGM host engine for the profiling fields that NVML can't give",
        "sources.hostengine.options:Options",
        "sources.hostengine.source:HostEngineSource",
        uses_plan=True,
        doctor="sources.hostengine.doctor:examine",
        timeout_fix="see that nv-hostengine answers (dcgmi discovery -l), "
        "and the file system of library",
        resolves=frozenset({"devices"}),
    ),
    ("source", "kernel"): Entry(
        "reads XID errors from the kernel's log, with the processes that it names",
        "sources.kernel.options:Options",
        "sources.kernel.source:KernelSource",
        doctor="sources.kernel.doctor:examine",
        timeout_fix="see the file system of its path, and of proc",
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
        "serves /metrics for Prometheus, in dcgm-exporter's names",
        "sinks.prometheus.options:Options",
        "sinks.prometheus.sink:PrometheusSink",
        Delivery.LATEST,
        uses_plan=True,
    ),
    ("sink", "textfile"): Entry(
        "writes the page to a .prom file, for node_exporter's textfile collector",
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
        timeout_fix="see that the receiver answers, and the file systems of certificates and token",
    ),
    ("sink", "podlist"): Entry(
        "keeps koordinator's podlist.json: who holds which GPU, for readers of that file",
        "sinks.podlist.options:Options",
        "sinks.podlist.sink:PodListSink",
        Delivery.LATEST,
        doctor="sinks.podlist.doctor:examine",
        timeout_fix=_HANGING_FILE,
    ),
    ("sink", "pods"): Entry(
        "writes the uuids that a pod holds into its annotations, through the API server",
        "sinks.pods.options:Options",
        "sinks.pods.sink:PodsSink",
        Delivery.LATEST,
        doctor="sinks.pods.doctor:examine",
        timeout_fix=_SILENT_SERVER,
    ),
    ("sink", "ledger"): Entry(
        "keeps who used how much in a file of SQLite, over restarts, for `podgpu usage`",
        "sinks.ledger.options:Options",
        "sinks.ledger.sink:LedgerSink",
        # Totals are told, so that one that is passed over is no loss.
        Delivery.LATEST,
        doctor="sinks.ledger.doctor:examine",
        timeout_fix=_HANGING_FILE,
    ),
    ("sink", "node"): Entry(
        "keeps the node's topology, and what is free of it, in an annotation of its Node",
        "sinks.node.options:Options",
        "sinks.node.sink:NodeSink",
        Delivery.LATEST,
        doctor="sinks.node.doctor:examine",
        timeout_fix=_SILENT_SERVER,
    ),
    ("sink", "events"): Entry(
        "writes an Event on each pod that an XID error strikes, through the API server",
        "sinks.events.options:Options",
        "sinks.events.sink:EventsSink",
        Delivery.LATEST,
        doctor="sinks.events.doctor:examine",
        timeout_fix=_SILENT_SERVER,
    ),
}


def load(dotted: str) -> object:
    """Import what a dotted path `module:name` names."""
    module, _, name = dotted.partition(":")
    return cast("object", getattr(importlib.import_module(module), name))


class RegisteredKinds:
    """The registry as `config` needs it: names of kinds, and the options of each."""

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
        """Return the words for fields and groups of them, the one thing that options name so.

        Raises:
            KeyError: another noun.
        """
        return {"field or group": all_words}[noun]()


def source_added(kind: str, options: msgspec.Struct, order: int) -> SourceAdded:
    """Return the event by which a source begins."""
    entry = ENTRIES.get(("source", kind))
    resolves = entry.resolves if entry is not None else frozenset()
    if not getattr(options, "resource_slices", True):
        resolves -= {"names"}
    return SourceAdded(order, tuple(sorted(resolves)))


def build_source(kind: str, options: msgspec.Struct) -> Source:
    """Make a source of a registered kind."""
    factory = load(ENTRIES["source", kind].factory)
    return cast("Source", factory(options))  # type: ignore[operator]


def build_sink(kind: str, options: msgspec.Struct, ctx: SinkContext) -> Sink:
    """Make a sink of a registered kind."""
    factory = load(ENTRIES["sink", kind].factory)
    return cast("Sink", factory(options, ctx))  # type: ignore[operator]
