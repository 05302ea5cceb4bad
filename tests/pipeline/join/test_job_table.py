"""The jobs of each device in snapshots."""

from collections.abc import Mapping

from pipeline.model import DeviceJobs, DevicesDiscovered, JobsReplaced, SourceLost, SourceRemoved
from tests.support.nodes import Node, gpu, mig, uuid_of

A, B = uuid_of(0), uuid_of(1)


def jobs(*devices: DeviceJobs, good_for: int = 300) -> JobsReplaced:
    return JobsReplaced(devices, good_for * 10**9)


def node(*devices: DeviceJobs) -> Node:
    made = Node()
    made.has(gpu(0), gpu(1))
    made.say(jobs(*devices), "jobs", "jobfiles")
    return made


def shown(made: Node) -> Mapping[str, tuple[str, ...]]:
    return made.snapshot().layout.jobs


def test_jobs_belong_to_the_gpu_with_the_index() -> None:
    found = shown(node(DeviceJobs(1, None, ("12", "9")), DeviceJobs(7, None, ("1",))))
    assert found == {B: ("12", "9")}


def test_a_report_replaces_the_previous_one() -> None:
    made = node(DeviceJobs(0, None, ("12",)))
    assert shown(made) == {A: ("12",)}
    made.say(jobs(DeviceJobs(1, None, ("13",))), "jobs", "jobfiles")
    assert shown(made) == {B: ("13",)}


def test_the_layout_stays_the_same_object_while_the_jobs_are_confirmed() -> None:
    made = node(DeviceJobs(0, None, ("12",)))
    before = made.snapshot().layout
    made.say(jobs(DeviceJobs(0, None, ("12",))), "jobs", "jobfiles")
    assert made.snapshot().layout is before


def test_jobs_of_several_sources_are_combined() -> None:
    made = node(DeviceJobs(0, None, ("12", "13")))
    made.say(jobs(DeviceJobs(0, None, ("13", "14"))), "more", "jobfiles")
    assert shown(made) == {A: ("12", "13", "14")}
    made.say(SourceRemoved(), "jobs", "jobfiles")
    assert shown(made) == {A: ("13", "14")}


def test_jobs_of_a_lost_source_stay_until_they_expire() -> None:
    made = node(DeviceJobs(0, None, ("12",)))
    made.say(SourceLost("gone"), "jobs", "jobfiles")
    made.seconds = 299
    made.say(SourceLost("gone"), "jobs", "jobfiles")
    assert shown(made) == {A: ("12",)}
    made.seconds = 301
    made.say(SourceLost("gone"), "jobs", "jobfiles")
    assert shown(made) == {}


def test_a_mig_instance_has_only_the_jobs_of_its_own() -> None:
    made = Node()
    first, second = mig(gpu(0), 7), mig(gpu(0), 9)
    made.has(gpu(0), first, second)
    made.say(jobs(DeviceJobs(0, None, ("1",)), DeviceJobs(0, 9, ("2",))), "jobs", "jobfiles")
    assert shown(made) == {A: ("1",), second.uuid: ("2",)}


def test_a_gpu_that_is_gone_has_no_jobs_of_the_one_that_took_its_index() -> None:
    made = node(DeviceJobs(0, None, ("12",)))
    replaced = gpu(5)
    made.say(DevicesDiscovered((type(replaced)(replaced.uuid, 0), gpu(1))))
    assert shown(made) == {replaced.uuid: ("12",)}
