"""What is read from the kubelet's responses, in all their formats."""

import random
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.allocations.gpu_resources import GpuResources
from pipeline.model import AdvertisedResource, Evidence, Origin, PartialRef, RawDeviceId
from pipeline.model.plugin_ids import MAX_CLAIMED_DEVICES, glob_matcher
from sources.podresources.kubelet_connection import KubeletError
from sources.podresources.options import Options
from sources.podresources.responses import (
    ListedClaims,
    Selection,
    read_allocatable,
    read_list,
)
from tests.fakes.kubelet import claim, devices, message, pod

GPU = "nvidia.com/gpu"
MIG = "nvidia.com/mig-1g.10gb"
UUID = "GPU-fef8089b-4820-abfc-e83e-94318197576e"
SELECTION = Selection(GpuResources(Options().resources), glob_matcher(Options().drivers))


def encoded(*pods: Any) -> bytes:
    message_bytes: bytes = message(
        "ListPodResourcesResponse", pod_resources=pods
    ).SerializeToString()
    return message_bytes


def read(*pods: Any) -> ListedClaims:
    return read_list(encoded(*pods), "here", SELECTION)


def devices_by_container(listed: ListedClaims) -> dict[str, list[str]]:
    return {
        f"{one.subject.namespace}/{one.subject.pod}/{one.subject.container} {one.resource}": [
            f"{raw.scheme}:{raw.text}" for raw in one.devices
        ]
        for one in listed.claims
    }


@pytest.mark.parametrize(
    ("resource", "ids", "expected"),
    [
        (GPU, [UUID], [UUID]),
        (GPU, ["GPU-b", "GPU-a"], ["GPU-a", "GPU-b"]),
        ("nvidia.com/gpu.shared", [f"{UUID}::0"], [f"{UUID}::0"]),
        (MIG, ["MIG-1"], ["MIG-1"]),
        (MIG, ["MIG-GPU-x/1/0"], ["MIG-GPU-x/1/0"]),
        (
            GPU,
            ["nvidia0", "nvidia0/gi1", "nvidia1/gi3/vgpu2"],
            ["nvidia0", "nvidia0/gi1", "nvidia1/gi3/vgpu2"],
        ),
        (GPU, [f"{UUID}-3"], [f"{UUID}-3"]),
        ("aliyun.com/gpu-mem", [f"{UUID}-_-{n}" for n in range(9)], [f"{UUID}-_-0"]),
        (GPU, [""], [""]),
    ],
)
def test_device_ids_are_kept_as_the_plugin_wrote_them(
    resource: str, ids: list[str], expected: list[str]
) -> None:
    random.Random(1).shuffle(ids)
    assert devices_by_container(read(pod("a", {resource: ids}))) == {
        f"ml/a/main {resource}": [f"plugin:{text}" for text in expected]
    }


def test_a_claim_contains_its_origin_and_no_share_or_time() -> None:
    [found] = read(pod("a", {GPU: ["GPU-0"]})).claims
    assert found.subject == PartialRef("ml", "a", "main")
    assert found.origin == Origin(Evidence.KUBELET_IDS, "here")
    assert (found.share, found.since, found.asked) == (None, None, ())


def test_a_device_on_two_numa_nodes_is_one_device() -> None:
    assert devices_by_container(read(pod("a", {GPU: ["GPU-0", "GPU-0"]}))) == {
        f"ml/a/main {GPU}": ["plugin:GPU-0"]
    }


def test_each_container_and_resource_is_one_claim_in_a_fixed_order() -> None:
    pods = [
        pod("b", {GPU: ["GPU-0"], MIG: ["MIG-1"]}),
        pod("a", {GPU: ["GPU-1"]}, container="side"),
        pod("a", {GPU: ["GPU-2"]}, namespace="dev"),
    ]
    responses = [read(*random.Random(n).sample(pods, 3)) for n in range(6)]
    assert all(one == responses[0] for one in responses)
    assert list(devices_by_container(responses[0])) == [
        f"dev/a/main {GPU}",
        f"ml/a/side {GPU}",
        f"ml/b/main {GPU}",
        f"ml/b/main {MIG}",
    ]


@pytest.mark.parametrize(
    "one",
    [pod("a"), pod("a", {"rdma/hca": ["mlx5"], "cpu": ["1"]}), message("PodResources", name="a")],
)
def test_pods_without_gpus_have_no_claims(one: Any) -> None:
    assert read(one) == ListedClaims(())


@pytest.mark.parametrize(
    ("resource", "ids"),
    [
        ("nvidia.com/hostdev", ["0000:0c:00.2"]),
        ("nvidia.com/rdma_shared_device_a", ["0", "1"]),
        ("nvidia.com/GA102GL_A10", ["57"]),
        ("amd.com/gpu", ["0000:05:00.0"]),
    ],
)
def test_devices_that_are_no_gpus_of_the_driver_are_neither_held_nor_offered(
    resource: str, ids: list[str]
) -> None:
    held = read(pod("a", {resource: ids, GPU: [UUID]}))
    assert devices_by_container(held) == {f"ml/a/main {GPU}": [f"plugin:{UUID}"]}
    offered: bytes = message(
        "AllocatableResourcesResponse", devices=devices({resource: ids, GPU: [UUID]})
    ).SerializeToString()
    assert [each.resource for each in read_allocatable(offered, "here", SELECTION)] == [GPU]


