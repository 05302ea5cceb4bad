"""T25: held, free and unknown time of a device while sources come and go."""

import pytest

from pipeline.model import (
    NS,
    DeviceUsage,
    DeviceUse,
    ProcessesSampled,
    SourceAdded,
)
from tests.support.nodes import Node, at, claim, gpu

GPUS = gpu(0), gpu(1)


def make_node(*owners: str) -> Node:
    made = Node()
    for order, source in enumerate(("gpus", *owners)):
        made.say(SourceAdded(order), source, "nvml" if source == "gpus" else "podlist")
    made.has(*GPUS)
    return made


def sample(made: Node, seconds: float, since: float | None) -> None:
    made.seconds = seconds
    uses = [
        DeviceUse(
            one.uuid,
            at(seconds),
            None if since is None else at(since),
            (),
            0,
            0,
            None,
            None,
            600 * NS,
        )
        for one in GPUS
    ]
    made.say(ProcessesSampled(tuple(uses)))


def times(made: Node) -> list[tuple[int, int, int]]:
    """Return the seconds for which each GPU was held, free, and unknown."""

    def of(one: DeviceUsage) -> tuple[int, int, int]:
        held = sum(had.held_ns for had in one.containers)
        parts = held, one.unheld_ns - one.unknown_ns, one.unknown_ns
        assert sum(parts) == one.elapsed_ns
        return parts[0] // NS, parts[1] // NS, parts[2] // NS

    usage = made.snapshot().usage
    assert usage is not None
    return [of(usage.devices[one.uuid]) for one in GPUS]


def test_t25_one_of_two_gpus_is_held() -> None:
    made = make_node("podlist")
    made.podlist(claim("a", GPUS[0].uuid))
    sample(made, 1, None)
    sample(made, 41, 1)
    assert times(made) == [(40, 0, 0), (0, 40, 0)]


def test_t25_without_a_source_of_claims_all_time_is_unknown() -> None:
    made = make_node()
    sample(made, 1, None)
    sample(made, 41, 1)
    assert times(made) == [(0, 0, 40), (0, 0, 40)]


@pytest.mark.parametrize("empty", [True, False])
def test_t25_the_time_before_a_source_of_claims_reports_is_unknown(empty: bool) -> None:
    made = make_node("podlist")
    sample(made, 1, None)
    sample(made, 12, 1)  # ignored: samples wait ten seconds for the first report of a source
    made.seconds = 20
    made.podlist(*(() if empty else (claim("a", GPUS[0].uuid),)))
    sample(made, 30, 12)
    assert times(made) == [(0, 10, 8) if empty else (10, 0, 8), (0, 10, 8)]


def test_t25_an_unresolved_id_makes_the_time_of_other_gpus_unknown() -> None:
    made = make_node("podlist")
    made.podlist(claim("a", GPUS[0].uuid), claim("b", "mystery"))
    sample(made, 1, None)
    sample(made, 11, 1)
    assert times(made) == [(10, 0, 0), (0, 0, 10)]
