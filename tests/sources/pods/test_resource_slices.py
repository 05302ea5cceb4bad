"""What devices of DRA drivers are, from ResourceSlices."""

import asyncio
from typing import Any

import pytest

from pipeline.base.errors import ApiError
from pipeline.model import DeviceAliasesReplaced, RawDeviceId
from sources.pods.resource_slices import Pools, Slice, map_slice
from sources.pods.timestamps import Timestamps
from tests.sources.pods.raws import BASE, raw_pod, raw_slice
from tests.sources.pods.running import SLICES, FakeCluster, Following, following
from tests.support.kube import Collection, FakeApi

UUID = "GPU-8c25ea37-2909-6e62-b7bf-e2fcadebea8d"


def part(raw: dict[str, Any]) -> Slice:
    found = map_slice(raw)
    assert found is not None
    return found


def names(*slices: dict[str, Any], pools: Pools | None = None) -> dict[str, str]:
    aliases = (pools or Pools()).aliases([part(raw) for raw in slices]).aliases
    assert list(aliases) == sorted(aliases)
    return {name.text: uuid for name, uuid in aliases}


@pytest.mark.parametrize("basic", [False, True])
def test_a_device_goes_by_driver_pool_and_name(basic: bool) -> None:
    raw = raw_slice(devices={"gpu-0": UUID, "gpu-1-mig-1g5gb-19-0": "MIG-1"}, basic=basic)
    assert part(raw).aliases == (
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
    assert part(raw).aliases == ()


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
            # Some time within the second before.
            "2026-01-01T00:00:10Z",
        ),
    ],
)
def test_t15_a_slice_says_since_when_it_is_as_it_is(
    metadata: dict[str, Any], since: str | None
) -> None:
    moments = Timestamps(lambda: BASE)
    found = map_slice(raw_slice(metadata=metadata), moments)
    assert found is not None
    assert found.since == moments.parse(since)
    named = Pools().aliases([found])
    assert named.since == ((named.aliases[0][0], found.since),)


@pytest.mark.parametrize(
    ("name", "attributes", "expected"),
    [
        ("gpu-0-mig-3g40gb-9-0", {}, "MIG-GPU-0/3g.40gb@0"),
        ("gpu-0-mig-3g40gb-9-4", {}, "MIG-GPU-0/3g.40gb@4"),
        ("gpu-0-mig-1g10gb-me-20-6", {"profile": "1g.10gb+me"}, "MIG-GPU-0/1g.10gb+me@6"),
        # Until 2025: the profile's id, the first memory slice, and how many there are.
        ("gpu-0-mig-9-4-4", {}, "MIG-GPU-0/3g.40gb@4"),
        ("gpu-0-mig-3g40gb-9-0", {"uuid": "MIG-7"}, "MIG-7"),
        ("gpu-0-mig-3g40gb-9-0", {"parentUUID": ""}, None),
        ("gpu-0-mig-3g40gb-9-0", {"profile": ""}, None),
        ("gpu-0-mig-3g40gb", {}, None),
        ("gpu-0", {}, None),
    ],
)
def test_t16_an_instance_that_is_made_for_a_claim_has_a_place_and_no_uuid(
    name: str, attributes: dict[str, str], expected: str | None
) -> None:
    given_out = {"type": "mig", "profile": "3g.40gb", "parentUUID": "GPU-0"} | attributes
    raw = raw_slice()
    raw["spec"]["devices"] = [
        {"name": name, "attributes": {key: {"string": value} for key, value in given_out.items()}}
    ]
    assert [what for _, what in part(raw).aliases] == ([expected] if expected else [])


def test_a_uuid_may_be_under_the_drivers_own_name() -> None:
    raw = raw_slice()
    raw["spec"]["devices"][0]["attributes"] = {"gpu.nvidia.com/uuid": {"string": "GPU-7"}}
    assert names(raw) == {"gpu.nvidia.com/node-1/gpu-0": "GPU-7"}


@pytest.mark.parametrize("raw", [{}, {"spec": 7}, {"metadata": {"name": "x"}, "spec": {}}])
def test_what_has_no_pool_is_no_slice(raw: dict[str, Any]) -> None:
    assert map_slice(raw) is None


def test_the_newest_generation_counts_once_it_is_whole() -> None:
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


def test_pools_do_not_mix() -> None:
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


def said(ctx: Following) -> list[dict[str, str]]:
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
        assert said(ctx) == [FIRST]
        cluster.slices.collection.bookmark()
        cluster.slices.collection.put(raw_slice() | {"metadata": {"name": "s1", "labels": {}}})
        cluster.slices.collection.put(raw_slice("s2", pool="p2"))
        cluster.slices.collection.delete("", "s1")
        await asyncio.sleep(1)
        both = FIRST | {"gpu.nvidia.com/p2/gpu-0": "GPU-0"}
        assert said(ctx) == [FIRST, both, {"gpu.nvidia.com/p2/gpu-0": "GPU-0"}]
        assert cluster.slices.requests[0][2]["fieldSelector"] == "spec.nodeName=node-1"


