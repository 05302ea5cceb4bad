"""Compare requests, as text, with golden files.

`PODGPU_WRITE_GOLDEN=1` writes the files again; read the difference before you commit it.
"""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.fields import FieldPlan, LabelRow
from pipeline.model import NS, ContainerUsage, DeviceUsage, PodInfo, Snapshot
from sinks.otlp.encoding.encoder import Encoder
from sinks.otlp.options import Names
from tests.sinks.otlp.encoding.support import Point, pods, points
from tests.support.nodes import Node, at, claim, gpu, mig, reading
from tests.support.usage import account, used, with_usage

FOLDER = Path(__file__).parents[3] / "golden" / "otlp"

FIRST = replace(gpu(0), facts=(("serial", "1650522012345"), ("vbios_version", "96.00.74")))
SHARED = gpu(1)
DIVIDED = gpu(2)
INSTANCE = mig(DIVIDED, 7, profile="2g.20gb")
PLAN = FieldPlan(
    [
        "power_watts",
        "energy_millijoules",
        "gpu_temperature_celsius",
        "gpu_utilization_percent",
        "memory_copy_utilization_percent",
        "processes",
        "memory_total_bytes",
        "memory_used_bytes",
        "ecc_corrected_volatile",
        "row_remap_failed",
        "gpu_up",
        "xid_errors",
        "xid_last",
        "graphics_engine_active_ratio",
    ],
    labels=[LabelRow("DCGM_FI_DRIVER_VERSION", "driver_version")],
)


def _node() -> Node:
    node = Node()
    node.has(FIRST, SHARED, DIVIDED, INSTANCE)
    labels = (("app.kubernetes.io/name", "llm"),)
    pods(
        node,
        PodInfo("u-train", "ml", "train-0", "Running", "StatefulSet", "train", labels=labels),
        PodInfo("u-a", "ml", "serve-a", "Running", "Deployment", "serve"),
        PodInfo("u-b", "ml", "serve-b", "Running", "Deployment", "serve"),
    )
    _hold(node, "train-0")
    return node


def _hold(node: Node, pod: str) -> None:
    node.podlist(
        claim(pod, FIRST.uuid),
        claim("serve-a", SHARED.uuid, share=0.5),
        claim("serve-b", SHARED.uuid, share=0.5),
        claim("note-0", INSTANCE.uuid, namespace="lab", container="jupyter"),
    )


def _read(node: Node, energy: int) -> Snapshot:
    node.seconds += 1
    now = at(node.seconds)
    for device in (FIRST, SHARED, DIVIDED):
        busy = 50 if device is FIRST else 0
        node.reads(
            reading(device, "power_watts", 310.25, when=now),
            reading(device, "energy_millijoules", energy, when=now),
            reading(device, "gpu_temperature_celsius", 41, when=now),
            reading(device, "gpu_utilization_percent", busy, when=now),
            reading(device, "memory_copy_utilization_percent", 7, when=now),
            reading(device, "processes", 2, attrs=(("kind", "compute"),), when=now),
            reading(device, "memory_total_bytes", 80 << 30, when=now),
            reading(device, "memory_used_bytes", 20 << 30, when=now),
            reading(device, "ecc_corrected_volatile", 3, when=now),
            reading(device, "row_remap_failed", 0, when=now),
            reading(device, "gpu_up", 1, when=now),
            reading(device, "xid_errors", 1, attrs=(("xid", "79"),), when=now),
            reading(device, "xid_last", 79, when=now),
        )
    node.reads(
        reading(INSTANCE, "graphics_engine_active_ratio", 0.75, when=now),
        reading(INSTANCE, "memory_used_bytes", 1 << 30, when=now),
        reading(INSTANCE, "memory_total_bytes", 20 << 30, when=now),
    )
    return node.snapshot()


def readings() -> Iterator[Snapshot]:
    yield _read(_node(), 5_000)


def set_back() -> Iterator[Snapshot]:
    node = _node()
    for energy in (5_000, 6_000, 250):
        yield _read(node, energy)


def moved() -> Iterator[Snapshot]:
    node = _node()
    yield _read(node, 5_000)
    _hold(node, "train-1")
    yield node.snapshot()
    yield _read(node, 6_000)


def gone() -> Iterator[Snapshot]:
    node = _node()
    yield _read(node, 5_000)
    node.join = type(node.join)()  # a new join, without any report
    node.has(FIRST)
    yield node.snapshot()


def usage() -> Iterator[Snapshot]:
    """A shared GPU and a MIG instance; one container has ended, and is later forgotten."""
    node = _node()
    gone = used("job-0", start=at(1), ended=at(2), busy=2 * NS, energy=90_000, xids=((31, 2),))
    for second, ended in ((5, [gone]), (10, [])):
        node.seconds = second
        yield with_usage(node.snapshot(), *_accounts(second, *ended))


def _accounts(second: int, *more: ContainerUsage) -> Iterator[DeviceUsage]:
    now = at(second)
    yield account(
        SHARED,
        used(
            "serve-a",
            memory=8 << 30,
            busy=second * NS // 4,
            held=second * NS // 2,
            energy=7_500,
            contested=second * NS // 25,
            switching=second,
        ),
        used(
            "serve-b",
            memory=4 << 30,
            busy=second * NS // 8,
            held=second * NS // 2,
            energy=2_500,
            contested=0,
            switching=0,
        ),
        *more,
        until=now,
        memory=1 << 20,
        reserved=600 << 20,
        energy=125,
        forgotten=(0, 0, 0) if more else (2 * NS, 0, 90_000),
    )
    note = used("note-0", namespace="lab", container="jupyter", uid="", held=second * NS)
    yield account(INSTANCE, note, until=now, busy=NS, energy=None)
    yield account(DIVIDED, until=now, memory=None, busy=None, energy=1_000)


SCENES: dict[str, Callable[[], Iterator[Snapshot]]] = {
    "readings": readings,
    "counter-set-back": set_back,
    "holder-changed": moved,
    "gpus-gone": gone,
    "usage": usage,
}


@pytest.mark.parametrize("names", ["semconv", "dcgm"])
@pytest.mark.parametrize("scene", SCENES)
def test_requests_equal_their_golden_file(scene: str, names: Names) -> None:
    encoder = Encoder("node-1", PLAN, names=names, resource={"k8s.cluster.name": "lab"})
    requests = [_as_text(points(encoder.encode(snapshot))) for snapshot in SCENES[scene]()]
    compared = requests if scene in {"readings", "usage"} else requests[1:]
    text = json.dumps(compared, indent=1, ensure_ascii=False) + "\n"
    path = FOLDER / f"{scene}-{names}.json"
    if os.environ.get("PODGPU_WRITE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def _as_text(found: list[Point]) -> list[object]:
    """Return points as text, one line each, grouped by resource and metric."""
    resources: dict[object, dict[str, list[str]]] = {}
    for point in found:
        place = ", ".join(
            f"{name}={value}" for name, value in point.resource if name != "service.version"
        )
        kind = point.kind + {0: "", 1: " of increments", 2: ""}[point.temporality]
        metric = " ".join(filter(None, (point.name, kind, point.unit)))
        attributes = ", ".join(f"{name}={value}" for name, value in point.attributes)
        times = f"at {point.time - at(0).wall_ns}"
        if point.start:
            times = f"from {point.start - at(0).wall_ns} {times}"
        value = "ended" if point.ended else repr(point.value)
        lines = resources.setdefault(place, {}).setdefault(metric, [])
        lines.append(f"{value} {times}: {attributes}")
    return [{"resource": place, "metrics": metrics} for place, metrics in resources.items()]
