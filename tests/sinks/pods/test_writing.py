"""What is written into pods, and when."""

import json
import logging

import pytest

from pipeline.allocations.own_annotations import MARK
from tests.sinks.pods.support import (
    KEY,
    MIG,
    SLICE,
    Bench,
    asking,
    held,
    known,
    path_of,
    pod_of,
    uuids,
)
from tests.support.nodes import claims

pytestmark = pytest.mark.looptime(start=1000)


# -- what is written


async def test_uuids_and_the_mark_come_in_one_patch() -> None:
    bench = Bench()
    bench.has(pod_of(annotations={"team": "a"}))
    async with bench.keeping():
        bench.holds(held("a", 1, 0))
        await bench.rests()
    assert bench.annotations() == {
        "team": "a",
        KEY: uuids(0, 1),
        MARK: json.dumps({KEY: uuids(0, 1)}, separators=(",", ":")),
    }
    assert bench.asked() == ["GET a", "PATCH a"]
    [(_, changes)] = bench.api.patches()
    assert changes["metadata"]["uid"] == "uid-a"
    assert changes["metadata"]["resourceVersion"] == "101"
    assert bench.counted() == {"get ok": 1, "patch ok": 1}
    assert bench.failed == {}


async def test_all_containers_together_each_uuid_once_by_resource() -> None:
    bench = Bench()
    containers = (asking("main", gpu=2), asking("side", gpu=1), asking("small", mig=1))
    bench.has(pod_of("a", *containers), pod_of("b", asking(gpu=1)))
    async with bench.keeping():
        bench.holds(
            held("a", 1, 0, container="main"),
            held("a", 0, container="side"),
            held("a", 3, container="small", resource=MIG),
            held("b", 2),
        )
        await bench.rests()
    assert bench.written("a") == {KEY: uuids(0, 1), MIG: SLICE.uuid}
    assert bench.written("b") == {KEY: uuids(2)}


async def test_only_resources_that_are_asked_for() -> None:
    bench = Bench(resources=("nvidia.com/mig-*",))
    bench.has(pod_of("a", asking(gpu=1), asking("small", mig=1)))
    async with bench.keeping():
        bench.holds(held("a", 0), held("a", 3, container="small", resource=MIG))
        await bench.rests()
    assert bench.written() == {MIG: SLICE.uuid}


async def test_a_changed_holding_is_written_again() -> None:
    bench = Bench()
    bench.has(pod_of())
    async with bench.keeping():
        for gpus in ((0,), (0, 1), (2,)):
            bench.holds(held("a", *gpus))
            await bench.rests()
            assert bench.written() == {KEY: uuids(*gpus)}


async def test_what_was_given_stays_when_nothing_is_known_any_more() -> None:
    bench = Bench()
    bench.has(pod_of())
    async with bench.keeping():
        bench.holds(held("a", 0))
        await bench.rests()
        bench.holds()
        await bench.rests()
        assert bench.written() == {KEY: uuids(0)}
        assert bench.asked() == ["GET a", "PATCH a"]
        # Known again, it is looked at again, and found right.
        bench.holds(held("a", 0))
        await bench.rests()
    assert bench.asked() == ["GET a", "PATCH a", "GET a"]


async def test_a_value_of_someone_else_stays_and_is_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    bench.has(pod_of("a", asking(gpu=2), asking("small", mig=1), annotations={KEY: "GPU-theirs"}))
    small = held("a", 3, container="small", resource=MIG)
    async with bench.keeping():
        for gpus in ((0,), (1,), (0, 1)):
            bench.holds(held("a", *gpus), small)
            await bench.rests()
    assert bench.annotations()[KEY] == "GPU-theirs"
    assert bench.written() == {MIG: SLICE.uuid}
    assert bench.failed == {"annotate foreign": 1}
    assert [r.levelname for r in caplog.records if "another program" in r.getMessage()] == ["INFO"]


async def test_foreign_values_of_two_pods_are_two() -> None:
    bench = Bench()
    bench.has(*(pod_of(name, annotations={KEY: "GPU-theirs"}) for name in "ab"))
    async with bench.keeping():
        bench.holds(held("a", 0), held("b", 1))
        await bench.rests()
    assert bench.failed == {"annotate foreign": 2}


