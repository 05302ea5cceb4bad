"""A node with usage accounts, and an encoder that encodes them."""

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
    """A node, and an encoder that gets its snapshots."""

    def __init__(self, *devices: Device, started: bool = True, **options: object) -> None:
        self.node = Node()
        self.node.has(*(devices or (gpu(0),)))
        plan = FieldPlan(["power_watts"])
        self.encoder = Encoder("node-1", plan, **options)  # type: ignore[arg-type]
        self.usage: Usage | None = None
        if started:  # podgpu has just started: there is no usage sample yet
            self.encode()

    def sample(self, *accounts: DeviceUsage) -> list[Point]:
        self.usage = usage(*accounts)
        return self.encode()

    def sample_containers(self, *containers: ContainerUsage, second: float) -> list[Point]:
        self.node.seconds = second
        return self.sample(account(gpu(0), *containers, until=at(second)))

    def encode(self) -> list[Point]:
        return points(self.encoder.encode(self.snapshot()))

    def snapshot(self) -> Snapshot:
        return replace(self.node.snapshot(), usage=self.usage)


def container_points(found: Sequence[Point]) -> list[Point]:
    return [point for point in found if point.name.startswith(("podgpu.container", "podgpu_cont"))]
