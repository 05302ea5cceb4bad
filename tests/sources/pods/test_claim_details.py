"""How ResourceClaims of pods are read from the API server."""

import asyncio
import json
from typing import Any

import pytest

from pipeline.base.errors import ApiError
from pipeline.model import RawDeviceId, ResourceClaim
from sources.pods.claim_details import claims_of, map_claim
from sources.pods.timestamps import Timestamps
from tests.sources.pods.pod_objects import BASE, raw_pod
from tests.sources.pods.source_runner import FakeCluster, FollowerContext, following
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


class FakeClaimApi(FakeApi):
    """A fake API server with one ResourceClaim."""

    async def get(self, path: str, query: Any) -> bytes:
        await super().get(path, query)
        return json.dumps(RAW).encode()


def path(version: str = "v1", name: str = "c") -> str:
    return f"/apis/resource.k8s.io/{version}/namespaces/ml/resourceclaims/{name}"


def pod_using(*claims: str) -> dict[str, Any]:
    raw = raw_pod("a")
    raw["metadata"]["namespace"] = "ml"
    raw["spec"]["resourceClaims"] = [
        {"name": f"r{n}", "resourceClaimName": name} for n, name in enumerate(claims)
    ]
    return raw


def test_claims_are_named_made_from_templates_or_made_for_resources() -> None:
    spec = {"resourceClaims": [{"resourceClaimName": "c"}, {"resourceClaimTemplateName": "t"}, 7]}
    status = {
        "resourceClaimStatuses": [{"resourceClaimName": "b-made"}, {"name": "none"}],
        "extendedResourceClaimStatus": {"resourceClaimName": "a-extended"},
    }
    assert [each.name for each in claims_of(spec, status)] == ["a-extended", "b-made", "c"]
    assert claims_of({"resourceClaims": 7}, {"resourceClaimStatuses": "x"}) == ()


def test_a_claim_is_mapped_with_its_times_and_admin_access() -> None:
    timestamps = Timestamps(lambda: BASE)
    created, allocated = (timestamps.parse(f"2026-01-01T00:00:0{second}Z") for second in (0, 9))
    assert map_claim(RAW, timestamps) == ResourceClaim("c", "u", False, created, allocated, ADMIN)
    template = {"annotations": {"resource.kubernetes.io/pod-claim-name": "r"}}
    own = map_claim({"metadata": {"name": "c", "uid": "u"} | template}, timestamps)
    assert own == ResourceClaim("c", "u", own=True)


@pytest.mark.parametrize("raw", [{}, {"metadata": 7}, {"metadata": {"name": "c"}}])
def test_an_object_without_an_identity_is_no_claim(raw: dict[str, Any]) -> None:
    assert map_claim(raw, Timestamps(lambda: BASE)) is None


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster()
    cluster.pods.collection.put(pod_using("c"))
    return cluster


def reported_claims(ctx: FollowerContext) -> list[ResourceClaim]:
    [pod] = ctx.pods().values()
    return list(pod.resource_claims)


@pytest.mark.looptime
@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
async def test_a_pod_is_reported_with_its_claims(cluster: FakeCluster, version: str) -> None:
    cluster.paths[path(version)] = FakeClaimApi(Collection())
    async with following(cluster) as ctx:
        await asyncio.sleep(1)
        assert [each.admin for each in reported_claims(ctx)] == [ADMIN]
        cluster.pods.collection.put(pod_using("c") | {"status": {"phase": "Running"}})
        await asyncio.sleep(1000)
        # The claim is read once: its relevant fields do not change while a pod uses it.
        assert cluster.requested.count(path(version)) == 1
        assert [each.admin for each in reported_claims(ctx)] == [ADMIN]


@pytest.mark.looptime
async def test_without_permission_to_read_claims_only_claims_are_missing(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.paths[path()] = ApiError("may not get resourceclaims", status=403)
    async with following(cluster) as ctx:
        await asyncio.sleep(2000)
        assert reported_claims(ctx) == [ResourceClaim("c")]
        [message] = caplog.messages
        assert message.startswith("may not get resourceclaims; until the ResourceClaims")
        assert 5 <= cluster.requested.count(path()) <= 20
        cluster.paths[path()] = FakeClaimApi(Collection())
        await asyncio.sleep(400)
        assert [each.admin for each in reported_claims(ctx)] == [ADMIN]


@pytest.mark.looptime
async def test_requests_for_a_missing_claim_become_rarer(cluster: FakeCluster) -> None:
    async with following(cluster) as ctx:
        await asyncio.sleep(2000)
        assert reported_claims(ctx) == [ResourceClaim("c")]
        assert cluster.requested.count(path()) <= 20


@pytest.mark.looptime
async def test_claims_are_not_read_if_the_option_is_off(cluster: FakeCluster) -> None:
    async with following(cluster, resource_claims=False) as ctx:
        await asyncio.sleep(100)
        assert reported_claims(ctx) == [ResourceClaim("c")]
        assert set(cluster.requested) == {"/api/v1/pods"}
