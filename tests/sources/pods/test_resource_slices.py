"""Which devices DRA drivers offer, from ResourceSlices."""

import asyncio
from typing import Any

import pytest

from pipeline.base.errors import ApiError
from pipeline.model import DeviceAliasesReplaced, RawDeviceId
from sources.pods.resource_slices import Pools, Slice, map_slice
from sources.pods.timestamps import Timestamps
from tests.sources.pods.pod_objects import BASE, raw_pod, raw_slice
from tests.sources.pods.source_runner import SLICES, FakeCluster, FollowerContext, following
from tests.support.kube import Collection, FakeApi

UUID = "GPU-8c25ea37-2909-6e62-b7bf-e2fcadebea8d"


def mapped_slice(raw: dict[str, Any]) -> Slice:
    found = map_slice(raw)
    assert found is not None
    return found


def names(*slices: dict[str, Any], pools: Pools | None = None) -> dict[str, str]:
    aliases = (pools or Pools()).aliases([mapped_slice(raw) for raw in slices]).aliases
    assert list(aliases) == sorted(aliases)
    return {name.text: uuid for name, uuid in aliases}


@pytest.mark.parametrize("basic", [False, True])
def test_a_device_is_named_by_driver_pool_and_name(basic: bool) -> None:
    raw = raw_slice(devices={"gpu-0": UUID, "gpu-1-mig-1g5gb-19-0": "MIG-1"}, basic=basic)
    assert mapped_slice(raw).aliases == (
        (RawDeviceId("dra", "gpu.nvidia.com/node-1/gpu-0"), UUID),
        (RawDeviceId("dra", "gpu.nvidia.com/node-1/gpu-1-mig-1g5gb-19-0"), "MIG-1"),
    )


@pytest.mark.parametrize(
    "device",
    [
        {},
        {"name": "gpu-0"},
        {"name": "gpu-0", "attributes": {"uuid": {"int": 7}}},
        {"name": "gpu-0", "attributes": {"uuid": "GPU-0"}},
        {"name": "gpu-0", "basic": {"attributes": {"type": {"string": "vfio"}}}},
        {"attributes": {"uuid": {"string": "GPU-0"}}},
        7,
    ],
)
def test_a_device_without_name_or_uuid_has_no_alias(device: object) -> None:
    raw = raw_slice()
    raw["spec"]["devices"] = [device]
    assert mapped_slice(raw).aliases == ()


@pytest.mark.parametrize(
    ("metadata", "since"),
    [
        ({}, None),
        ({"creationTimestamp": "2026-01-01T00:00:00Z"}, "2026-01-01T00:00:00Z"),
        ({"creationTimestamp": "2026-01-01T00:00:00Z", "generation": 2}, None),
        ({"creationTimestamp": "2026-01-01T00:00:00Z", "generation": "?"}, None),
        (
            {
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "generation": 3,
                "managedFields": [
                    {"time": "2026-01-01T00:00:05Z"},
                    {"time": "2026-01-01T00:00:09Z"},
                    {"time": 7},
                ],
            },
            # The field has whole seconds, so the change was within the second after it.
            "2026-01-01T00:00:10Z",
        ),
    ],
)
def test_t15_a_slice_has_the_time_of_its_last_change(
    metadata: dict[str, Any], since: str | None
) -> None:
    timestamps = Timestamps(lambda: BASE)
    found = map_slice(raw_slice(metadata=metadata), timestamps)
    assert found is not None
    assert found.since == timestamps.parse(since)
    reported = Pools().aliases([found])
    assert reported.since == ((reported.aliases[0][0], found.since),)


@pytest.mark.parametrize(
    ("name", "attributes", "expected"),
    [
        ("gpu-0-mig-3g40gb-9-0", {}, "MIG-GPU-0/3g.40gb@0"),
        ("gpu-0-mig-3g40gb-9-4", {}, "MIG-GPU-0/3g.40gb@4"),
        ("gpu-0-mig-1g10gb-me-20-6", {"profile": "1g.10gb+me"}, "MIG-GPU-0/1g.10gb+me@6"),
        # Until 2025: the id of the profile, the first memory slice, and the number of slices.
        ("gpu-0-mig-9-4-4", {}, "MIG-GPU-0/3g.40gb@4"),
        ("gpu-0-mig-3g40gb-9-0", {"uuid": "MIG-7"}, "MIG-7"),
        ("gpu-0-mig-3g40gb-9-0", {"parentUUID": ""}, None),
        ("gpu-0-mig-3g40gb-9-0", {"profile": ""}, None),
        ("gpu-0-mig-3g40gb", {}, None),
        ("gpu-0", {}, None),
    ],
)
def test_t16_a_mig_instance_created_for_a_claim_has_a_placement_and_no_uuid(
    name: str, attributes: dict[str, str], expected: str | None
) -> None:
    whole = {"type": "mig", "profile": "3g.40gb", "parentUUID": "GPU-0"} | attributes
    raw = raw_slice()
    raw["spec"]["devices"] = [
        {"name": name, "attributes": {key: {"string": value} for key, value in whole.items()}}
    ]
    assert [device for _, device in mapped_slice(raw).aliases] == ([expected] if expected else [])


