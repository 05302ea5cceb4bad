"""What the source reports while pods are created, changed and deleted, in virtual time."""

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from config.value_types import Duration
from pipeline.base.errors import ApiError
from pipeline.model import PodDeleted, PodsReplaced, PodUpserted
from tests.sources.pods.pod_objects import raw_container, raw_pod, raw_status, spec_requesting
from tests.sources.pods.source_runner import FakeCluster, FollowerContext, following
from tests.support.kube import status

pytestmark = pytest.mark.looptime


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster()
    cluster.pods.collection.put(raw_pod("a"))
    return cluster


async def test_all_pods_and_then_changes_are_reported(cluster: FakeCluster) -> None:
    pods = cluster.pods.collection
    async with following(cluster) as ctx:
        await asyncio.sleep(1)
        assert ctx.kinds() == ["PodsReplaced"]
        pods.put(raw_pod("b", status={"phase": "Pending"}))
        pods.put(raw_pod("b"))
        pods.delete("ml", "a")
        await asyncio.sleep(1)
        assert ctx.kinds()[1:] == ["PodUpserted", "PodUpserted", "PodDeleted"]
        assert ctx.events[3] == PodDeleted("uid-a")
        assert list(ctx.pods()) == ["uid-b"]


async def test_a_node_without_pods_is_reported(cluster: FakeCluster) -> None:
    cluster.pods.collection.delete("ml", "a")
    async with following(cluster) as ctx:
        [report] = await ctx.wait_for(PodsReplaced)
        assert report.pods == ()


async def test_only_pods_of_the_node_are_requested(cluster: FakeCluster) -> None:
    async with following(cluster) as ctx:
        await ctx.wait_for(PodsReplaced)
        assert ctx.kubeconfigs == [None]
        assert cluster.pods.requests[0][2]["fieldSelector"] == "spec.nodeName=node-1"
    path = Path("/etc/podgpu/kubeconfig")
    async with following(cluster, node="another", kubeconfig=path) as ctx:
        await ctx.wait_for(PodsReplaced)
        assert ctx.kubeconfigs == [path]
        assert cluster.pods.requests[1][2]["fieldSelector"] == "spec.nodeName=another"


async def test_a_change_of_unreported_fields_is_not_reported(cluster: FakeCluster) -> None:
    async with following(cluster) as ctx:
        await asyncio.sleep(1)
        for number in range(10):
            raw = raw_pod("a", labels={"n": str(number)}, metadata={"managedFields": [number]})
            cluster.pods.collection.put(raw)
        await asyncio.sleep(1)
        assert ctx.kinds() == ["PodsReplaced"]


async def test_a_pod_recreated_with_the_same_name_is_another_pod(cluster: FakeCluster) -> None:
    async with following(cluster) as ctx:
        await asyncio.sleep(1)
        cluster.pods.collection.put(raw_pod("a", uid="uid-2"))
        await asyncio.sleep(1)
        assert ctx.kinds()[1:] == ["PodDeleted", "PodUpserted"]
        assert list(ctx.pods()) == ["uid-2"]


async def test_a_pod_without_a_delete_event_ends_when_its_name_is_reused(
    cluster: FakeCluster,
) -> None:
    pods = cluster.pods.collection
    async with following(cluster) as ctx:
        await asyncio.sleep(1)
        del pods.objects["ml", "a"]
        pods.put(raw_pod("a", uid="uid-2"))
        await asyncio.sleep(1)
        assert ctx.events[1:] == [PodDeleted("uid-a"), PodUpserted(ctx.pods()["uid-2"])]
        # The delete event of the first pod, late.
        pods._log("DELETED", raw_pod("a"))
        await asyncio.sleep(1)
        assert len(ctx.events) == 3


async def test_pods_deleted_during_an_interruption_are_removed(cluster: FakeCluster) -> None:
    async with following(cluster) as ctx:
        await asyncio.sleep(1)
        cluster.pods.collection.put(raw_pod("b"))
        await asyncio.sleep(1)
        cluster.pods.cut(ApiError("connection reset"))
        cluster.pods.collection.delete("ml", "a")
        cluster.pods.collection.compact()
        await asyncio.sleep(10)
        assert list(ctx.pods()) == ["uid-b"]
        assert ctx.kinds()[-1] == "PodsReplaced"


async def test_bookmarks_confirm_the_pods_with_the_same_objects(cluster: FakeCluster) -> None:
    async with following(cluster, max_age=Duration.parse("90s")) as ctx:
        for _ in range(10):
            await asyncio.sleep(20)
            cluster.pods.collection.bookmark()
        await asyncio.sleep(0)
        reports = await ctx.wait_for(PodsReplaced, 6)
        assert all(one is reports[0] for one in reports)
        assert ctx.kinds() == ["PodsReplaced"] * 6
        assert reports[0].good_for_ns == 90_000_000_000
        pod = reports[0].pods[0]
        cluster.pods.collection.put(raw_pod("b"))
        await asyncio.sleep(35)
        cluster.pods.collection.bookmark()
        await asyncio.sleep(1)
        last = ctx.events[-1]
        assert isinstance(last, PodsReplaced)
        assert last.pods[0] is pod
        assert len(last.pods) == 2


async def test_pods_are_confirmed_though_the_server_sends_nothing(
    cluster: FakeCluster,
) -> None:
    async with following(cluster) as ctx:
        await asyncio.sleep(600)
        times = [at.mono_ns / 1e9 for at in ctx.emitted_at]
        assert max(b - a for a, b in pairwise(times)) < 80
        assert set(ctx.kinds()) == {"PodsReplaced"}


