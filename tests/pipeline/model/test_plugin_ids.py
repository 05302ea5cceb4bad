"""Helpers of sources that make claims: patterns of resources, plugin ids, unchanged claims."""

import random

import pytest

from pipeline.model import Claim, Evidence, Origin, PartialRef, RawDeviceId
from pipeline.model.plugin_ids import glob_matcher, plugin_ids, reuse_unchanged, without_replica

UUID = "fef8089b-4820-abfc-e83e-94318197576e"
GPU = f"GPU-{UUID}"
OTHER = "GPU-0fc3eda5-e98b-a25b-5b0d-cf5c855d1448"


@pytest.mark.parametrize(
    ("patterns", "name", "matches"),
    [
        (["nvidia.com/*"], "nvidia.com/gpu", True),
        (["nvidia.com/*"], "nvidia.com/mig-1g.10gb.me", True),
        (["nvidia.com/*"], "nvidia.com/gpu.shared", True),
        (["nvidia.com/*", "*/*gpu*"], "aliyun.com/gpu-mem", True),
        (["nvidia.com/*", "*/*gpu*"], "volcano.sh/vgpu-memory", True),
        (["nvidia.com/*", "*/*gpu*"], "rdma/hca", False),
        (["nvidia.com/*", "*/*gpu*"], "gpu", False),
        (["nvidia.com/gpu"], "nvidia.com/gpu.shared", False),
        (["nvidia.com/GPU"], "nvidia.com/gpu", False),
        (["nvidia.com/mig-[1-3]g.*"], "nvidia.com/mig-2g.20gb", True),
    ],
)
def test_resource_names_match_glob_patterns(patterns: list[str], name: str, matches: bool) -> None:
    assert glob_matcher(patterns)(name) is matches


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([], []),
        (["GPU-b", "GPU-a", "GPU-b"], ["GPU-a", "GPU-b"]),
        (["GPU-a::1", "GPU-a::0"], ["GPU-a::0", "GPU-a::1"]),
        ([f"{GPU}-3", f"{GPU}-1"], [f"{GPU}-1", f"{GPU}-3"]),
        ([f"{GPU}-memory-{n}" for n in range(80_000)], [f"{GPU}-memory-0"]),
        ([f"{UUID}-memory-10", f"{UUID}-memory-9"], [f"{UUID}-memory-9"]),
        ([f"{GPU}-_-7", f"{GPU}-_-12", f"{OTHER}-_-3"], [f"{OTHER}-_-3", f"{GPU}-_-7"]),
        ([f"{GPU}-core-2", f"{GPU}-memory-5"], [f"{GPU}-core-2", f"{GPU}-memory-5"]),
        (["fpga-core-1", "fpga-core-2"], ["fpga-core-1", "fpga-core-2"]),
        ([""], [""]),
    ],
)
def test_ids_are_sorted_and_unique(ids: list[str], expected: list[str]) -> None:
    random.Random(1).shuffle(ids)
    assert plugin_ids(ids) == tuple(RawDeviceId("plugin", text) for text in expected)


@pytest.mark.parametrize(
    ("text", "device"),
    [
        (GPU, GPU),
        (f"{GPU}::0", GPU),
        (f"{GPU}::12", GPU),
        ("nvidia0/vgpu3", "nvidia0"),
        ("nvidia0/gi1/vgpu3", "nvidia0/gi1"),
        ("MIG-GPU-x/1/0", "MIG-GPU-x/1/0"),
        ("MIG-GPU-x/1/0::2", "MIG-GPU-x/1/0"),
    ],
)
def test_the_replica_is_removed_from_an_id(text: str, device: str) -> None:
    assert without_replica(text) == device


def claim(pod: str, *devices: str, resource: str = "nvidia.com/gpu") -> Claim:
    ids = tuple(RawDeviceId("plugin", text) for text in devices)
    origin = Origin(Evidence.KUBELET_IDS, "here")
    return Claim(PartialRef(pod=pod), ids, None, None, origin, resource)


def test_equal_claims_are_the_same_object() -> None:
    before = (claim("a", "x"), claim("b", "y"))
    assert reuse_unchanged(before, (claim("a", "x"), claim("b", "y"))) is before


def test_unchanged_claims_are_the_same_objects() -> None:
    before = (claim("a", "x"), claim("b", "y"), claim("b", "z", resource="nvidia.com/mig"))
    now = reuse_unchanged(
        before, (claim("b", "z", resource="nvidia.com/mig"), claim("b", "w"), claim("c", "x"))
    )
    assert now[0] is before[2]
    assert now[1].subject is before[1].subject
    assert now[1].devices == (RawDeviceId("plugin", "w"),)
    assert now[2] == claim("c", "x")