def test_the_uuid_may_be_in_an_attribute_with_the_domain_of_the_driver() -> None:
    raw = raw_slice()
    raw["spec"]["devices"][0]["attributes"] = {"gpu.nvidia.com/uuid": {"string": "GPU-7"}}
    assert names(raw) == {"gpu.nvidia.com/node-1/gpu-0": "GPU-7"}


@pytest.mark.parametrize("raw", [{}, {"spec": 7}, {"metadata": {"name": "x"}, "spec": {}}])
def test_an_object_without_a_pool_is_no_slice(raw: dict[str, Any]) -> None:
    assert map_slice(raw) is None


def test_the_newest_generation_is_used_once_it_is_complete() -> None:
    pools = Pools()
    old = [raw_slice("a", devices={"g0": "GPU-0"}, count=2), raw_slice("b", devices={}, count=2)]
    new = [
        raw_slice("c", devices={"g0": "GPU-N"}, generation=2, count=2),
        raw_slice("d", devices={"g1": "GPU-M"}, generation=2, count=2),
    ]
    before = {"gpu.nvidia.com/node-1/g0": "GPU-0"}
    after = {"gpu.nvidia.com/node-1/g0": "GPU-N", "gpu.nvidia.com/node-1/g1": "GPU-M"}
    assert names(old[0], pools=pools) == {}
    assert names(*old, pools=pools) == before
    assert names(*old, new[0], pools=pools) == before
    assert names(new[0], pools=pools) == before
    assert names(*old, *new, pools=pools) == after
    assert names(*new, pools=pools) == after
    assert names(pools=pools) == {}
    assert names(new[0], pools=pools) == {}


def test_pools_are_independent() -> None:
    a = raw_slice("a", driver="x.example")
    b = raw_slice("b", pool="p2", generation=7)
    assert names(a, b) == {
        "x.example/node-1/gpu-0": "GPU-0",
        "gpu.nvidia.com/p2/gpu-0": "GPU-0",
    }


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster()
    cluster.pods.collection.put(raw_pod("a"))
    cluster.slices.collection.put(raw_slice())
    return cluster


def reported(ctx: FollowerContext) -> list[dict[str, str]]:
    return [
        {name.text: uuid for name, uuid in event.aliases}
        for event in ctx.events
        if isinstance(event, DeviceAliasesReplaced)
    ]


FIRST = {"gpu.nvidia.com/node-1/gpu-0": "GPU-0"}


@pytest.mark.looptime
async def test_aliases_are_reported_when_they_change(cluster: FakeCluster) -> None:
    async with following(cluster, resource_slices=True) as ctx:
        await asyncio.sleep(1)
        assert reported(ctx) == [FIRST]
        cluster.slices.collection.bookmark()
        cluster.slices.collection.put(raw_slice() | {"metadata": {"name": "s1", "labels": {}}})
        cluster.slices.collection.put(raw_slice("s2", pool="p2"))
        cluster.slices.collection.delete("", "s1")
        await asyncio.sleep(1)
        both = FIRST | {"gpu.nvidia.com/p2/gpu-0": "GPU-0"}
        assert reported(ctx) == [FIRST, both, {"gpu.nvidia.com/p2/gpu-0": "GPU-0"}]
        assert cluster.slices.requests[0][2]["fieldSelector"] == "spec.nodeName=node-1"


@pytest.mark.looptime
async def test_a_node_without_slices_is_reported_with_no_aliases(
    cluster: FakeCluster,
) -> None:
    cluster.slices.collection.delete("", "s1")
    async with following(cluster, resource_slices=True) as ctx:
        await asyncio.sleep(1)
        assert reported(ctx) == [{}]


