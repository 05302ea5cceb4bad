"""What the kubelet's answers say; tables of every form."""

import random
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.model import AdvertisedResource, Evidence, Origin, PartialRef, RawDeviceId
from pipeline.model.plugin_ids import glob_matcher
from sources.podresources.options import Options
from sources.podresources.responses import (
    InvalidResponseError,
    ListedClaims,
    Selection,
    encode_get_request,
    is_prepared,
    read_allocatable,
    read_list,
)
from tests.fakes.kubelet import claim, devices, message, pod

GPU = "nvidia.com/gpu"
MIG = "nvidia.com/mig-1g.10gb"
UUID = "GPU-fef8089b-4820-abfc-e83e-94318197576e"
SELECTION = Selection(glob_matcher(Options().resources), glob_matcher(Options().drivers))


def encoded(*pods: Any) -> bytes:
    made: bytes = message("ListPodResourcesResponse", pod_resources=pods).SerializeToString()
    return made


def read(*pods: Any) -> ListedClaims:
    return read_list(encoded(*pods), "here", SELECTION)


def said(held: ListedClaims) -> dict[str, list[str]]:
    return {
        f"{one.subject.namespace}/{one.subject.pod}/{one.subject.container} {one.resource}": [
            f"{raw.scheme}:{raw.text}" for raw in one.devices
        ]
        for one in held.claims
    }


@pytest.mark.parametrize(
    ("resource", "ids", "kept"),
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
def test_ids_are_kept_as_the_plugin_wrote_them(
    resource: str, ids: list[str], kept: list[str]
) -> None:
    random.Random(1).shuffle(ids)
    assert said(read(pod("a", {resource: ids}))) == {
        f"ml/a/main {resource}": [f"plugin:{text}" for text in kept]
    }


def test_a_claim_says_where_it_was_read_and_no_more() -> None:
    [one] = read(pod("a", {GPU: ["GPU-0"]})).claims
    assert one.subject == PartialRef("ml", "a", "main")
    assert one.origin == Origin(Evidence.KUBELET_IDS, "here")
    assert (one.share, one.since, one.asked) == (None, None, ())


def test_a_device_on_two_numa_nodes_is_one() -> None:
    assert said(read(pod("a", {GPU: ["GPU-0", "GPU-0"]}))) == {f"ml/a/main {GPU}": ["plugin:GPU-0"]}


def test_one_claim_for_each_container_and_resource_in_a_fixed_order() -> None:
    pods = [
        pod("b", {GPU: ["GPU-0"], MIG: ["MIG-1"]}),
        pod("a", {GPU: ["GPU-1"]}, container="side"),
        pod("a", {GPU: ["GPU-2"]}, namespace="dev"),
    ]
    answers = [read(*random.Random(n).sample(pods, 3)) for n in range(6)]
    assert all(one == answers[0] for one in answers)
    assert list(said(answers[0])) == [
        f"dev/a/main {GPU}",
        f"ml/a/side {GPU}",
        f"ml/b/main {GPU}",
        f"ml/b/main {MIG}",
    ]


@pytest.mark.parametrize(
    "one",
    [pod("a"), pod("a", {"rdma/hca": ["mlx5"], "cpu": ["1"]}), message("PodResources", name="a")],
)
def test_pods_without_gpus_claim_nothing(one: Any) -> None:
    assert read(one) == ListedClaims(())


def test_no_one() -> None:
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
    "another driver's": (claim("compute-domain.nvidia.com/node-1/channel-0"), []),
    "a GPU beside another's": (
        claim("net.example.com/p/d", "gpu.example.com/p/d"),
        ["dra:gpu.example.com/p/d"],
    ),
    "an old kubelet's": (
        claim(cdi=["k8s.gpu.nvidia.com/claim=1-gpu-0", "nvidia.com/gds=all"]),
        ["cdi:k8s.gpu.nvidia.com/claim=1-gpu-0"],
    ),
}


