"""A report names the nodes that have usage for only a part of its time."""

import pytest

from pipeline.model.ledger_usage import DeviceTotal, UsageWindow
from podgpu.cli.usage.partial_nodes import partial_nodes

HOUR = 3_600_000_000_000


def window(**hours: tuple[float, ...]) -> UsageWindow:
    """Return 100 hours of nodes, each with devices that have usage for so many hours."""
    totals = tuple(
        DeviceTotal(
            device=f"GPU-{node}-{number}",
            name="NVIDIA H200",
            accounted_ns=int(length * HOUR) - HOUR,
            gap_ns=HOUR,
            busy_ns=None,
            energy_mj=None,
            unknown_ns=0,
            node=node,
            cluster="east",
        )
        for node, lengths in hours.items()
        for number, length in enumerate(lengths)
    )
    return UsageWindow("", 0, 100 * HOUR, (), totals, ())


@pytest.mark.parametrize(
    "hours",
    [
        pytest.param({"a": (100,), "b": (100, 100)}, id="all of the time, gaps included"),
        pytest.param({"a": (100,), "b": (97.1,)}, id="the last hours are not written yet"),
        pytest.param({"a": (100, 20)}, id="a GPU or a MIG instance was added"),
    ],
)
def test_complete_nodes_are_not_named(hours: dict[str, tuple[float, ...]]) -> None:
    assert partial_nodes(window(**hours)) == ""


@pytest.mark.parametrize(
    ("hours", "expected"),
    [
        (
            {"a": (100,), "b": (97, 50)},
            "1 of 2 nodes has usage for only a part of this time: east/b (97 of 100 h). Unless",
        ),
        (
            {"a": (100,), "b": (40,), "c": (10,), "d": (30,), "e": (20,)},
            (
                "4 of 5 nodes have usage for only a part of this time: east/c (10 of 100 h), "
                "east/e (20 of 100 h), east/d (30 of 100 h) and 1 more. Unless"
            ),
        ),
    ],
)
def test_the_shortest_are_named_first(hours: dict[str, tuple[float, ...]], expected: str) -> None:
    assert partial_nodes(window(**hours)).startswith(expected)
