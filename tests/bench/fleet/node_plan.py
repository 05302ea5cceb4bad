"""What each node of a simulated fleet is: its devices, its model, and the days of its ledgers."""

from dataclasses import dataclass, replace
from random import Random
from typing import Final

from pipeline.ledger.schema import HOUR_NS
from pipeline.model import Device, MigPlace

DAY_NS: Final = 24 * HOUR_NS
FIRST_DAY: Final = 20_605
"""The first day of the fleet, counted from the Unix epoch: 2026-06-01."""

GPUS: Final = 8
MODELS: Final = ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB")
_WATTS: Final = (70, 55)
_PROFILES: Final = ("1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb")
"""The MIG instances of a GPU that is split."""


@dataclass(frozen=True, slots=True)
class LedgerSpan:
    """The time of one ledger file of a node.

    Attributes:
        number: number of the ledger among those of its node, from 0.
        start_ns: when it begins, in nanoseconds of Unix time.
        end_ns: when it ends, in nanoseconds of Unix time.
    """

    number: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class NodePlan:
    """A node of the fleet.

    Attributes:
        cluster: name of its cluster.
        name: name of the node.
        gpus: its GPUs, by index.
        instances: the MIG instances of the last GPU; empty without MIG.
        idle_watts: power of a GPU that is free.
        has_energy: whether the driver reports energy.
        spans: the times of its ledgers: one, or two if the disk was replaced.
    """

    cluster: str
    name: str
    gpus: tuple[Device, ...]
    instances: tuple[Device, ...]
    idle_watts: int
    has_energy: bool
    spans: tuple[LedgerSpan, ...]

    @property
    def devices(self) -> tuple[Device, ...]:
        """The GPUs and MIG instances."""
        return (*self.gpus, *self.instances)

    @property
    def timed(self) -> tuple[Device, ...]:
        """The devices that containers can hold: all except a GPU that is split."""
        return (*self.gpus[:-1], *self.instances) if self.instances else self.gpus


def plan_node(number: int, days: int, seed: int, clusters: int = 1) -> NodePlan:
    """Return a node of the fleet. Equal arguments give equal nodes.

    A third of the nodes has the second model, a tenth has MIG, one in twenty reports no energy.
    Three in a hundred go away, three are added later, and two lose their disk and begin a new
    ledger.

    Args:
        number: number of the node, from 0.
        days: length of the fleet's history.
        seed: seed of the fleet.
        clusters: number of clusters.
    """
    chance = Random(f"node {seed} {number}")
    kind = 1 if number % 3 == 2 else 0
    gpus = tuple(
        Device(
            f"GPU-{_uuid(chance)}", at, at, f"00000000:{at + 1:02X}:00.0", MODELS[kind], "580.159"
        )
        for at in range(GPUS)
    )
    instances: tuple[Device, ...] = ()
    if number % 10 == 3:
        parent = gpus[-1]
        instances = tuple(
            replace(parent, uuid=f"MIG-{_uuid(chance)}", mig=MigPlace(parent.uuid, gi, 0, profile))
            for gi, profile in enumerate(_PROFILES, 1)
        )
    first, last = FIRST_DAY * DAY_NS, (FIRST_DAY + days) * DAY_NS
    moment = first + chance.randrange(1, days * 24) * HOUR_NS + chance.randrange(HOUR_NS)
    spans: tuple[LedgerSpan, ...] = (LedgerSpan(0, first, last),)
    match number % 100:
        case 17 | 41 | 83:
            spans = (LedgerSpan(0, first, moment),)
        case 6 | 52 | 77:
            spans = (LedgerSpan(0, moment, last),)
        case 11 | 60:
            back = min(moment + 3 * HOUR_NS, last)
            spans = (LedgerSpan(0, first, moment), LedgerSpan(1, back, last))
        case _:
            pass
    return NodePlan(
        f"cluster-{number % clusters + 1}",
        f"gpu-{number:04}",
        gpus,
        instances,
        _WATTS[kind],
        number % 20 != 9,
        tuple(span for span in spans if span.end_ns - span.start_ns > HOUR_NS),
    )


def _uuid(chance: Random) -> str:
    digits = f"{chance.getrandbits(128):032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