def test_an_empty_list_has_no_claims() -> None:
    assert read() == ListedClaims(())


DRA: dict[str, tuple[Any, list[str]]] = {
    "a GPU": (claim("gpu.nvidia.com/node-1/gpu-0"), ["dra:gpu.nvidia.com/node-1/gpu-0"]),
    "two": (
        claim("gpu.nvidia.com/node-1/gpu-1", "gpu.nvidia.com/node-1/gpu-0"),
        ["dra:gpu.nvidia.com/node-1/gpu-0", "dra:gpu.nvidia.com/node-1/gpu-1"],
    ),
    "a MIG instance": (
        claim("gpu.nvidia.com/node-1/gpu-1-mig-2g47gb-14-0"),
        ["dra:gpu.nvidia.com/node-1/gpu-1-mig-2g47gb-14-0"],
    ),
    "of another driver": (claim("compute-domain.nvidia.com/node-1/channel-0"), []),
    "a GPU and a device of another driver": (
        claim("net.example.com/p/d", "gpu.example.com/p/d"),
        ["dra:gpu.example.com/p/d"],
    ),
    "of an old kubelet": (
        claim(cdi=["k8s.gpu.nvidia.com/claim=1-gpu-0", "nvidia.com/gds=all"]),
        ["cdi:k8s.gpu.nvidia.com/claim=1-gpu-0"],
    ),
}


@pytest.mark.parametrize(("one", "expected"), DRA.values(), ids=DRA)
def test_devices_of_resource_claims_are_claimed(one: Any, expected: list[str]) -> None:
    listed = read(pod("a", claims=[one]))
    assert devices_by_container(listed) == ({"ml/a/main ": expected} if expected else {})
    assert listed.unprepared == ()


def test_a_container_with_a_resource_and_a_resource_claim_has_two_claims() -> None:
    one = pod(
        "a",
        {GPU: ["GPU-0"]},
        claims=[claim("gpu.nvidia.com/n/gpu-1"), claim("gpu.nvidia.com/n/gpu-1")],
    )
    assert devices_by_container(read(one)) == {
        "ml/a/main ": ["dra:gpu.nvidia.com/n/gpu-1"],
        f"ml/a/main {GPU}": ["plugin:GPU-0"],
    }


def test_resource_claims_without_devices_are_unprepared() -> None:
    listed = read(
        pod("b", claims=[claim()]), pod("a", claims=[claim("gpu.nvidia.com/n/d"), claim()])
    )
    assert listed.unprepared == (("ml", "a"), ("ml", "b"))
    assert list(devices_by_container(listed)) == ["ml/a/main "]


def test_devices_of_all_drivers_can_be_selected() -> None:
    everything = Selection(SELECTION.resources, glob_matcher(["*"]))
    listed = read_list(
        encoded(pod("a", claims=[claim("x/y/z"), claim(cdi=["a/b=c"])])), "", everything
    )
    assert devices_by_container(listed) == {"ml/a/main ": ["dra:x/y/z"]}


def test_a_response_with_too_many_devices_is_refused() -> None:
    pods = [pod(f"p{n}", {GPU: [f"GPU-{m}" for m in range(2001)]}) for n in range(5)]
    with pytest.raises(KubeletError, match="more than 10000 devices"):
        read(*pods)


@pytest.mark.slow
def test_many_memory_units_of_a_gpu_are_read_as_one_device() -> None:
    one = pod(
        "a",
        {"volcano.sh/vgpu-memory": [f"{UUID}-memory-{n}" for n in range(MAX_CLAIMED_DEVICES + 1)]},
    )
    assert devices_by_container(read(one)) == {
        "ml/a/main volcano.sh/vgpu-memory": [f"plugin:{UUID}-memory-0"]
    }


def test_advertised_resources_are_read() -> None:
    offered = {MIG: ["MIG-1"], GPU: ["GPU-1", "GPU-0", "GPU-1"], "rdma/hca": ["mlx5"]}
    data = message("AllocatableResourcesResponse", devices=devices(offered)).SerializeToString()
    assert read_allocatable(data, "here", SELECTION) == (
        AdvertisedResource(GPU, (RawDeviceId("plugin", "GPU-0"), RawDeviceId("plugin", "GPU-1"))),
        AdvertisedResource(MIG, (RawDeviceId("plugin", "MIG-1"),)),
    )
    assert read_allocatable(b"", "here", SELECTION) == ()


@given(st.binary(max_size=200))
def test_any_response_is_read_or_refused(data: bytes) -> None:
    for decode in (
        lambda: read_list(data, "here", SELECTION),
        lambda: read_allocatable(data, "here", SELECTION),
    ):
        with suppress(KubeletError):
            decode()
