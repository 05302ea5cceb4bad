"""From looks at the devices to accounts: when it was, whose look counts, and what is published."""

import pytest

from pipeline.model import (
    NS,
    ClockTicked,
    ContainersReplaced,
    ContainerStarted,
    DeviceAliasesReplaced,
    Envelope,
    Event,
    Evidence,
    MigPlace,
    PartialRef,
    PodsReplaced,
    ResourcesAdvertised,
    RunningContainer,
    SourceAdded,
    SourceLost,
    SourceRemoved,
    TopologyRead,
    TotalsRestored,
    XidsReported,
)
from tests.pipeline.join.cluster import GPUS, A, B, ran
from tests.pipeline.join.watched import Watched, ids, ran_by
from tests.pipeline.usage.looking import S, use
from tests.support.nodes import at, mig
from tests.support.usage import account, holding
from tests.support.usage import used as had

# -- when it was


def hold(node: Watched, when: float, *pods: str) -> None:
    node.seconds = when
    node.runtime(*(ran(name, A) for name in pods))


def held(node: Watched) -> dict[str, int]:
    return {one.subject.pod: one.held_ns for one in node.account().containers}


def test_holders_change_when_it_was_said() -> None:
    node = Watched()
    hold(node, 0, "a")
    node.look(0, use(A, 0, None))
    hold(node, 3, "b")
    hold(node, 7)
    node.look(10, use(A, 10, 0))
    assert held(node) == {"a": 3 * S, "b": 4 * S}