async def test_what_was_ours_is_someone_s_once_he_changes_it() -> None:
    bench = Bench()
    bench.has(pod_of())
    async with bench.keeping():
        bench.holds(held("a", 0))
        await bench.rests()
        bench.api.annotate(path_of("a"), **{KEY: "GPU-theirs"})
        bench.holds(held("a", 1))
        await bench.rests()
    assert bench.annotations()[KEY] == "GPU-theirs"
    assert bench.failed == {"annotate foreign": 1}


# -- whom


async def test_a_pod_made_again_under_the_name_gets_its_own() -> None:
    bench = Bench()
    bench.has(pod_of(uid="first"))
    async with bench.keeping():
        bench.reports(known("a", "first"))
        bench.holds(held("a", 0))
        await bench.rests()
        bench.has(pod_of(uid="second"))
        # The kubelet's word is still of the first: nothing of that is written into the second.
        bench.holds(held("a", 0, 1))
        await bench.rests()
        assert bench.written() == {}
        bench.reports(known("a", "second"))
        bench.node.seconds += 5
        bench.holds(held("a", 0))
        await bench.rests()
    assert bench.written() == {KEY: uuids(0)}


async def test_a_static_pod_goes_by_its_hash_where_no_one_reports_of_its_mirror() -> None:
    bench = Bench()
    bench.has(pod_of(uid="mirror", annotations={"kubernetes.io/config.mirror": "0123abcd"}))
    async with bench.keeping():
        bench.reports(known("a", "mirror", static="0123abcd"))
        bench.holds(held("a", 0))
        await bench.rests()
    assert bench.written() == {KEY: uuids(0)}


async def test_a_container_without_a_resource_is_reported_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    bench.has(pod_of("a", {"name": "main"}), pod_of("b", {"name": "main"}), pod_of("c"))
    async with bench.keeping():
        bench.holds(held("a", 0), held("b", 1), held("c", 2))
        await bench.rests()
    assert [bench.written(name) for name in "abc"] == [{}, {}, {KEY: uuids(2)}]
    assert len([r for r in caplog.records if "requests no extended resource" in r.message]) == 1
    assert bench.failed == {}


async def test_a_container_that_asks_for_several_resources_is_counted_and_reported_of() -> None:
    bench = Bench()
    bench.has(pod_of("a", asking(gpu=2, mig=1)), pod_of("b", asking(gpu=1)))
    async with bench.keeping():
        bench.holds(held("a", 0), held("a", 3, resource=MIG), held("b", 1))
        await bench.rests()
    assert bench.written("a") == {}
    assert bench.written("b") == {KEY: uuids(1)}
    assert bench.failed == {"annotate unclear": 1}


# -- when


async def test_a_pod_that_is_done_is_not_asked_about_again() -> None:
    bench = Bench()
    bench.has(pod_of())
    async with bench.keeping():
        bench.holds(held("a", 0))
        for seconds in range(1, 100, 7):
            await bench.rests(7)
            bench.node.seconds = seconds
            bench.holds(held("a", 0))
    assert bench.asked() == ["GET a", "PATCH a"]


async def test_nothing_is_written_before_all_sources_have_spoken() -> None:
    bench = Bench()
    bench.has(pod_of())
    bench.waits_for("checkpoint", "checkpoint")
    async with bench.keeping():
        bench.holds(held("a", 0))
        await bench.rests(14)
        assert bench.asked() == []
        # For so long and no longer, and without another snapshot.
        await bench.rests(2)
        assert bench.written() == {KEY: uuids(0)}
        at, *_ = bench.api.requests[0]
    assert at == 1015


async def test_a_source_that_is_lost_later_keeps_no_one_waiting() -> None:
    bench = Bench()
    bench.has(pod_of(), pod_of("b"))
    async with bench.keeping():
        bench.node.say(claims(), "other", "checkpoint")
        bench.holds(held("a", 0))
        await bench.rests()
        bench.loses("other", "checkpoint")
        bench.holds(held("a", 0), held("b", 1))
        await bench.rests()
    assert bench.written("b") == {KEY: uuids(1)}