async def test_each_fault_is_logged_once_and_also_its_end(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with following(cluster) as ctx:
        await asyncio.sleep(1)
        cluster.pods.answers.extend([ApiError("refused")] * 3 + [ApiError("down", status=503)] * 2)
        cluster.pods.cut(ApiError("reset"))
        await asyncio.sleep(200)
        assert ctx.reasons() == ["refused", "down"]
        assert ctx.kinds() == ["PodsReplaced", "SourceLost", "SourceLost"] + ["PodsReplaced"] * (
            len(ctx.events) - 3
        )
        assert len(ctx.events) > 3
        assert [record.getMessage() for record in caplog.records] == [
            "refused; the last known pods stay in use for 5m",
            "down; the last known pods stay in use for 5m",
            "watching pods again",
        ]


@pytest.mark.parametrize(
    "fault", [{"status": 403}, {"status": 503, "reason": "X"}, {"reason": "ClientOSError"}]
)
async def test_the_same_fault_with_other_texts_is_logged_once(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture, fault: dict[str, Any]
) -> None:
    cluster.pods.answers.extend(ApiError(f"no, says request {n}", **fault) for n in range(9))
    async with following(cluster) as ctx:
        await asyncio.sleep(20)
        cluster.pods.answers.append(ApiError("another fault", status=502))
        await asyncio.sleep(400)
        first, second = ctx.reasons()
        assert (first, second) == ("no, says request 0", "another fault")
        assert len(caplog.messages) == 3
        assert caplog.messages[-1] == "watching pods again"


async def test_a_missing_permission_is_reported_immediately(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.pods.answers.extend([ApiError("may not list pods", status=403)] * 4)
    async with following(cluster) as ctx:
        await asyncio.sleep(1)
        assert ctx.reasons() == ["may not list pods"]
        await asyncio.sleep(60)
        assert ctx.kinds()[:2] == ["SourceLost", "PodsReplaced"]
        assert caplog.messages[0] == "may not list pods; no pods are known yet"


async def test_after_a_restart_of_the_source_equal_pods_are_reported(cluster: FakeCluster) -> None:
    ctx = FollowerContext(cluster)
    async with following(cluster, ctx):
        await ctx.wait_for(PodsReplaced)
    await asyncio.sleep(100)
    async with following(cluster, ctx):
        first, second = await ctx.wait_for(PodsReplaced, 2)
        assert first == second
        assert first.pods[0].started is not None


def pod_with_broken_annotation(name: str, **more: Any) -> dict[str, Any]:
    annotations = {"scheduling.koordinator.sh/device-allocated": "{"}
    return raw_pod(name, annotations=annotations, spec=spec_requesting(), **more)


async def test_an_annotation_problem_is_logged_once_for_each_pod(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with following(cluster) as ctx:
        await asyncio.sleep(1)
        for phase in ("Pending", "Running", "Failed"):
            cluster.pods.collection.put(pod_with_broken_annotation("b", status={"phase": phase}))
        cluster.pods.collection.put(pod_with_broken_annotation("c"))
        await asyncio.sleep(1)
        assert caplog.messages == [
            f"pod ml/{name}: annotation scheduling.koordinator.sh/device-allocated: "
            'expected JSON, found "{"; podgpu ignores this annotation'
            for name in "bc"
        ]
        assert len(ctx.pods()) == 3


@pytest.mark.slow
async def test_problems_of_many_pods_with_the_same_name_are_logged(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with following(cluster):
        await asyncio.sleep(1)
        for number in range(1100):
            raw = pod_with_broken_annotation("b", uid=f"uid-{number}")
            cluster.pods.collection.put(raw)
        await asyncio.sleep(1)
        assert len(caplog.messages) == 1100


async def test_dropped_labels_are_logged_once(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with following(cluster, labels=("*",), max_labels=1):
        await asyncio.sleep(1)
        for name in "abc":
            cluster.pods.collection.put(raw_pod(name, labels={"x": "1", "y": "2"}))
        await asyncio.sleep(1)
        [message] = caplog.messages
        assert message.startswith("pod ml/a: 1 labels or annotations are dropped: more than 1")


async def test_a_gpu_of_a_scheduler_is_claimed_once_the_annotation_is_written(
    cluster: FakeCluster,
) -> None:
    async with following(cluster) as ctx:
        await asyncio.sleep(1)
        allocated = {
            "scheduling.koordinator.sh/device-allocated": '{"gpu":[{"minor":3,"resources":null}]}'
        }
        cluster.pods.collection.put(raw_pod("a", annotations=allocated, spec=spec_requesting()))
        await asyncio.sleep(1)
        [claim] = ctx.pods()["uid-a"].claims
        assert [(d.scheme, d.text) for d in claim.devices] == [("minor", "3")]


async def test_an_error_in_the_stream_does_not_withdraw_pods(cluster: FakeCluster) -> None:
    async with following(cluster) as ctx:
        await asyncio.sleep(70)
        cluster.pods.collection.error(status(500, "InternalError"))
        await asyncio.sleep(10)
        assert ctx.reasons() == []
        assert list(ctx.pods()) == ["uid-a"]


async def test_a_restarted_container_is_reported_with_its_new_id(cluster: FakeCluster) -> None:
    async with following(cluster) as ctx:
        await asyncio.sleep(1)
        restarted = raw_status() | {"containerID": "containerd://second"}
        raw = raw_pod("a", spec={"containers": [raw_container()]})
        raw["status"]["containerStatuses"] = [restarted]
        cluster.pods.collection.put(raw)
        await asyncio.sleep(1)
        [container] = ctx.pods()["uid-a"].containers
        assert container.container_id == "second"
