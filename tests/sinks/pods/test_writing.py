"""Which annotations are written into pods, and when."""

import json
import logging

import pytest

from pipeline.allocations.own_annotations import MARK
from tests.sinks.pods.support import (
    KEY,
    MIG,
    SLICE,
    Bench,
    claim,
    container,
    path_of,
    pod_of,
    reported_pod,
    uuids,
)
from tests.support.nodes import claims

pytestmark = pytest.mark.looptime(start=1000)


# -- what is written


async def test_uuids_and_the_mark_are_written_in_one_patch() -> None:
    bench = Bench()
    bench.add_pods(pod_of(annotations={"team": "a"}))
    async with bench.run_sink():
        bench.set_claims(claim("a", 1, 0))
        await bench.wait()
    assert bench.annotations() == {
        "team": "a",
        KEY: uuids(0, 1),
        MARK: json.dumps({KEY: uuids(0, 1)}, separators=(",", ":")),
    }
    assert bench.requests() == ["GET a", "PATCH a"]
    [(_, changes)] = bench.api.patches()
    assert changes["metadata"]["uid"] == "uid-a"
    assert changes["metadata"]["resourceVersion"] == "101"
    assert bench.request_counts() == {"get ok": 1, "patch ok": 1}
    assert bench.failed == {}


async def test_uuids_of_all_containers_are_written_once_by_resource() -> None:
    bench = Bench()
    containers = (container("main", gpu=2), container("side", gpu=1), container("small", mig=1))
    bench.add_pods(pod_of("a", *containers), pod_of("b", container(gpu=1)))
    async with bench.run_sink():
        bench.set_claims(
            claim("a", 1, 0, container="main"),
            claim("a", 0, container="side"),
            claim("a", 3, container="small", resource=MIG),
            claim("b", 2),
        )
        await bench.wait()
    assert bench.written("a") == {KEY: uuids(0, 1), MIG: SLICE.uuid}
    assert bench.written("b") == {KEY: uuids(2)}


async def test_only_configured_resources_are_written() -> None:
    bench = Bench(resources=("nvidia.com/mig-*",))
    bench.add_pods(pod_of("a", container(gpu=1), container("small", mig=1)))
    async with bench.run_sink():
        bench.set_claims(claim("a", 0), claim("a", 3, container="small", resource=MIG))
        await bench.wait()
    assert bench.written() == {MIG: SLICE.uuid}


async def test_a_changed_holder_is_written_again() -> None:
    bench = Bench()
    bench.add_pods(pod_of())
    async with bench.run_sink():
        for gpus in ((0,), (0, 1), (2,)):
            bench.set_claims(claim("a", *gpus))
            await bench.wait()
            assert bench.written() == {KEY: uuids(*gpus)}


async def test_the_annotation_stays_when_the_holder_becomes_unknown() -> None:
    bench = Bench()
    bench.add_pods(pod_of())
    async with bench.run_sink():
        bench.set_claims(claim("a", 0))
        await bench.wait()
        bench.set_claims()
        await bench.wait()
        assert bench.written() == {KEY: uuids(0)}
        assert bench.requests() == ["GET a", "PATCH a"]
        # When the holder is known again, the pod is read again and is right.
        bench.set_claims(claim("a", 0))
        await bench.wait()
    assert bench.requests() == ["GET a", "PATCH a", "GET a"]


async def test_another_program_s_value_stays_and_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    bench.add_pods(
        pod_of("a", container(gpu=2), container("small", mig=1), annotations={KEY: "GPU-theirs"})
    )
    small = claim("a", 3, container="small", resource=MIG)
    async with bench.run_sink():
        for gpus in ((0,), (1,), (0, 1)):
            bench.set_claims(claim("a", *gpus), small)
            await bench.wait()
    assert bench.annotations()[KEY] == "GPU-theirs"
    assert bench.written() == {MIG: SLICE.uuid}
    assert bench.failed == {"annotate foreign": 1}
    assert [r.levelname for r in caplog.records if "another program" in r.getMessage()] == ["INFO"]


async def test_other_programs_values_are_counted_for_each_pod() -> None:
    bench = Bench()
    bench.add_pods(*(pod_of(name, annotations={KEY: "GPU-theirs"}) for name in "ab"))
    async with bench.run_sink():
        bench.set_claims(claim("a", 0), claim("b", 1))
        await bench.wait()
    assert bench.failed == {"annotate foreign": 2}