async def test_ten_pods_a_second_one_request_at_a_time() -> None:
    bench = Bench()
    names = [f"p{number}" for number in range(40)]
    bench.has(*(pod_of(name, asking(gpu=1)) for name in names))
    bench.api.takes = 0.03
    async with bench.keeping():
        shared = [held(name, 0) for name in names]
        bench.holds(*(type(c)(c.subject, c.devices, 0.01, None, c.origin, KEY) for c in shared))
        await bench.rests(10)
    times = [at for at, method, _, _ in bench.api.requests if method == "GET"]
    assert len(times) == 40
    assert all(times[n + 10] - times[n] >= 0.999 for n in range(30))
    assert times[-1] - times[0] < 6
    assert bench.api.most == 1


async def test_a_snapshot_that_comes_meanwhile_counts_at_once() -> None:
    bench = Bench()
    bench.has(*(pod_of(name) for name in "abc"))
    async with bench.keeping():
        bench.holds(held("a", 0), held("b", 1), held("c", 2))
        await bench.rests(0.05)
        bench.holds(held("a", 0), held("c", 1))
        await bench.rests()
    assert bench.asked() == ["GET a", "PATCH a", "GET c", "PATCH c"]
    assert bench.written("c") == {KEY: uuids(1)}


async def test_what_goes_there_and_back_before_anybody_looked_costs_no_request() -> None:
    bench = Bench()
    bench.has(*(pod_of(name) for name in "ab"))
    async with bench.keeping():
        bench.holds(held("a", 0), held("b", 1))
        await bench.rests()
        before = len(bench.asked())
        bench.holds(held("a", 0, 2), held("b", 1))
        await bench.rests(0.05)
        bench.holds(held("a", 0, 2), held("b", 1, 3))
        await bench.rests(0.02)
        bench.holds(held("a", 0, 2), held("b", 1))
        await bench.rests()
    assert bench.asked()[before:] == ["GET a", "PATCH a"]


async def test_nothing_is_written_of_a_snapshot_from_before_an_added_source_has_spoken() -> None:
    bench = Bench()
    bench.has(pod_of(), pod_of("b"))
    async with bench.keeping():
        bench.holds(held("a", 0))
        await bench.rests()
        bench.waits_for("other", "checkpoint")
        bench.holds(held("a", 0), held("b", 1))
        await bench.rests(14)
        assert bench.written("b") == {}
        await bench.rests(2)
    assert bench.written("b") == {KEY: uuids(1)}


# -- the end, and after


async def test_stopping_finishes_the_request_and_begins_no_other() -> None:
    bench = Bench()
    bench.has(pod_of(), pod_of("b"))
    bench.api.takes = 0.5
    bench.api.before = lambda *_: bench.inbox.close()
    async with bench.keeping():
        bench.holds(held("a", 0), held("b", 1))
        await bench.rests()
        assert bench.running is not None
        assert bench.running.done()
    assert bench.asked() == ["GET a"]


async def test_an_inbox_that_ended_before_asks_for_nothing() -> None:
    bench = Bench()
    bench.has(pod_of())
    bench.holds(held("a", 0))
    bench.inbox.close()
    async with bench.sink:
        await bench.sink.run(bench.inbox)
    assert bench.asked() == []
    assert len(bench.inbox) == 0


async def test_a_sink_that_comes_later_begins_with_the_newest_snapshot() -> None:
    bench = Bench()
    bench.has(pod_of())
    bench.holds(held("a", 0))
    async with bench.keeping():
        await bench.rests()
    assert bench.written() == {KEY: uuids(0)}


async def test_a_reloaded_sink_knows_its_own_by_the_mark() -> None:
    bench = Bench()
    bench.has(pod_of("a", asking(gpu=2)), pod_of("b", asking(mig=1)))
    small = held("b", 3, resource=MIG)
    async with bench.keeping():
        bench.holds(held("a", 0), small)
        await bench.rests()
    bench.reload(resources=("nvidia.com/gpu",))
    async with bench.keeping():
        await bench.rests()
        assert bench.asked()[4:] == ["GET a", "GET b"]
        bench.holds(held("a", 1), small)
        await bench.rests()
    # What it is no longer asked to write stays as it was.
    assert (bench.written("a"), bench.written("b")) == ({KEY: uuids(1)}, {MIG: SLICE.uuid})


async def test_the_session_is_that_of_the_kubeconfig(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    bench = Bench()
    async with bench.keeping():
        await bench.rests()
    assert bench.ctx.asked == [None]
    assert caplog.records == []
