"""From usage samples to accounts: times of changes, which source counts, what is published."""

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
from tests.pipeline.join.cluster import GPUS, A, B, runtime_claim
from tests.pipeline.join.sampled_cluster import SampledCluster, cgroup_owner, process_of
from tests.pipeline.usage.samples import S, use
from tests.support.nodes import at, mig
from tests.support.usage import account, holding
from tests.support.usage import used as container_usage

# -- times of changes


def set_holders(node: SampledCluster, when: float, *pods: str) -> None:
    node.seconds = when
    node.runtime(*(runtime_claim(name, A) for name in pods))


def held_times(node: SampledCluster) -> dict[str, int]:
    return {one.subject.pod: one.held_ns for one in node.account().containers}


def test_held_time_changes_at_the_time_of_the_event() -> None:
    node = SampledCluster()
    set_holders(node, 0, "a")
    node.sample(0, use(A, 0, None))
    set_holders(node, 3, "b")
    set_holders(node, 7)
    node.sample(10, use(A, 10, 0))
    assert held_times(node) == {"a": 3 * S, "b": 4 * S}


def test_held_time_is_exact_when_a_sample_arrives_after_a_later_change() -> None:
    node = SampledCluster()
    set_holders(node, 0, "a")
    node.sample(0, use(A, 0, None))
    set_holders(node, 5.5, "b")
    node.sample(5, use(A, 5, 0), received=6)
    assert held_times(node) == {"a": 5 * S, "b": 0}
    node.sample(10, use(A, 10, 5))
    assert held_times(node) == {"a": 5 * S + S // 2, "b": 4 * S + S // 2}


def test_pending_changes_count_from_the_time_of_the_event() -> None:
    node = SampledCluster()
    set_holders(node, 0, "a")
    node.sample(0, use(A, 0, None))
    node.join.apply(
        Envelope("runtime", "runtime", 1, at(4), ContainersReplaced((), NS)), more_pending=True
    )
    event = ContainerStarted(
        RunningContainer(
            PartialRef("ml", "b", "main", "uid-b", "2"),
            claims=(runtime_claim("b", A, evidence=Evidence.RUNTIME_CDI),),
        )
    )
    node.join.apply(Envelope("runtime", "runtime", 1, at(4), event), more_pending=True)
    node.sample(10, use(A, 10, 0))
    assert held_times(node)["b"] == 6 * S


def test_an_expired_claim_ends_the_holding() -> None:
    node = SampledCluster()
    set_holders(node, 0, "a")
    node.sample(0, use(A, 0, None))
    node.tick(301)
    node.sample(310, use(A, 310, 0))
    assert held_times(node) == {"a": 301 * S}


# -- which source counts


def sample_energy(
    node: SampledCluster, source: str, when: float, since: float | None, energy: int
) -> bool:
    return node.sample(when, use(A, when, since, energy=energy, busy=0), source=source)


def test_samples_of_the_first_source_count_while_they_are_valid() -> None:
    node = SampledCluster()
    node.say(SourceAdded(9), "other", "other")
    assert sample_energy(node, "other", 0, None, 0)
    assert sample_energy(node, "other", 5, 0, 10)
    assert sample_energy(node, "gpus", 6, None, 1000)
    sample_energy(node, "other", 10, 5, 20)
    assert node.account().elapsed_ns == 5 * S
    assert not sample_energy(node, "other", 20, 10, 30)
    assert sample_energy(node, "gpus", 21, 16, 2000)
    assert (node.account().elapsed_ns, node.account().energy_mj) == (10 * S, 10)
    # It has been silent for so long that its last sample is no longer valid.
    assert sample_energy(node, "other", 40, 30, 50)
    assert node.account().elapsed_ns == 20 * S
    assert node.account().at == at(40)


def test_without_samples_there_is_no_usage() -> None:
    node = SampledCluster()
    assert node.snapshot().usage is None
    node.sample(0)
    assert node.used().devices == {}


def hinted_devices(
    node: SampledCluster, when: float, event: Event, source: str
) -> list[frozenset[str]]:
    """Apply an event; return the devices that should be sampled because of it."""
    outcome = node.join.apply(Envelope(source, source, 1, at(when), event))
    return [hint.devices for hint in outcome.hints]


def test_samples_count_after_each_source_has_reported() -> None:
    node = SampledCluster()
    node.say(SourceAdded(9), "names", "names")
    node.sample(0, use(A, 0, None))
    node.sample(1, use(A, 1, 0, used=100))
    assert node.used().devices == {}
    # Devices whose samples were ignored are sampled again immediately.
    assert hinted_devices(node, 2, SourceLost("no server"), "names") == [{d.uuid for d in GPUS}]
    node.sample(3, use(A, 3, 1))
    node.sample(5, use(A, 5, 3))
    assert (node.account().start, node.account().elapsed_ns) == (at(3), 2 * S)


def test_samples_wait_ten_seconds_for_a_source_that_never_reports() -> None:
    node = SampledCluster()
    node.say(SourceAdded(9), "names", "names")
    node.sample(0, use(A, 0, None))
    node.sample(9, use(A, 9, 0))
    assert node.used().devices == {}
    assert hinted_devices(node, 10, ClockTicked(), "clock") == [{d.uuid for d in GPUS}]
    assert hinted_devices(node, 10, ClockTicked(), "clock") == []
    node.sample(11, use(A, 11, 9))
    assert node.account().start == at(11)


@pytest.mark.parametrize(
    "other",
    [DeviceAliasesReplaced(()), ResourcesAdvertised((), NS), TopologyRead((), ())],
)
def test_samples_wait_for_a_source_that_reported_something_else_first(other: Event) -> None:
    node = SampledCluster()
    node.say(SourceAdded(9), "names", "names")
    node.sample(0, use(A, 0, None))
    assert hinted_devices(node, 1, other, "names") == []
    assert node.snapshot().sources["names"].has_reported
    node.sample(2, use(A, 2, 0))
    assert node.used().devices == {}
    assert hinted_devices(node, 3, PodsReplaced((), NS), "names") == [{d.uuid for d in GPUS}]


def test_samples_do_not_wait_for_a_source_that_is_added_later() -> None:
    node = SampledCluster()
    node.sample(0, use(A, 0, None))
    node.say(SourceAdded(9), "names", "names")
    node.sample(5, use(A, 5, 0))
    assert node.account().elapsed_ns == 5 * S


def test_memory_readings_are_removed_with_their_source() -> None:
    node = SampledCluster()
    node.say(SourceAdded(9), "other", "other")
    node.say(XidsReported(()), "other", "other")
    node.sample(0, use(A, 0, None, used=100))
    node.sample(0, use(B, 0, None, used=200), source="other")
    node.say(SourceRemoved(), "other", "other")
    assert node.account(A).memory_used_bytes == 100
    assert node.account(B).memory_used_bytes is None


@pytest.mark.parametrize(("back", "continues"), [(299, True), (301, False)])
def test_accounts_survive_a_short_absence_of_their_source(*, back: float, continues: bool) -> None:
    node = SampledCluster()
    # Another source reports the devices.
    node.sample(0, use(A, 0, None), source="other")
    node.sample(10, use(A, 10, 0), source="other")
    node.say(SourceRemoved(), "other", "other")
    assert node.snapshot().usage is None
    node.tick(10 + back)
    node.say(SourceAdded(9), "other", "other")
    assert node.snapshot().usage is None
    node.sample(11 + back, use(A, 11 + back, None), source="other")
    assert node.account().elapsed_ns == (10 * S if continues else 0)
    assert node.account().start == (at(0) if continues else at(11 + back))


def test_restarted_accounts_know_the_holders() -> None:
    node = SampledCluster()
    node.emit("runtime", ContainersReplaced((), 10_000 * NS))
    claim = runtime_claim("a", A, evidence=Evidence.RUNTIME_CDI)
    running = RunningContainer(PartialRef("ml", "a", "main", "uid-a", "1"), claims=(claim,))
    node.emit("runtime", ContainerStarted(running))
    node.sample(0, use(A, 0, None), source="other")
    node.say(SourceRemoved(), "other", "other")
    node.tick(400)
    node.sample(401, use(A, 401, None), source="other")
    node.sample(405, use(A, 405, 401), source="other")
    assert held_times(node) == {"a": 4 * S}


def test_accounts_stay_while_their_source_is_down_and_time_is_not_counted() -> None:
    node = SampledCluster()
    node.take_samples(process_of(cgroup_owner("a")))
    node.emit("gpus", SourceLost("no driver"))
    assert node.account().memory_used_bytes == 100
    node.tick(25.1)
    assert node.account().memory_used_bytes is None
    assert node.only_container().busy_ns == S
    node.sample(99, use(A, 99, None))
    assert node.account().elapsed_ns == 10 * S


# -- which device it is


def test_samples_of_unknown_devices_are_ignored() -> None:
    node = SampledCluster()
    assert node.sample(0, use("GPU-?", 0, None))
    assert not node.sample(5, use("GPU-?", 5, 0))
    assert node.used().devices == {}


def test_a_sample_may_name_an_instance_by_its_placement() -> None:
    one = mig(GPUS[0], 1)
    node = SampledCluster([*GPUS, one])
    place = MigPlace(GPUS[0].uuid, 1, None, "").name
    node.sample(0, use(place, 0, None))
    node.sample(10, use(place, 10, 0))
    assert node.account(one.uuid).elapsed_ns == 10 * S


def test_accounts_are_in_device_order() -> None:
    node = SampledCluster()
    node.sample(0, use(B, 0, None), use(A, 0, None))
    assert list(node.used().devices) == [A, B]


# -- what is published


def test_a_sample_changes_the_snapshot_and_a_clock_tick_does_not() -> None:
    node = SampledCluster()
    assert node.sample(0, use(A, 0, None))
    before = node.used()
    assert not node.say(ClockTicked(), "", "clock")
    assert node.used() is before
    assert not node.sample(0, use(A, 0, None))
    assert node.used() is before
    assert node.sample(5, use(A, 5, 0))
    assert node.used() is not before


def test_an_expired_memory_reading_changes_the_snapshot() -> None:
    node = SampledCluster()
    node.sample(0, use(A, 0, None, used=5))
    node.seconds = 16
    assert node.say(ClockTicked(), "", "clock")
    assert node.account().memory_used_bytes is None


# -- what is restored from a recording


@pytest.mark.parametrize("sampled", [False, True])
def test_a_recording_that_is_played_again_reports_no_holding_twice(*, sampled: bool) -> None:
    node = SampledCluster()
    continuing = holding("a", A, uid="uid-a", until=at(10))
    unknown = "GPU-unknown"
    restored = TotalsRestored(
        (
            account(
                A, container_usage("a", uid="uid-a", held=10 * S, holding=continuing), until=at(10)
            ),
            account(unknown, container_usage("a", holding=holding("a", unknown, until=at(10)))),
        )
    )
    node.seconds = 20
    node.say(restored, "ledger", "ledger", via="replay")
    if sampled:
        set_holders(node, 21, "a")
        node.sample(22, use(A, 22, None))
    before = node.snapshot().usage
    assert (before is not None) == sampled
    node.say(restored, "ledger", "ledger", via="replay")
    after = node.snapshot().usage
    assert (after and after.devices) == (before and before.devices)
    assert not (after and after.ended)