async def test_an_own_annotation_that_another_program_changed_stays() -> None:
    bench = Bench()
    bench.add_pods(pod_of())
    async with bench.run_sink():
        bench.set_claims(claim("a", 0))
        await bench.wait()
        bench.api.annotate(path_of("a"), **{KEY: "GPU-theirs"})
        bench.set_claims(claim("a", 1))
        await bench.wait()
    assert bench.annotations()[KEY] == "GPU-theirs"
    assert bench.failed == {"annotate foreign": 1}


# -- which pod


async def test_a_new_pod_with_the_same_name_gets_its_own_annotation() -> None:
    bench = Bench()
    bench.add_pods(pod_of(uid="first"))
    async with bench.run_sink():
        bench.report_pods(reported_pod("a", "first"))
        bench.set_claims(claim("a", 0))
        await bench.wait()
        bench.add_pods(pod_of(uid="second"))
        # The kubelet's claim still means the first pod: it is not written into the second.
        bench.set_claims(claim("a", 0, 1))
        await bench.wait()
        assert bench.written() == {}
        bench.report_pods(reported_pod("a", "second"))
        bench.node.seconds += 5
        bench.set_claims(claim("a", 0))
        await bench.wait()
    assert bench.written() == {KEY: uuids(0)}


async def test_a_static_pod_is_found_by_the_hash_of_its_mirror() -> None:
    bench = Bench()
    bench.add_pods(pod_of(uid="mirror", annotations={"kubernetes.io/config.mirror": "0123abcd"}))
    async with bench.run_sink():
        bench.report_pods(reported_pod("a", "mirror", static="0123abcd"))
        bench.set_claims(claim("a", 0))
        await bench.wait()
    assert bench.written() == {KEY: uuids(0)}


async def test_a_container_without_a_resource_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    bench.add_pods(pod_of("a", {"name": "main"}), pod_of("b", {"name": "main"}), pod_of("c"))
    async with bench.run_sink():
        bench.set_claims(claim("a", 0), claim("b", 1), claim("c", 2))
        await bench.wait()
    assert [bench.written(name) for name in "abc"] == [{}, {}, {KEY: uuids(2)}]
    assert len([r for r in caplog.records if "requests no extended resource" in r.message]) == 1
    assert bench.failed == {}


async def test_a_container_with_several_resources_is_counted_as_unclear() -> None:
    bench = Bench()
    bench.add_pods(pod_of("a", container(gpu=2, mig=1)), pod_of("b", container(gpu=1)))
    async with bench.run_sink():
        bench.set_claims(claim("a", 0), claim("a", 3, resource=MIG), claim("b", 1))
        await bench.wait()
    assert bench.written("a") == {}
    assert bench.written("b") == {KEY: uuids(1)}
    assert bench.failed == {"annotate unclear": 1}


# -- when


async def test_a_pod_with_the_right_annotation_is_not_requested_again() -> None:
    bench = Bench()
    bench.add_pods(pod_of())
    async with bench.run_sink():
        bench.set_claims(claim("a", 0))
        for seconds in range(1, 100, 7):
            await bench.wait(7)
            bench.node.seconds = seconds
            bench.set_claims(claim("a", 0))
    assert bench.requests() == ["GET a", "PATCH a"]


async def test_nothing_is_written_before_all_sources_have_reported() -> None:
    bench = Bench()
    bench.add_pods(pod_of())
    bench.add_source("checkpoint", "checkpoint")
    async with bench.run_sink():
        bench.set_claims(claim("a", 0))
        await bench.wait(14)
        assert bench.requests() == []
        # The wait ends after 15 s without another snapshot.
        await bench.wait(2)
        assert bench.written() == {KEY: uuids(0)}
        at, *_ = bench.api.requests[0]
    assert at == 1015


async def test_a_source_that_is_lost_later_does_not_delay_writes() -> None:
    bench = Bench()
    bench.add_pods(pod_of(), pod_of("b"))
    async with bench.run_sink():
        bench.node.say(claims(), "other", "checkpoint")
        bench.set_claims(claim("a", 0))
        await bench.wait()
        bench.lose_source("other", "checkpoint")
        bench.set_claims(claim("a", 0), claim("b", 1))
        await bench.wait()
    assert bench.written("b") == {KEY: uuids(1)}


