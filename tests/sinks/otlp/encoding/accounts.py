"""Accounts of usage as an encoder is shown them."""

from collections.abc import Sequence
from dataclasses import replace

from pipeline.fields import FieldPlan
from pipeline.model import ContainerUsage, Device, DeviceUsage, Snapshot, Usage
from sinks.otlp.encoding.encoder import Encoder
from tests.sinks.otlp.encoding.support import Point, points
from tests.support.nodes import Node, at, gpu, mig
from tests.support.usage import account, usage

BUSY = "podgpu.container.busy"
HELD = "podgpu.container.held"
MEMORY = "podgpu.container.memory.used"
ENERGY = "podgpu.container.energy"
ERRORS = "podgpu.container.xid_errors"
MS = 1_000_000
PARENT = gpu(1)
DEVICES = [gpu(0), PARENT, mig(PARENT, 1), gpu(2)]


class Scene:
    """A node, and an encoder that is shown its accounts."""

    def __init__(self, *devices: Device, given_out: bool = True, **options: object) -> None:
        self.node = Node()
        self.node.has(*(devices or (gpu(0),)))
        plan = FieldPlan(["power_watts"])
        self.encoder = Encoder("node-1", plan, **options)  # type: ignore[arg-type]
        self.usage: Usage | None = None
        if given_out:  # podgpu has just started: nobody has looked yet
            self.take()

    def look(self, *accounts: DeviceUsage) -> list[Point]:
        self.usage = usage(*accounts)
        return self.take()

    def look_at(self, *containers: ContainerUsage, second: float) -> list[Point]:
        self.node.seconds = second
        return self.look(account(gpu(0), *containers, until=at(second)))

    def take(self) -> list[Point]:
        return points(self.encoder.encode(self.snapshot()))

    def snapshot(self) -> Snapshot:
        return replace(self.node.snapshot(), usage=self.usage)


def of_pods(found: Sequence[Point]) -> list[Point]:
    return [point for point in found if point.name.startswith(("podgpu.container", "podgpu_cont"))]
