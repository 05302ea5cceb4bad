"""The pods of a simulated node: who holds which devices, from when until when."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from pipeline.ledger.schema import HOUR_NS
from pipeline.model import PartialRef, PodInfo
from tests.bench.fleet.node_plan import NodePlan

NAMESPACES: Final = tuple(f"ns-{number:02}" for number in range(30))
_WEIGHTS: Final = [60 // (rank + 2) + 1 for rank in range(len(NAMESPACES))]
_TEAMS: Final = ("vision", "nlp", "speech", "ads", "search", "maps", "robotics", "platform")
_TIERS: Final = ("batch", "online", "dev")
_CODES: Final = (13, 31, 43, 48, 63, 94)
_GIB: Final = 1 << 30


@dataclass(slots=True)
class Piece:
    """A container's time on one device, with the amounts that it has so far.

    Attributes:
        own_id: id of the holding.
        device: uuid.
        subject: the container.
        info: what is known of its pod.
        parts: it holds one part of this many.
        start_ns: start, in nanoseconds of Unix time.
        end_ns: end, in nanoseconds of Unix time.
        busy_ppm: the busy part of its held time, in millionths; None if unknown.
        watts: power while it holds the device.
        memory_bytes: its mean memory.
        xids: (code, count) of XID errors.
        late_facts: whether its labels and owner become known only after its first hours.
        counted_ns, gap_ns, held_ns, busy_ns, energy_mj: amounts so far.
    """

    own_id: str
    device: str
    subject: PartialRef
    info: PodInfo
    parts: int
    start_ns: int
    end_ns: int
    busy_ppm: int | None
    watts: int
    memory_bytes: int
    xids: tuple[tuple[int, int], ...] = ()
    late_facts: bool = False
    counted_ns: int = 0
    gap_ns: int = 0
    held_ns: int = 0
    busy_ns: int | None = None
    energy_mj: int | None = None


@dataclass(frozen=True, slots=True)
class Slot:
    """Devices, or a part of them, that one pod after the other holds.

    Attributes:
        devices: uuids; a pod holds all of them.
        parts: it holds one part of this many.
        hours: mean time of a pod in hours; a twentieth of the pods lasts ten times as long.
        free: mean free time after a pod, as a part of the mean time of a pod.
    """

    devices: tuple[str, ...]
    parts: int
    hours: float
    free: float


def slots_of(plan: NodePlan) -> list[Slot]:
    """Return the slots of a node, which together have about 200 pods a day.

    Four GPUs are held together, by training. Two have short jobs. One or two are shared by four
    notebooks or services each, and the MIG instances of a node have one pod each.
    """
    uuids = [device.uuid for device in plan.timed]
    slots = [Slot(tuple(uuids[:4]), 1, 1.6, 0.1)]
    slots += [Slot((uuid,), 1, 0.28, 0.25) for uuid in uuids[4:6]]
    shared = uuids[6:7] if plan.instances else uuids[6:]
    slots += [Slot((uuid,), 4, 1.2, 0.15) for uuid in shared for _ in range(4)]
    slots += [Slot((device.uuid,), 1, 1.2, 0.3) for device in plan.instances]
    return slots


@dataclass(slots=True)
class PodTimeline:
    """The pieces of all pods of one slot, in the order of their start.

    Args:
        slot: the slot.
        chance: the source of all random choices.
        start_ns: when the first pod may start.
    """

    slot: Slot
    chance: Random
    start_ns: int
    _next: list[Piece] = field(default_factory=list)

    def started_before(self, moment_ns: int) -> Iterator[Piece]:
        """Yield the pieces that start before a moment and were not yielded before."""
        while True:
            if not self._next:
                self._next = self._pod()
            if self._next[0].start_ns >= moment_ns:
                return
            yield from self._next
            self._next = []

    def _pod(self) -> list[Piece]:
        chance, slot = self.chance, self.slot
        hours = chance.expovariate(1 / slot.hours) * (10 if chance.random() < 0.05 else 1)
        start = self.start_ns + int(chance.expovariate(1 / (slot.free * slot.hours)) * HOUR_NS)
        end = start + int((hours + 0.01) * HOUR_NS)
        self.start_ns = end
        info = _pod_info(chance, shared=slot.parts > 1)
        subject = PartialRef(info.namespace, info.name, chance.choice(_CONTAINERS), info.uid)
        busy = None if chance.random() < 0.03 else chance.choice(_BUSY_PPM)
        late, failing = chance.random() < 0.01, chance.random() < 0.005
        return [
            Piece(
                f"{chance.getrandbits(64):016x}",
                device,
                subject,
                info,
                slot.parts,
                start,
                end,
                busy,
                chance.randrange(90, 690),
                chance.randrange(1, 79) * _GIB // slot.parts,
                ((chance.choice(_CODES), chance.randrange(1, 4)),) if failing else (),
                late,
            )
            for device in slot.devices
        ]


_CONTAINERS: Final = ("main", "main", "main", "worker", "server", "notebook")
_BUSY_PPM: Final = (10_000, 40_000, 200_000, 450_000, 700_000, 850_000, 930_000, 970_000)
_OWNERS: Final[Sequence[tuple[str, str]]] = (
    ("Job", "train"),
    ("Job", "eval"),
    ("Deployment", "serve"),
    ("StatefulSet", "notebook"),
    ("", ""),
)


def _pod_info(chance: Random, *, shared: bool) -> PodInfo:
    (namespace,) = chance.choices(NAMESPACES, _WEIGHTS)
    kind, name = _OWNERS[chance.randrange(2, 5) if shared else chance.randrange(5)]
    owner = f"{name}-{chance.randrange(40)}" if kind else ""
    digits = f"{chance.getrandbits(128):032x}"
    uid = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    labels = {"app": name or "shell", "tier": chance.choice(_TIERS)}
    if chance.random() < 0.85:
        # A namespace has two teams.
        labels["team"] = _TEAMS[(int(namespace[3:]) + chance.randrange(2)) % len(_TEAMS)]
    return PodInfo(
        uid,
        namespace,
        f"{owner or 'shell'}-{digits[:5]}",
        owner_kind=kind,
        owner_name=owner,
        labels=() if chance.random() < 0.05 else tuple(sorted(labels.items())),
    )