@pytest.mark.looptime
@pytest.mark.parametrize("version", ["v1beta2", "v1beta1"])
async def test_an_older_version_of_the_api_is_used(cluster: FakeCluster, version: str) -> None:
    cluster.slices.collection.put(raw_slice(basic=version == "v1beta1"))
    del cluster.paths[SLICES]
    cluster.paths[SLICES.replace("v1", version)] = cluster.slices
    async with following(cluster, resource_slices=True) as ctx:
        await asyncio.sleep(1)
        assert reported(ctx) == [FIRST]


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("error", "text"),
    [
        (None, "this cluster has no ResourceSlices; devices of DRA drivers cannot be resolved"),
        (ApiError("podgpu may not list", status=403), "podgpu may not list; devices of DRA"),
    ],
)
async def test_without_slices_pods_are_followed_and_slices_are_retried(
    cluster: FakeCluster,
    error: ApiError | None,
    text: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    del cluster.paths[SLICES]
    if error is not None:
        cluster.paths[SLICES] = error
    async with following(cluster, resource_slices=True) as ctx:
        await asyncio.sleep(1000)
        [message] = caplog.messages
        assert message.startswith(text)
        assert ctx.levels(caplog) == ["INFO"]
        # The join need not wait for aliases.
        assert reported(ctx) == [{}]
        assert set(ctx.kinds()) == {"PodsReplaced", "DeviceAliasesReplaced"}
        # Two requests each time, for a stream and for a list, if the API seems to be unknown.
        assert 8 <= cluster.requested.count(SLICES) <= 24
        cluster.paths[SLICES] = cluster.slices
        await asyncio.sleep(380)  # five minutes and jitter
        assert reported(ctx) == [{}, FIRST]
        cluster.pods.collection.put(raw_pod("b"))
        await asyncio.sleep(1)
        assert len(ctx.pods()) == 2


@pytest.mark.looptime
@pytest.mark.parametrize("status", [403, 404])
@pytest.mark.parametrize("when", ["at the start", "later"])
async def test_a_single_refusal_is_retried_within_seconds_and_not_reported(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture, status: int, when: str
) -> None:
    refusal = ApiError("a server that starts", status=status)
    if when == "at the start":
        cluster.paths[SLICES] = refusal
    async with following(cluster, resource_slices=True) as ctx:
        await asyncio.sleep(1)
        cluster.paths[SLICES] = refusal
        cluster.slices.cut(ApiError("reset"))
        # A watch that breaks is restarted within two seconds, and refused.
        await asyncio.sleep(0 if when == "at the start" else 2)
        cluster.paths[SLICES] = cluster.slices
        cluster.slices.collection.put(raw_slice(devices={"gpu-0": "GPU-9"}))
        await asyncio.sleep(5)
        assert reported(ctx)[-1] == {"gpu.nvidia.com/node-1/gpu-0": "GPU-9"}
        assert caplog.messages == []


@pytest.mark.looptime
async def test_repeated_refusals_are_logged_once_and_again_after_a_recovery(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse(seconds: int) -> None:
        for second in range(seconds):
            cluster.paths[SLICES] = ApiError(f"may not list, says request {second}", status=403)
            await asyncio.sleep(1)

    async with following(cluster, resource_slices=True) as ctx:
        await refuse(100)
        assert len(caplog.messages) == 1
        cluster.paths[SLICES] = cluster.slices
        await asyncio.sleep(400)
        assert reported(ctx) == [{}, FIRST]
        cluster.slices.cut(ApiError("reset"))
        await refuse(100)
        assert len(caplog.messages) == 2


@pytest.mark.looptime
async def test_without_permission_to_watch_requests_become_rarer(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.slices.answers.extend(
        [ApiError("no streams", status=422), None, ApiError("may not watch", status=403)] * 50
    )
    async with following(cluster, resource_slices=True) as ctx:
        await asyncio.sleep(1000)
        assert reported(ctx) == [FIRST]
        assert len(caplog.messages) == 1
        assert cluster.requested.count(SLICES) <= 3 * 12


@pytest.mark.looptime
async def test_errors_of_slices_do_not_affect_pods(cluster: FakeCluster) -> None:
    cluster.slices.answers.extend([ApiError("sick", status=500)] * 30)
    async with following(cluster, resource_slices=True) as ctx:
        await asyncio.sleep(1)
        cluster.pods.collection.put(raw_pod("b"))
        await asyncio.sleep(200)
        assert len(ctx.pods()) == 2
        assert ctx.reasons() == []


@pytest.mark.looptime
async def test_after_a_permission_is_removed_the_last_aliases_stay(cluster: FakeCluster) -> None:
    async with following(cluster, resource_slices=True) as ctx:
        await asyncio.sleep(1)
        cluster.paths[SLICES] = ApiError("podgpu may not watch", status=403)
        cluster.slices.cut(ApiError("reset"))
        await asyncio.sleep(100)
        assert reported(ctx) == [FIRST]
        assert ctx.reasons() == []
        restored = FakeApi(Collection())
        restored.collection.put(raw_slice(devices={"gpu-0": "GPU-9"}))
        cluster.paths[SLICES] = restored
        await asyncio.sleep(400)
        assert reported(ctx)[-1] == {"gpu.nvidia.com/node-1/gpu-0": "GPU-9"}


@pytest.mark.looptime
async def test_slices_are_not_read_if_the_option_is_off(cluster: FakeCluster) -> None:
    async with following(cluster, resource_slices=False) as ctx:
        await asyncio.sleep(100)
        assert set(cluster.requested) == {"/api/v1/pods"}
        assert reported(ctx) == []
