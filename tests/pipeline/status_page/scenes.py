"""Example nodes, built with the real join, and the state of the daemon on them."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from pipeline.base.telemetry import Meter, Point, Telemetry
from pipeline.component.registry import OWN_FAMILIES
from pipeline.model import (
    Claim,
    Device,
    DevicesDiscovered,
    Evidence,
    Instant,
    Origin,
    PartialRef,
    RawDeviceId,
    SourceAdded,
    SourceLost,
)
from pipeline.status_page.daemon_state import StatusInput
from pipeline.status_page.document_builder import status_of
from pipeline.status_page.recent_past import RecentPast
from pipeline.status_page.status_document import StatusDocument
from tests.support.nodes import START, Node, at, claim, claims, gpu, kubelet_claim, mig, reading

GIB = 1 << 30
HOSTILE = "<script>alert(1)</script>\"'&\x1b[2J\n\ud800"

NOW = at(600)


def status_input(
    example: Node,
    /,
    *,
    now: Instant = NOW,
    telemetry: Telemetry | None = None,
    sinks: Mapping[str, str] | None = None,
    computed: Mapping[str, list[Point]] | None = None,
    **other: object,
) -> StatusInput:
    """Return the input of the status page on a node with these reports."""
    own = telemetry or Telemetry(families=OWN_FAMILIES)
    past, snapshot = RecentPast(), example.snapshot()
    past.add(snapshot)
    result = StatusInput(
        node="node-1",
        version="0.1.0",
        now=now,
        ready=(True, "ready"),
        snapshot=snapshot,
        sources=example.join.sources(),
        holders_known=example.join.holders_known,
        sinks={"metrics": "prometheus"} if sinks is None else sinks,
        telemetry=own.collect(
            {
                "process_start_time_seconds": [Point((), START.wall_ns / 1e9 - 7200)],
                **(computed or {}),
            }
        ),
        troubles=dict(own.problems),
        past=past.known(),
    )
    return replace(result, **other)  # type: ignore[arg-type]


def load(device: Device, part: float) -> list[object]:
    """Return plausible readings of a device that is busy for this part."""
    total = 80 * GIB if device.mig is None else 10 * GIB
    found = [
        reading(device, "memory_total_bytes", total),
        reading(device, "memory_used_bytes", round(total * part)),
    ]
    if device.mig is None:
        found += [
            reading(device, "gpu_up", 1),
            reading(device, "power_watts", 70 + 630 * part),
            reading(device, "power_limit_enforced_watts", 700),
            reading(device, "gpu_temperature_celsius", 30 + round(40 * part)),
        ]
    return list(found)


def report_claims(node: Node, *kubelet_claims: Claim) -> None:
    node.say(claims(*kubelet_claims, good_for=900), "kubelet", "podresources")


def started_node(*names: tuple[str, str]) -> Node:
    """Return a node whose sources are started."""
    node = Node()
    for order, (name, kind) in enumerate(names or (("gpus", "nvml"), ("kubelet", "podresources"))):
        node.say(SourceAdded(order), name, kind)
    return node


def two_gpus() -> StatusInput:
    """One GPU that a container keeps busy, and a free GPU, without any problem."""
    node = started_node()
    first, second = gpu(0), gpu(1)
    node.has(first, second)
    report_claims(node, kubelet_claim("train-0", first.uuid))
    node.seconds = 590
    report_claims(node, kubelet_claim("train-0", first.uuid))
    node.seconds = 599
    busy = reading(first, "gpu_utilization_percent", 93)
    idle = reading(second, "gpu_utilization_percent", 0)
    node.reads(*load(first, 0.5), busy, *load(second, 0.0), idle)  # type: ignore[arg-type]
    telemetry = Telemetry(families=OWN_FAMILIES)
    for name in ("gpus", "kubelet"):
        Meter(telemetry, "source", name).add("podgpu_source_restarts_total", 0)
    sink = Meter(telemetry, "sink", "metrics")
    sink.set("podgpu_sink_up", 1)
    sink.add("podgpu_sink_dropped_total", 0, reason="queue_full")
    return status_input(node, telemetry=telemetry)


def mig_node(cards: int = 8, each: int = 7) -> StatusInput:
    """GPUs with MIG instances, most of which are held."""
    node = started_node()
    parents = [gpu(index) for index in range(cards)]
    instances = [[mig(parent, gi) for gi in range(7, 7 + each)] for parent in parents]
    node.has(*parents, *(one for below in instances for one in below))
    kubelet_claims = [
        kubelet_claim(f"notebook-{row}-{column}-7c9d5f6b4", one.uuid, container="jupyter")
        for row, below in enumerate(instances)
        for column, one in enumerate(below)
        if (row + column) % 4
    ]
    report_claims(node, *kubelet_claims)
    node.seconds = 590
    report_claims(node, *kubelet_claims)
    node.seconds = 598
    readings = []
    for row, below in enumerate(instances):
        readings += load(parents[row], 0.1 * (row + 1) % 1)
        for column, one in enumerate(below):
            part = 0.13 * (column + row) % 1
            readings += load(one, part)
            readings.append(reading(one, "graphics_engine_active_ratio", part))
    node.reads(*readings)  # type: ignore[arg-type]
    telemetry = Telemetry(families=OWN_FAMILIES)
    Meter(telemetry, "sink", "metrics").set("podgpu_sink_up", 1)
    return status_input(node, telemetry=telemetry)


def troubled() -> StatusInput:
    """A lost GPU, a conflict, a GPU with three holders, a silent source, and a stuck sink."""
    node = started_node(("gpus", "nvml"), ("kubelet", "podresources"), ("podlist", "podlist"))
    cards = [gpu(index) for index in range(4)]
    node.has(*cards)
    report_claims(
        node,
        kubelet_claim("old", cards[1].uuid),
        kubelet_claim("new", cards[1].uuid),
        *(kubelet_claim(f"serve-{name}", f"{cards[2].uuid}::{name}") for name in range(3)),
    )
    node.seconds = 200
    half = claims(claim("half", cards[3].uuid, share=0.5), good_for=900)
    node.say(half, "podlist", "podlist")
    node.seconds = 300
    node.say(SourceLost("/run/x.sock: connection refused; is the kubelet running?"), "kubelet")
    node.has(*cards[1:])
    node.seconds = 590
    node.reads(
        reading(cards[0], "gpu_up", 0, when=at(590)),
        *load(cards[2], 0.4),  # type: ignore[arg-type]
        reading(cards[3], "gpu_up", 1),
    )
    telemetry = Telemetry(lambda: at(595), OWN_FAMILIES)
    kubelet = Meter(telemetry, "source", "kubelet")
    kubelet.add("podgpu_source_restarts_total", 12)
    kubelet.set_problem("/run/x.sock: connection refused; is the kubelet running?", at(580))
    Meter(telemetry, "source", "podlist").set_problem("the file is not there", at(100))
    pushed = Meter(telemetry, "sink", "push")
    pushed.set("podgpu_sink_up", 1)
    pushed.set("podgpu_sink_delivering", 0)
    pushed.set("podgpu_sink_queued", 12_345)
    pushed.set("podgpu_sink_queue_bytes", 3 << 20)
    pushed.set("podgpu_sink_oldest_age_seconds", 290)
    pushed.add("podgpu_sink_emitted_total", 1_000_000)
    pushed.add("podgpu_sink_dropped_total", 3, reason="queue_full")
    pushed.add("podgpu_sink_dropped_total", 4, reason="too_old")
    pushed.set_problem("collector:4317 does not answer; data waits", at(595))
    return status_input(node, telemetry=telemetry, sinks={"metrics": "prometheus", "push": "otlp"})


def no_driver() -> StatusInput:
    """The driver is missing, so no GPUs are known."""
    node = started_node(("gpus", "nvml"))
    node.say(SourceLost("libnvidia-ml.so.1 can't be loaded; install the driver"))
    return status_input(node)


def no_holders() -> StatusInput:
    """No source reports holders."""
    node = started_node(("gpus", "nvml"))
    node.has(gpu(0))
    return status_input(node)


def nothing_yet() -> StatusInput:
    """podgpu has just started."""
    node = started_node()
    waiting = (False, "waiting for the first report of: gpus, kubelet")
    return replace(status_input(node), snapshot=None, ready=waiting)


def hostile(text: str = HOSTILE) -> StatusInput:
    """All texts that come from outside are this text."""
    node = Node()
    for name in (text, f"{text}2"):
        node.say(SourceAdded(0), name, text)
    card = replace(gpu(0), model=text, driver=text)
    nameless = Device(uuid=f"GPU-{text}")
    part = replace(mig(card, 7), uuid=f"MIG-{text}")
    assert part.mig is not None
    part = replace(part, mig=replace(part.mig, profile=text))
    node.say(DevicesDiscovered((card, nameless, part)), text, text)
    node.say(
        claims(
            claim(text, card.uuid, namespace=text, container=text),
            Claim(
                PartialRef(uid=text),
                (RawDeviceId("uuid", nameless.uuid),),
                None,
                None,
                Origin(Evidence.POD_LIST_FILE),
            ),
            claim(f"{text}2", f"no-such-{text}"),
        ),
        text,
        text,
    )
    node.say(SourceLost(text), f"{text}2", text)
    telemetry = Telemetry(families=OWN_FAMILIES)
    Meter(telemetry, "source", text).set_problem(text, at(1))
    Meter(telemetry, "sink", text).set_problem(text, at(1))
    Meter(telemetry, "sink", text).set("podgpu_sink_up", 0)
    return status_input(
        node, telemetry=telemetry, sinks={text: text}, node=text, ready=(False, text)
    )


SCENES: dict[str, Callable[[], StatusInput]] = {
    "two-gpus": two_gpus,
    "mig": mig_node,
    "troubled": troubled,
    "no-driver": no_driver,
    "no-holders": no_holders,
    "nothing-yet": nothing_yet,
    "hostile": hostile,
}


def status(name: str) -> StatusDocument:
    return status_of(SCENES[name]())