@pytest.mark.parametrize(("one", "named"), DRA.values(), ids=DRA)
def test_resource_claims(one: Any, named: list[str]) -> None:
    held = read(pod("a", claims=[one]))
    assert said(held) == ({"ml/a/main ": named} if named else {})
    assert held.unprepared == ()


def test_a_container_with_a_resource_and_a_claim() -> None:
    one = pod(
        "a",
        {GPU: ["GPU-0"]},
        claims=[claim("gpu.nvidia.com/n/gpu-1"), claim("gpu.nvidia.com/n/gpu-1")],
    )
    assert said(read(one)) == {
        "ml/a/main ": ["dra:gpu.nvidia.com/n/gpu-1"],
        f"ml/a/main {GPU}": ["plugin:GPU-0"],
    }


def test_claims_of_which_nothing_is_known_yet() -> None:
    held = read(pod("b", claims=[claim()]), pod("a", claims=[claim("gpu.nvidia.com/n/d"), claim()]))
    assert held.unprepared == (("ml", "a"), ("ml", "b"))
    assert list(said(held)) == ["ml/a/main "]


def test_every_driver_may_be_wanted() -> None:
    everything = Selection(SELECTION.resources, glob_matcher(["*"]))
    held = read_list(
        encoded(pod("a", claims=[claim("x/y/z"), claim(cdi=["a/b=c"])])), "", everything
    )
    assert said(held) == {"ml/a/main ": ["dra:x/y/z"]}


def test_more_than_a_node_can_hold() -> None:
    pods = [pod(f"p{n}", {GPU: [f"GPU-{m}" for m in range(2001)]}) for n in range(5)]
    with pytest.raises(InvalidResponseError, match="more than 10000 devices"):
        read(*pods)


def test_eighty_thousand_units_of_one_gpu() -> None:
    one = pod("a", {"volcano.sh/vgpu-memory": [f"{UUID}-memory-{n}" for n in range(80_000)]})
    assert said(read(one)) == {"ml/a/main volcano.sh/vgpu-memory": [f"plugin:{UUID}-memory-0"]}


def test_what_is_offered() -> None:
    offered = {MIG: ["MIG-1"], GPU: ["GPU-1", "GPU-0", "GPU-1"], "rdma/hca": ["mlx5"]}
    data = message("AllocatableResourcesResponse", devices=devices(offered)).SerializeToString()
    assert read_allocatable(data, SELECTION) == (
        AdvertisedResource(GPU, (RawDeviceId("plugin", "GPU-0"), RawDeviceId("plugin", "GPU-1"))),
        AdvertisedResource(MIG, (RawDeviceId("plugin", "MIG-1"),)),
    )
    assert read_allocatable(b"", SELECTION) == ()


@pytest.mark.parametrize(
    ("one", "prepared"),
    [
        (pod("a", claims=[claim()]), False),
        (pod("a", claims=[claim("gpu.nvidia.com/n/d"), claim()]), False),
        (pod("a", claims=[claim("gpu.nvidia.com/n/d")]), True),
        (pod("a"), True),
    ],
)
def test_whether_a_pod_s_claims_are_prepared(one: Any, prepared: bool) -> None:
    data = message("GetPodResourcesResponse", pod_resources=one).SerializeToString()
    assert is_prepared(data) is prepared


def test_asking_for_one_pod() -> None:
    asked = type(message("GetPodResourcesRequest")).FromString(encode_get_request("ml", "a"))
    assert (asked.pod_namespace, asked.pod_name) == ("ml", "a")


@given(st.binary(max_size=200))
def test_whatever_comes_is_read_or_refused(data: bytes) -> None:
    for read_it in (
        lambda: read_list(data, "here", SELECTION),
        lambda: read_allocatable(data, SELECTION),
        lambda: is_prepared(data),
    ):
        with suppress(InvalidResponseError):
            read_it()
