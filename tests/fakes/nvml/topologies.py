"""Nodes that differ in how their GPUs are joined."""

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
"""How many direct NVLinks join two GPUs."""

CUBE_MESH: Final[Wires] = {
    **dict.fromkeys([(0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7)], 1),
    **dict.fromkeys([(0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7)], 2),
}
"""What a DGX-1 with V100 has: six links at each GPU."""


def joined(
    levels: Sequence[Sequence[int]],
    *,
    wires: Wires | None = None,
    switches: Sequence[Sequence[int]] = (),
    links: int = 18,
) -> Scenario:
    """A node of H100s.

    Args:
        levels: the common ancestor of each two of them; what is on the diagonal is nobody's.
        wires: the direct links.
        switches: indexes of the GPUs on each set of NVSwitches.
        links: how many links a GPU has to its switches.
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
    """The levels of a node whose GPUs sit in equal groups, the first ones together."""
    places = range(count)
    return [[near if a // each == b // each else far for b in places] for a in places]


def dgx1() -> Scenario:
    """Eight GPUs as a DGX-1 with V100 has them: pairs on PCIe switches, a cube of NVLinks."""
    levels = [
        [
            SINGLE if a // 2 == b // 2 else HOSTBRIDGE if a // 4 == b // 4 else SYSTEM
            for b in range(8)
        ]
        for a in range(8)
    ]
    return joined(levels, wires=CUBE_MESH)


def hgx(count: int = 8) -> Scenario:
    """GPUs on NVSwitches, half of them at each socket."""
    return joined(sockets(count, max(count // 2, 1)), switches=[range(count)])


def pcie(count: int = 8) -> Scenario:
    """GPUs without NVLinks, half of them at each socket."""
    return joined(sockets(count, max(count // 2, 1)))


def islands() -> Scenario:
    """Twice four GPUs, each four on switches of their own."""
    return joined(sockets(8, 4), switches=[range(4), range(4, 8)])