def test_what_changes_while_a_look_is_under_way_is_split_rightly() -> None:
    node = Watched()
    hold(node, 0, "a")
    node.look(0, use(A, 0, None))
    hold(node, 5.5, "b")
    node.look(5, use(A, 5, 0), heard=6)
    assert held(node) == {"a": 5 * S, "b": 0}
    node.look(10, use(A, 10, 5))
    assert held(node) == {"a": 5 * S + S // 2, "b": 4 * S + S // 2}


def test_changes_that_wait_in_the_inbox_count_from_when_they_were_said() -> None:
    node = Watched()
    hold(node, 0, "a")
    node.look(0, use(A, 0, None))
    node.join.apply(
        Envelope("runtime", "runtime", 1, at(4), ContainersReplaced((), NS)), more_pending=True
    )
    given_out = ContainerStarted(
        RunningContainer(
            PartialRef("ml", "b", "main", "uid-b", "2"),
            claims=(ran("b", A, evidence=Evidence.RUNTIME_CDI),),
        )
    )
    node.join.apply(Envelope("runtime", "runtime", 1, at(4), given_out), more_pending=True)
    node.look(10, use(A, 10, 0))
    assert held(node)["b"] == 6 * S


def test_a_claim_that_expires_is_held_no_more() -> None:
    node = Watched()
    hold(node, 0, "a")
    node.look(0, use(A, 0, None))
    node.tick(301)
    node.look(310, use(A, 310, 0))
    assert held(node) == {"a": 301 * S}


# -- whose look counts


def feed(node: Watched, source: str, when: float, since: float | None, energy: int) -> bool:
    return node.look(when, use(A, when, since, energy=energy, busy=0), source=source)


def test_of_two_sources_the_first_is_believed_while_its_look_is_good() -> None:
    node = Watched()
    node.say(SourceAdded(9), "other", "other")
    assert feed(node, "other", 0, None, 0)
    assert feed(node, "other", 5, 0, 10)
    assert feed(node, "gpus", 6, None, 1000)
    feed(node, "other", 10, 5, 20)
    assert node.account().elapsed_ns == 5 * S
    assert not feed(node, "other", 20, 10, 30)
    assert feed(node, "gpus", 21, 16, 2000)
    assert (node.account().elapsed_ns, node.account().energy_mj) == (10 * S, 10)
    # It has been silent for so long that its last look is no longer good.
    assert feed(node, "other", 40, 30, 50)
    assert node.account().elapsed_ns == 20 * S
    assert node.account().at == at(40)


def test_nothing_is_reported_where_no_source_reports() -> None:
    node = Watched()
    assert node.snapshot().usage is None
    node.look(0)
    assert node.used().devices == {}


def hinted(node: Watched, when: float, event: Event, source: str) -> list[frozenset[str]]:
    """Say something, and return the devices that are to be looked at for it."""
    outcome = node.join.apply(Envelope(source, source, 1, at(when), event))
    return [hint.devices for hint in outcome.hints]


def test_looks_count_once_each_source_has_spoken() -> None:
    node = Watched()
    node.say(SourceAdded(9), "names", "names")
    node.look(0, use(A, 0, None))
    node.look(1, use(A, 1, 0, used=100))
    assert node.used().devices == {}
    # What has been passed over is looked at again at once.
    assert hinted(node, 2, SourceLost("no server"), "names") == [{d.uuid for d in GPUS}]
    node.look(3, use(A, 3, 1))
    node.look(5, use(A, 5, 3))
    assert (node.account().start, node.account().elapsed_ns) == (at(3), 2 * S)


def test_a_source_that_never_speaks_is_waited_for_for_ten_seconds() -> None:
    node = Watched()
    node.say(SourceAdded(9), "names", "names")
    node.look(0, use(A, 0, None))
    node.look(9, use(A, 9, 0))
    assert node.used().devices == {}
    assert hinted(node, 10, ClockTicked(), "clock") == [{d.uuid for d in GPUS}]
    assert hinted(node, 10, ClockTicked(), "clock") == []
    node.look(11, use(A, 11, 9))
    assert node.account().start == at(11)


@pytest.mark.parametrize(
    "other",
    [DeviceAliasesReplaced(()), ResourcesAdvertised((), NS), TopologyRead((), ())],
)
def test_who_reports_something_else_first_is_still_waited_for(other: Event) -> None:
    node = Watched()
    node.say(SourceAdded(9), "names", "names")
    node.look(0, use(A, 0, None))
    assert hinted(node, 1, other, "names") == []
    assert node.snapshot().sources["names"].has_reported
    node.look(2, use(A, 2, 0))
    assert node.used().devices == {}
    assert hinted(node, 3, PodsReplaced((), NS), "names") == [{d.uuid for d in GPUS}]


def test_a_source_that_comes_later_is_not_waited_for() -> None:
    node = Watched()
    node.look(0, use(A, 0, None))
    node.say(SourceAdded(9), "names", "names")
    node.look(5, use(A, 5, 0))
    assert node.account().elapsed_ns == 5 * S


def test_a_source_that_leaves_takes_what_it_said_of_memory_along() -> None:
    node = Watched()
    node.say(SourceAdded(9), "other", "other")
    node.say(XidsReported(()), "other", "other")
    node.look(0, use(A, 0, None, used=100))
    node.look(0, use(B, 0, None, used=200), source="other")
    node.say(SourceRemoved(), "other", "other")
    assert node.account(A).memory_used_bytes == 100
    assert node.account(B).memory_used_bytes is None


@pytest.mark.parametrize(("back", "continues"), [(299, True), (301, False)])
def test_accounts_outlive_the_restart_of_a_source(*, back: float, continues: bool) -> None:
    node = Watched()
    # Devices are told by another.
    node.look(0, use(A, 0, None), source="other")
    node.look(10, use(A, 10, 0), source="other")
    node.say(SourceRemoved(), "other", "other")
    assert node.snapshot().usage is None
    node.tick(10 + back)
    node.say(SourceAdded(9), "other", "other")
    assert node.snapshot().usage is None
    node.look(11 + back, use(A, 11 + back, None), source="other")
    assert node.account().elapsed_ns == (10 * S if continues else 0)
    assert node.account().start == (at(0) if continues else at(11 + back))


def test_who_holds_what_is_known_to_accounts_that_restart() -> None:
    node = Watched()
    node.tell("runtime", ContainersReplaced((), 10_000 * NS))
    claim = ran("a", A, evidence=Evidence.RUNTIME_CDI)
    given_out = RunningContainer(PartialRef("ml", "a", "main", "uid-a", "1"), claims=(claim,))
    node.tell("runtime", ContainerStarted(given_out))
    node.look(0, use(A, 0, None), source="other")
    node.say(SourceRemoved(), "other", "other")
    node.tick(400)
    node.look(401, use(A, 401, None), source="other")
    node.look(405, use(A, 405, 401), source="other")
    assert held(node) == {"a": 4 * S}


def test_a_source_that_is_down_takes_nothing_along_but_time() -> None:
    node = Watched()
    node.looks(ran_by(ids("a")))
    node.tell("gpus", SourceLost("no driver"))
    assert node.account().memory_used_bytes == 100
    node.tick(25.1)
    assert node.account().memory_used_bytes is None
    assert node.sole().busy_ns == S
    node.look(99, use(A, 99, None))
    assert node.account().elapsed_ns == 10 * S


# -- which device it is


def test_devices_that_no_one_enumerates_are_passed_over() -> None:
    node = Watched()
    assert node.look(0, use("GPU-?", 0, None))
    assert not node.look(5, use("GPU-?", 5, 0))
    assert node.used().devices == {}


def test_an_instance_may_go_by_its_place() -> None:
    one = mig(GPUS[0], 1)
    node = Watched([*GPUS, one])
    place = MigPlace(GPUS[0].uuid, 1, None, "").name
    node.look(0, use(place, 0, None))
    node.look(10, use(place, 10, 0))
    assert node.account(one.uuid).elapsed_ns == 10 * S


def test_the_order_is_that_of_devices() -> None:
    node = Watched()
    node.look(0, use(B, 0, None), use(A, 0, None))
    assert list(node.used().devices) == [A, B]


# -- what is published


def test_a_look_changes_the_snapshot_and_a_tick_does_not() -> None:
    node = Watched()
    assert node.look(0, use(A, 0, None))
    before = node.used()
    assert not node.say(ClockTicked(), "", "clock")
    assert node.used() is before
    assert not node.look(0, use(A, 0, None))
    assert node.used() is before
    assert node.look(5, use(A, 5, 0))
    assert node.used() is not before


def test_what_is_no_longer_good_changes_it() -> None:
    node = Watched()
    node.look(0, use(A, 0, None, used=5))
    node.seconds = 16
    assert node.say(ClockTicked(), "", "clock")
    assert node.account().memory_used_bytes is None


# -- what is restored


@pytest.mark.parametrize("looked", [False, True])
def test_a_recording_played_again_reports_of_no_holding_twice(*, looked: bool) -> None:
    node = Watched()
    continuing = holding("a", A, uid="uid-a", until=at(10))
    unknown = "GPU-unknown"
    given_out = TotalsRestored(
        (
            account(A, had("a", uid="uid-a", held=10 * S, holding=continuing), until=at(10)),
            account(unknown, had("a", holding=holding("a", unknown, until=at(10)))),
        )
    )
    node.seconds = 20
    node.say(given_out, "ledger", "ledger", via="replay")
    if looked:
        hold(node, 21, "a")
        node.look(22, use(A, 22, None))
    before = node.snapshot().usage
    assert (before is not None) == looked
    node.say(given_out, "ledger", "ledger", via="replay")
    after = node.snapshot().usage
    assert (after and after.devices) == (before and before.devices)
    assert not (after and after.ended)
