"""What the API server says of the ResourceClaims that pods use."""

import asyncio
import json
from typing import Any

import pytest

from pipeline.base.errors import ApiError
from pipeline.model import RawDeviceId, ResourceClaim
from sources.pods.resource_claims import claims_of, map_claim
from sources.pods.timestamps import Timestamps
from tests.sources.pods.raws import BASE, raw_pod
from tests.sources.pods.running import FakeCluster, Following, following
from tests.support.kube import Collection, FakeApi

RAW: dict[str, Any] = {
    "metadata": {"name": "c", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"},
    "status": {
        "allocation": {
            "allocationTimestamp": "2026-01-01T00:00:09Z",
            "devices": {
                "results": [
                    {"driver": "gpu.nvidia.com", "pool": "n", "device": "gpu-0"},
                    {
                        "driver": "gpu.nvidia.com",
                        "pool": "n",
                        "device": "gpu-1",
                        "adminAccess": True,
                    },
                ]
            },
        }
    },
}
ADMIN = (RawDeviceId("dra", "gpu.nvidia.com/n/gpu-1"),)


class One(FakeApi):
    """A ResourceClaim."""

    async def get(self, path: str, query: Any) -> bytes:
        await super().get(path, query)
        return json.dumps(RAW).encode()


def path(version: str = "v1", name: str = "c") -> str:
    return f"/apis/resource.k8s.io/{version}/namespaces/ml/resourceclaims/{name}"


def using(*claims: str) -> dict[str, Any]:
    raw = raw_pod("a")
    raw["metadata"]["namespace"] = "ml"
    raw["spec"]["resourceClaims"] = [
        {"name": f"r{n}", "resourceClaimName": name} for n, name in enumerate(claims)
    ]
    return raw


def test_claims_are_those_that_are_named_made_from_templates_and_made_for_resources() -> None:
    spec = {"resourceClaims": [{"resourceClaimName": "c"}, {"resourceClaimTemplateName": "t"}, 7]}
    status = {
        "resourceClaimStatuses": [{"resourceClaimName": "b-made"}, {"name": "none"}],
        "extendedResourceClaimStatus": {"resourceClaimName": "a-extended"},
    }
    assert [each.name for each in claims_of(spec, status)] == ["a-extended", "b-made", "c"]
    assert claims_of({"resourceClaims": 7}, {"resourceClaimStatuses": "x"}) == ()


def test_a_claim_says_when_it_was_allocated_and_what_is_admin_access() -> None:
    moments = Timestamps(lambda: BASE)
    created, allocated = (moments.parse(f"2026-01-01T00:00:0{second}Z") for second in (0, 9))
    assert map_claim(RAW, moments) == ResourceClaim("c", "u", False, created, allocated, ADMIN)
    template = {"annotations": {"resource.kubernetes.io/pod-claim-name": "r"}}
    own = map_claim({"metadata": {"name": "c", "uid": "u"} | template}, moments)
    assert own == ResourceClaim("c", "u", own=True)


@pytest.mark.parametrize("raw", [{}, {"metadata": 7}, {"metadata": {"name": "c"}}])
def test_what_has_no_identity_is_no_claim(raw: dict[str, Any]) -> None:
    assert map_claim(raw, Timestamps(lambda: BASE)) is None


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster()
    cluster.pods.collection.put(using("c"))
    return cluster


def given_out(ctx: Following) -> list[ResourceClaim]:
    [pod] = ctx.pods().values()
    return list(pod.resource_claims)


@pytest.mark.looptime
@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
async def test_a_pod_comes_with_its_claims(cluster: FakeCluster, version: str) -> None:
    cluster.paths[path(version)] = One(Collection())
    async with following(cluster) as ctx:
        await asyncio.sleep(1)
        assert [each.admin for each in given_out(ctx)] == [ADMIN]
        cluster.pods.collection.put(using("c") | {"status": {"phase": "Running"}})
        await asyncio.sleep(1000)
        # Once is enough: what matters doesn't change while a pod uses it.
        assert cluster.asked.count(path(version)) == 1
        assert [each.admin for each in given_out(ctx)] == [ADMIN]


@pytest.mark.looptime
async def test_a_missing_right_is_reported_once_and_costs_the_claims_alone(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.paths[path()] = ApiError("may not get resourceclaims", status=403)
    async with following(cluster) as ctx:
        await asyncio.sleep(2000)
        assert given_out(ctx) == [ResourceClaim("c")]
        [message] = caplog.messages
        assert message.startswith("may not get resourceclaims; until the ResourceClaims")
        assert 5 <= cluster.asked.count(path()) <= 20
        cluster.paths[path()] = One(Collection())
        await asyncio.sleep(400)
        assert [each.admin for each in given_out(ctx)] == [ADMIN]


@pytest.mark.looptime
async def test_a_claim_that_is_not_there_is_asked_for_ever_less(cluster: FakeCluster) -> None:
    async with following(cluster) as ctx:
        await asyncio.sleep(2000)
        assert given_out(ctx) == [ResourceClaim("c")]
        assert cluster.asked.count(path()) <= 20


@pytest.mark.looptime
async def test_claims_can_be_left_alone(cluster: FakeCluster) -> None:
    async with following(cluster, resource_claims=False) as ctx:
        await asyncio.sleep(100)
        assert given_out(ctx) == [ResourceClaim("c")]
        assert set(cluster.asked) == {"/api/v1/pods"}
