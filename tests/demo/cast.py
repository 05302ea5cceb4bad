"""The GPUs and pods of the simulated part of the demo."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

GIB: Final = 1 << 30

Access = Literal["whole", "replica", "slice", "file", "none"]
"""How a container gets a device: the kubelet allocates the whole GPU, a replica of it, or a MIG
instance; a podlist.json names it; or no one does, and only its processes show it."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a container does on one device.

    Attributes:
        place: place of the GPU in `CARDS`.
        access: how it gets the device.
        busy: mean utilisation in percent; 0 for a holder that only keeps memory.
        swing: by how much the utilisation varies around the mean, in percent.
        memory: device memory of its process, in bytes.
        instance: place of the MIG instance on the GPU.
    """

    place: int
    access: Access
    busy: float
    swing: float
    memory: int
    instance: int = 0


@dataclass(frozen=True, slots=True)
class Container:
    """The only container of a pod.

    Attributes:
        program: name of its process.
        works: what it does, for each of its devices.
    """

    namespace: str
    pod: str
    name: str
    program: str
    works: Sequence[Work]


@dataclass(frozen=True, slots=True)
class Model:
    """A model of GPU; power in watts, memory in bytes, clock in MHz."""

    name: str
    memory: int
    idle: float
    limit: float


H100: Final = Model("NVIDIA H100 80GB HBM3 (simulated)", 85_520_809_984, 71, 700)
H200: Final = Model("NVIDIA H200 (simulated)", 150_754_820_096, 76, 700)


@dataclass(frozen=True, slots=True)
class Card:
    """A simulated GPU.

    Attributes:
        instances: profiles of its MIG instances; empty with MIG off.
        pending_remap: whether a row of its memory is to be remapped at the next reset.
        warm: by how much it is warmer than others with the same load, in degrees Celsius.
    """

    model: Model
    instances: Sequence[str] = ()
    pending_remap: bool = False
    warm: float = 0.0


REAL: Final = (Card(H200), Card(H200, warm=2), Card(H200), Card(H200, warm=-2))
"""Stand-ins for the four GPUs whose recordings are real."""
SIMULATED: Final = (
    Card(H100, instances=("3g.40gb", "2g.20gb", "1g.10gb")),
    Card(H100, warm=1),
    Card(H100, warm=3),
    Card(H100, pending_remap=True),
)

_REAL_PODS: Final = (
    Container(
        "research",
        "llama-train-0",
        "trainer",
        "python3",
        [Work(place, "whole", 93, 6, 118 * GIB) for place in (0, 1)],
    ),
    Container("chat", "assistant-0", "server", "python3", [Work(2, "replica", 45, 18, 62 * GIB)]),
    Container("search", "embeddings-0", "encoder", "python3", [Work(2, "replica", 15, 8, 9 * GIB)]),
    Container("notebooks", "scratch-0", "jupyter", "python3", [Work(2, "replica", 0, 0, 18 * GIB)]),
    Container(
        "vision", "detector-0", "detector", "python3", [Work(3, "replica", 42, 12, 24 * GIB)]
    ),
    Container("vision", "tracker-0", "tracker", "python3", [Work(3, "replica", 22, 9, 12 * GIB)]),
    Container("ops", "debug-shell", "shell", "python3", [Work(3, "none", 4, 3, 2 * GIB)]),
)


def _simulated_pods(first: int) -> Sequence[Container]:
    return (
        Container(
            "notebooks",
            "lab-0",
            "jupyter",
            "python3",
            [Work(first, "slice", 55, 25, 21 * GIB, instance=0)],
        ),
        Container(
            "serving",
            "small-0",
            "server",
            "tritonserver",
            [Work(first, "slice", 35, 15, 11 * GIB, instance=1)],
        ),
        Container(
            "research",
            "finetune-0",
            "trainer",
            "python3",
            [Work(first + 1, "replica", 58, 14, 41 * GIB)],
        ),
        Container(
            "research", "eval-0", "eval", "python3", [Work(first + 1, "replica", 24, 12, 17 * GIB)]
        ),
        Container(
            "batch", "render-0", "render", "blender", [Work(first + 2, "whole", 62, 16, 14 * GIB)]
        ),
        Container(
            "batch", "encode-0", "encode", "ffmpeg", [Work(first + 2, "file", 21, 8, 5 * GIB)]
        ),
    )


@dataclass(frozen=True, slots=True)
class Cast:
    """The GPUs of a recording, and the pods that run from its beginning.

    Attributes:
        shared: place of the GPU that falls off the bus.
        disputed: place of the GPU that has two owners, and that is throttled for a while.
        faulty: place of the free GPU with the faulty memory.
        short: the pod of 300 ms.
        failing: the pod whose process causes the first XID error.
    """

    cards: Sequence[Card]
    pods: Sequence[Container]
    shared: int
    disputed: int
    faulty: int
    short: Container
    failing: str = "finetune-0"


def cast(*, everything: bool) -> Cast:
    """Return the GPUs 4 to 7 of the demo, or with `everything` all eight."""
    first = len(REAL) if everything else 0
    faulty = first + 3
    return Cast(
        (*(REAL if everything else ()), *SIMULATED),
        (*(_REAL_PODS if everything else ()), *_simulated_pods(first)),
        shared=first + 1,
        disputed=first + 2,
        faulty=faulty,
        short=Container(
            "batch", "short-0", "task", "python3", [Work(faulty, "whole", 90, 0, 2 * GIB)]
        ),
    )
