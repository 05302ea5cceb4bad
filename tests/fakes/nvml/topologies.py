"""Scenarios of nodes with different topologies."""

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from tests.fakes.nvml.nodes import h100
from tests.fakes.nvml.scenario import Gpu, Number, Scenario

INTERNAL: Final = 0
SINGLE: Final = 10
MULTIPLE: Final = 20
HOSTBRIDGE: Final = 30
NODE: Final = 40
SYSTEM: Final = 50

NO_LINK: Final = 5
"""nvmlGpuP2PStatus_t: NOT_SUPPORTED."""

Wires: TypeAlias = Mapping[tuple[int, int], int]
"""The number of direct NVLinks between two GPUs."""

CUBE_MESH: Final[Wires] = {
    **dict.fromkeys([(0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7)], 1),
    **dict.fromkeys([(0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7)], 2),
}
"""The NVLinks of a DGX-1 with V100: each GPU has six."""


def joined(
    levels: Sequence[Sequence[int]],
    *,
    wires: Wires | None = None,
    switches: Sequence[Sequence[int]] = (),
    links: int = 18,
) -> Scenario:
    """Return a node of H100s.

    Args:
        levels: the common ancestor of each pair of GPUs. The diagonal is not used.
        wires: the direct links between GPUs.
        switches: indexes of the GPUs on each set of NVSwitches.
        links: the number of links of a GPU to its switches.
    """
    cards = [h100(at) for at in range(len(levels))]
    wires = wires or {}
    both = {**wires, **{(b, a): count for (a, b), count in wires.items()}}

    def card(at: int) -> Gpu:
        switched = next((group for group in switches if at in group), ())
        remotes: list[tuple[int, str]] = []
        values: dict[str, Number | None] = {}
        for other in cards:
            to = cards.index(other)
            direct = both.get((at, to), 0)
            remotes += [(0, other.bus_id)] * direct
            if to != at:
                values[f"topology_{to}"] = levels[at][to]
                values[f"p2p_2_{to}"] = 0 if direct or to in switched else NO_LINK
        remotes += [(2, "FFFFFFFF:FF:FF.0")] * (links if switched else 0)
        for link, (kind, _) in enumerate(remotes):
            values |= {f"nvlink_state_{link}": 1, f"nvlink_remote_type_{link}": kind}
        ends = {link: bus_id for link, (_, bus_id) in enumerate(remotes)}
        return h100(at, values={**values, "nvlinks": len(ends)}, remotes=ends)

    return Scenario(gpus=[card(at) for at in range(len(cards))])


def sockets(count: int, each: int, near: int = NODE, far: int = SYSTEM) -> list[list[int]]:
    """Return the levels of a node with `count` GPUs in groups of `each`."""
    places = range(count)
    return [[near if a // each == b // each else far for b in places] for a in places]


def dgx1() -> Scenario:
    """Return eight GPUs like a DGX-1 with V100: pairs on PCIe switches, NVLinks as a cube mesh."""
    levels = [
        [
            SINGLE if a // 2 == b // 2 else HOSTBRIDGE if a // 4 == b // 4 else SYSTEM
            for b in range(8)
        ]
        for a in range(8)
    ]
    return joined(levels, wires=CUBE_MESH)


def hgx(count: int = 8) -> Scenario:
    """Return GPUs on NVSwitches, half of them at each socket."""
    return joined(sockets(count, max(count // 2, 1)), switches=[range(count)])


def pcie(count: int = 8) -> Scenario:
    """Return GPUs without NVLinks, half of them at each socket."""
    return joined(sockets(count, max(count // 2, 1)))


def islands() -> Scenario:
    """Return two groups of four GPUs, each with its own NVSwitches."""
    return joined(sockets(8, 4), switches=[range(4), range(4, 8)])