@pytest.mark.looptime
async def test_a_cluster_with_slices_but_none_here_is_reported_as_such(
    cluster: FakeCluster,
) -> None:
    cluster.slices.collection.delete("", "s1")
    async with following(cluster, resource_slices=True) as ctx:
        await asyncio.sleep(1)
        assert said(ctx) == [{}]


@pytest.mark.looptime
@pytest.mark.parametrize("version", ["v1beta2", "v1beta1"])
async def test_an_older_version_of_the_api_is_found(cluster: FakeCluster, version: str) -> None:
    cluster.slices.collection.put(raw_slice(basic=version == "v1beta1"))
    del cluster.paths[SLICES]
    cluster.paths[SLICES.replace("v1", version)] = cluster.slices
    async with following(cluster, resource_slices=True) as ctx:
        await asyncio.sleep(1)
        assert said(ctx) == [FIRST]


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("error", "text"),
    [
        (None, "this cluster has no ResourceSlices; devices of DRA drivers cannot be resolved"),
        (ApiError("podgpu may not list", status=403), "podgpu may not list; devices of DRA"),
    ],
)
async def test_without_slices_pods_are_followed_and_slices_looked_for_again(
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
        # Nobody needs to wait for names.
        assert said(ctx) == [{}]
        assert set(ctx.kinds()) == {"PodsReplaced", "DeviceAliasesReplaced"}
        # Twice each time, as a stream and as a list, where they seem to be unknown.
        assert 8 <= cluster.asked.count(SLICES) <= 24
        cluster.paths[SLICES] = cluster.slices
        await asyncio.sleep(380)  # five minutes and what chance adds
        assert said(ctx) == [{}, FIRST]
        cluster.pods.collection.put(raw_pod("b"))
        await asyncio.sleep(1)
        assert len(ctx.pods()) == 2


@pytest.mark.looptime
@pytest.mark.parametrize("status", [403, 404])
@pytest.mark.parametrize("when", ["at the start", "later"])
async def test_one_refusal_costs_seconds_and_is_not_reported(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture, status: int, when: str
) -> None:
    refusal = ApiError("a server that starts", status=status)
    if when == "at the start":
        cluster.paths[SLICES] = refusal
    async with following(cluster, resource_slices=True) as ctx:
        await asyncio.sleep(1)
        cluster.paths[SLICES] = refusal
        cluster.slices.cut(ApiError("reset"))
        # A watch that breaks is begun anew within two seconds, and refused.
        await asyncio.sleep(0 if when == "at the start" else 2)
        cluster.paths[SLICES] = cluster.slices
        cluster.slices.collection.put(raw_slice(devices={"gpu-0": "GPU-9"}))
        await asyncio.sleep(5)
        assert said(ctx)[-1] == {"gpu.nvidia.com/node-1/gpu-0": "GPU-9"}
        assert caplog.messages == []


@pytest.mark.looptime
async def test_refusals_in_other_words_are_reported_once_and_again_after_a_good_while(
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
        assert said(ctx) == [{}, FIRST]
        cluster.slices.cut(ApiError("reset"))
        await refuse(100)
        assert len(caplog.messages) == 2


@pytest.mark.looptime
async def test_a_right_to_list_without_one_to_watch_is_reported_and_asked_for_ever_less(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.slices.answers.extend(
        [ApiError("no streams", status=422), None, ApiError("may not watch", status=403)] * 50
    )
    async with following(cluster, resource_slices=True) as ctx:
        await asyncio.sleep(1000)
        assert said(ctx) == [FIRST]
        assert len(caplog.messages) == 1
        assert cluster.asked.count(SLICES) <= 3 * 12


@pytest.mark.looptime
async def test_trouble_with_slices_is_no_trouble_with_pods(cluster: FakeCluster) -> None:
    cluster.slices.answers.extend([ApiError("sick", status=500)] * 30)
    async with following(cluster, resource_slices=True) as ctx:
        await asyncio.sleep(1)
        cluster.pods.collection.put(raw_pod("b"))
        await asyncio.sleep(200)
        assert len(ctx.pods()) == 2
        assert ctx.reasons() == []


@pytest.mark.looptime
async def test_a_right_that_is_taken_away_leaves_what_was_said(cluster: FakeCluster) -> None:
    async with following(cluster, resource_slices=True) as ctx:
        await asyncio.sleep(1)
        cluster.paths[SLICES] = ApiError("podgpu may not watch", status=403)
        cluster.slices.cut(ApiError("reset"))
        await asyncio.sleep(100)
        assert said(ctx) == [FIRST]
        assert ctx.reasons() == []
        again = FakeApi(Collection())
        again.collection.put(raw_slice(devices={"gpu-0": "GPU-9"}))
        cluster.paths[SLICES] = again
        await asyncio.sleep(400)
        assert said(ctx)[-1] == {"gpu.nvidia.com/node-1/gpu-0": "GPU-9"}


@pytest.mark.looptime
async def test_slices_can_be_left_alone(cluster: FakeCluster) -> None:
    async with following(cluster, resource_slices=False) as ctx:
        await asyncio.sleep(100)
        assert set(cluster.asked) == {"/api/v1/pods"}
        assert said(ctx) == []