async def test_the_sink_writes_at_most_ten_pods_a_second_one_request_at_a_time() -> None:
    bench = Bench()
    names = [f"p{number}" for number in range(40)]
    bench.add_pods(*(pod_of(name, container(gpu=1)) for name in names))
    bench.api.takes = 0.03
    async with bench.run_sink():
        shared = [claim(name, 0) for name in names]
        bench.set_claims(
            *(type(c)(c.subject, c.devices, 0.01, None, c.origin, KEY) for c in shared)
        )
        await bench.wait(10)
    times = [at for at, method, _, _ in bench.api.requests if method == "GET"]
    assert len(times) == 40
    assert all(times[n + 10] - times[n] >= 0.999 for n in range(30))
    assert times[-1] - times[0] < 6
    assert bench.api.most == 1


async def test_a_newer_snapshot_replaces_pending_writes_immediately() -> None:
    bench = Bench()
    bench.add_pods(*(pod_of(name) for name in "abc"))
    async with bench.run_sink():
        bench.set_claims(claim("a", 0), claim("b", 1), claim("c", 2))
        await bench.wait(0.05)
        bench.set_claims(claim("a", 0), claim("c", 1))
        await bench.wait()
    assert bench.requests() == ["GET a", "PATCH a", "GET c", "PATCH c"]
    assert bench.written("c") == {KEY: uuids(1)}


async def test_a_change_that_is_undone_before_its_write_causes_no_request() -> None:
    bench = Bench()
    bench.add_pods(*(pod_of(name) for name in "ab"))
    async with bench.run_sink():
        bench.set_claims(claim("a", 0), claim("b", 1))
        await bench.wait()
        before = len(bench.requests())
        bench.set_claims(claim("a", 0, 2), claim("b", 1))
        await bench.wait(0.05)
        bench.set_claims(claim("a", 0, 2), claim("b", 1, 3))
        await bench.wait(0.02)
        bench.set_claims(claim("a", 0, 2), claim("b", 1))
        await bench.wait()
    assert bench.requests()[before:] == ["GET a", "PATCH a"]


async def test_writes_wait_for_a_source_that_was_added() -> None:
    bench = Bench()
    bench.add_pods(pod_of(), pod_of("b"))
    async with bench.run_sink():
        bench.set_claims(claim("a", 0))
        await bench.wait()
        bench.add_source("other", "checkpoint")
        bench.set_claims(claim("a", 0), claim("b", 1))
        await bench.wait(14)
        assert bench.written("b") == {}
        await bench.wait(2)
    assert bench.written("b") == {KEY: uuids(1)}


# -- stop and reload


async def test_a_stop_finishes_the_request_and_starts_no_other() -> None:
    bench = Bench()
    bench.add_pods(pod_of(), pod_of("b"))
    bench.api.takes = 0.5
    bench.api.before = lambda *_: bench.inbox.close()
    async with bench.run_sink():
        bench.set_claims(claim("a", 0), claim("b", 1))
        await bench.wait()
        assert bench.task is not None
        assert bench.task.done()
    assert bench.requests() == ["GET a"]


async def test_a_closed_inbox_causes_no_request() -> None:
    bench = Bench()
    bench.add_pods(pod_of())
    bench.set_claims(claim("a", 0))
    bench.inbox.close()
    async with bench.sink:
        await bench.sink.run(bench.inbox)
    assert bench.requests() == []
    assert len(bench.inbox) == 0


async def test_a_sink_that_is_added_later_starts_with_the_newest_snapshot() -> None:
    bench = Bench()
    bench.add_pods(pod_of())
    bench.set_claims(claim("a", 0))
    async with bench.run_sink():
        await bench.wait()
    assert bench.written() == {KEY: uuids(0)}


async def test_a_reloaded_sink_finds_its_annotations_by_the_mark() -> None:
    bench = Bench()
    bench.add_pods(pod_of("a", container(gpu=2)), pod_of("b", container(mig=1)))
    small = claim("b", 3, resource=MIG)
    async with bench.run_sink():
        bench.set_claims(claim("a", 0), small)
        await bench.wait()
    bench.reload(resources=("nvidia.com/gpu",))
    async with bench.run_sink():
        await bench.wait()
        assert bench.requests()[4:] == ["GET a", "GET b"]
        bench.set_claims(claim("a", 1), small)
        await bench.wait()
    # Annotations of resources that are no longer configured stay unchanged.
    assert (bench.written("a"), bench.written("b")) == ({KEY: uuids(1)}, {MIG: SLICE.uuid})


async def test_the_session_is_that_of_the_kubeconfig(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    bench = Bench()
    async with bench.run_sink():
        await bench.wait()
    assert bench.ctx.asked == [None]
    assert caplog.records == []
