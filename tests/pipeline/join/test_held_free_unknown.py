"""Held, free and unknown time of a device, as sources come and go; T25."""

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


def node(*owners: str) -> Node:
    made = Node()
    for order, source in enumerate(("gpus", *owners)):
        made.say(SourceAdded(order), source, "nvml" if source == "gpus" else "podlist")
    made.has(*GPUS)
    return made


def look(made: Node, seconds: float, since: float | None) -> None:
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
    """Seconds that each GPU was held, free, and of unknown holder."""

    def of(one: DeviceUsage) -> tuple[int, int, int]:
        held = sum(had.held_ns for had in one.containers)
        parts = held, one.unheld_ns - one.unknown_ns, one.unknown_ns
        assert sum(parts) == one.elapsed_ns
        return parts[0] // NS, parts[1] // NS, parts[2] // NS

    usage = made.snapshot().usage
    assert usage is not None
    return [of(usage.devices[one.uuid]) for one in GPUS]


def test_t25_one_of_two_gpus_is_given_away() -> None:
    made = node("podlist")
    made.podlist(claim("a", GPUS[0].uuid))
    look(made, 1, None)
    look(made, 41, 1)
    assert times(made) == [(40, 0, 0), (0, 40, 0)]


def test_t25_without_a_source_that_reports_of_owners_nothing_is_known() -> None:
    made = node()
    look(made, 1, None)
    look(made, 41, 1)
    assert times(made) == [(0, 0, 40), (0, 0, 40)]


@pytest.mark.parametrize("empty", [True, False])
def test_t25_what_lies_before_such_a_source_speaks_and_after_it_is_unknown(empty: bool) -> None:
    made = node("podlist")
    look(made, 1, None)
    look(made, 12, 1)  # looks are passed over for ten seconds
    made.seconds = 20
    made.podlist(*(() if empty else (claim("a", GPUS[0].uuid),)))
    look(made, 30, 12)
    assert times(made) == [(0, 10, 8) if empty else (10, 0, 8), (0, 10, 8)]


def test_t25_an_id_that_no_one_can_name_leaves_the_others_unknown() -> None:
    made = node("podlist")
    made.podlist(claim("a", GPUS[0].uuid), claim("b", "mystery"))
    look(made, 1, None)
    look(made, 11, 1)
    assert times(made) == [(10, 0, 0), (0, 0, 10)]
