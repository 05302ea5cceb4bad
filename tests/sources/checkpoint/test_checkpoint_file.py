"""What is read from a checkpoint, in all its formats."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from pipeline.allocations.gpu_resources import GpuResources
from pipeline.component.claim_file_reader import FileClaims
from pipeline.files.bounded_read import UnreadableError
from pipeline.model import Claim, Evidence, PartialRef, RawDeviceId
from sources.checkpoint.checkpoint_file import read_checkpoint
from sources.checkpoint.options import Options
from tests.sources.checkpoint.checkpoints import (
    GPU,
    MIG,
    MOUNTS,
    OTHER,
    Ids,
    checkpoint,
    entry,
    response,
    visible,
)

PATH = Path("checkpoint")
RESOURCES = GpuResources(Options().resources)


def read(data: bytes) -> FileClaims:
    return read_checkpoint(data, PATH, RESOURCES)


def only_claim(data: bytes) -> Claim:
    listed = read(data)
    assert listed.problems == ()
    [claim] = listed.claims
    return claim


def texts(devices: tuple[RawDeviceId, ...]) -> list[str]:
    return [f"{raw.scheme}:{raw.text}" for raw in devices]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([GPU], [GPU]),
        ([GPU, OTHER], [OTHER, GPU]),
        ({"0": [GPU]}, [GPU]),
        ({"-1": [GPU]}, [GPU]),
        ({"0": [GPU], "1": [OTHER]}, [OTHER, GPU]),
        ({"0": [GPU], "1": [GPU]}, [GPU]),
        ({"0": [GPU], "1": None}, [GPU]),
        ([MIG], [MIG]),
        ([f"MIG-{GPU}/7/0"], [f"MIG-{GPU}/7/0"]),
        ([f"{GPU}::1", f"{GPU}::0"], [f"{GPU}::0", f"{GPU}::1"]),
        (["nvidia0"], ["nvidia0"]),
        (["nvidia1/gi3/vgpu2"], ["nvidia1/gi3/vgpu2"]),
        ([f"{GPU}-4"], [f"{GPU}-4"]),
        ([f"{GPU}-_-{n}" for n in (7, 5, 6)], [f"{GPU}-_-5"]),
        ({"0": [f"{GPU}-memory-{n}" for n in range(80_000)]}, [f"{GPU}-memory-0"]),
    ],
)
def test_device_ids_are_read_in_both_formats(ids: Ids, expected: list[str]) -> None:
    raw = entry()
    raw["DeviceIDs"] = ids
    claim = only_claim(checkpoint(raw))
    assert claim.devices == tuple(RawDeviceId("plugin", text) for text in expected)
    assert claim.subject == PartialRef(uid="u1", container="main")
    assert claim.resource == "nvidia.com/gpu"
    assert claim.origin.evidence is Evidence.KUBELET_IDS
    assert claim.origin.detail == "checkpoint u1/main"
    assert claim.asked == ()


@pytest.mark.parametrize(
    ("resource", "ids", "alloc", "held"),
    [
        ("nvidia.com/hostdev", ["0000:0c:00.2"], "", False),
        ("nvidia.com/rdma_shared_device_a", ["1"], response(nodes=["/dev/infiniband"]), False),
        ("nvidia.com/GA102GL_A10", ["57"], response(nodes=["/dev/vfio/57"]), False),
        ("nvidia.com/slots", ["slot-1"], "", False),
        # The plugin's response names a GPU: so the resource is GPUs, whatever its ids are.
        ("nvidia.com/slots", ["slot-1"], visible(GPU), True),
    ],
)
def test_ids_and_the_response_decide_which_devices_are_gpus(
    resource: str, ids: list[str], alloc: str, held: bool
) -> None:
    found = read(checkpoint(entry(ids, alloc, resource=resource)))
    assert bool(found.claims) is held
    assert found.problems == ()


AGREEING_RESPONSES: dict[str, tuple[list[str], str]] = {
    "no response": ([GPU], ""),
    "an empty response": ([GPU], response()),
    "a uuid": ([GPU], visible(GPU)),
    "a uuid in capitals": ([GPU], visible(GPU.upper())),
    "two uuids, in another order": ([GPU, OTHER], visible(f"{GPU},{OTHER}")),
    "shares of one GPU": ([f"{GPU}::0", f"{GPU}::1"], visible(GPU)),
    "a MIG instance": ([MIG], visible(MIG)),
    "a MIG instance of old drivers": ([f"MIG-{GPU}/7/0"], visible(f"MIG-{GPU}/7/0")),
    "a share of a MIG instance": ([f"{MIG}::3"], visible(MIG)),
    "mounts": (
        [GPU],
        response(env={"NVIDIA_VISIBLE_DEVICES": MOUNTS}, mounts=[f"{MOUNTS}/{GPU}"]),
    ),
    "a CDI name": ([GPU], response(cdi=[f"nvidia.com/gpu={GPU}"])),
    "an annotation": ([GPU], response(annotations={"cdi.k8s.io/x_1": f"nvidia.com/gpu={GPU}"})),
    "a node": (["nvidia0"], response(nodes=["/dev/nvidia0", "/dev/nvidiactl"])),
    "nodes": (["nvidia0", "nvidia3"], response(nodes=["/dev/nvidia3", "/dev/nvidia0"])),
    "a node, and the id is a share": (["nvidia0/vgpu1"], response(nodes=["/dev/nvidia0"])),
    "a node, and the id is a MIG instance": (
        ["nvidia0/gi2"],
        response(nodes=["/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap21"]),
    ),
    "a node in addition to the uuid of a MIG instance": ([MIG], response(nodes=["/dev/nvidia0"])),
    "all": ([GPU], visible("all")),
    "none": ([GPU], visible("none")),
    "only other devices": ([GPU], response(cdi=["nvidia.com/gds=all"])),
}


@pytest.mark.parametrize(("ids", "alloc"), AGREEING_RESPONSES.values(), ids=AGREEING_RESPONSES)
def test_the_ids_are_claimed_if_the_response_does_not_contradict_them(
    ids: list[str], alloc: str
) -> None:
    claim = only_claim(checkpoint(entry(ids, alloc)))
    assert claim.devices == tuple(RawDeviceId("plugin", text) for text in sorted(ids))
    assert claim.origin.evidence is Evidence.KUBELET_IDS
    assert claim.asked == ()


DIFFERING_RESPONSES: dict[str, tuple[list[str], str, list[str]]] = {
    "another GPU": ([GPU], visible(OTHER), [f"visible:{OTHER}"]),
    "a placeholder for another GPU": ([f"{GPU}-3"], visible(OTHER), [f"visible:{OTHER}"]),
    "a placeholder for the same GPU": ([f"{GPU}-3"], visible(GPU), [f"visible:{GPU}"]),
    "one of two": ([GPU, OTHER], visible(GPU), [f"visible:{GPU}"]),
    "an index": ([GPU], visible("0"), ["visible:0"]),
    "an index of a MIG instance": ([MIG], visible("0:1"), ["visible:0:1"]),
    "units of memory": ([f"{GPU}-_-0", f"{GPU}-_-1"], visible("2"), ["visible:2"]),
    "a CDI index": ([GPU], response(cdi=["nvidia.com/gpu=1"]), ["cdi:nvidia.com/gpu=1"]),
    "a node": ([GPU], response(nodes=["/dev/nvidia4"]), ["minor:4"]),
    "another node": (["nvidia0"], response(nodes=["/dev/nvidia1"]), ["minor:1"]),
    "no room": (
        [f"{GPU}-_-0"],
        visible("no-gpu-has-3GiB-to-run"),
        ["visible:no-gpu-has-3GiB-to-run"],
    ),
}


@pytest.mark.parametrize(
    ("ids", "alloc", "devices"), DIFFERING_RESPONSES.values(), ids=DIFFERING_RESPONSES
)
def test_devices_of_the_response_are_claimed_if_they_differ_from_the_ids(
    ids: list[str], alloc: str, devices: list[str]
) -> None:
    claim = only_claim(checkpoint(entry(ids, alloc)))
    assert texts(claim.devices) == devices
    assert claim.origin.evidence is Evidence.PLUGIN_ANSWER
    assert claim.asked[0] == RawDeviceId("plugin", min(ids))


def test_responses_that_a_kubelet_wrote_are_read() -> None:
    by_env = (
        "CkIKFk5WSURJQV9WSVNJQkxFX0RFVklDRVMSKEdQVS1mZWY4MDg5Yi00ODIwLWFiZmMtZTgzZS05NDMxODE5NzU3"
        "NmU="
    )
    by_cdi = "KjkKN252aWRpYS5jb20vZ3B1PUdQVS1mZWY4MDg5Yi00ODIwLWFiZmMtZTgzZS05NDMxODE5NzU3NmU="
    assert texts(only_claim(checkpoint(entry([OTHER], by_env))).devices) == [f"visible:{GPU}"]
    assert texts(only_claim(checkpoint(entry([OTHER], by_cdi))).devices) == [
        f"cdi:nvidia.com/gpu={GPU}"
    ]


@pytest.mark.parametrize(
    ("alloc", "text"),
    [
        ("!!!", "is not base64"),
        ("Ck", "is not base64"),
        ("ü", "is not base64"),
        ("/w==", "is not a response of a device plugin"),
    ],
)
def test_an_invalid_response_does_not_affect_other_claims(alloc: str, text: str) -> None:
    listed = read(checkpoint(entry([GPU], alloc), entry([OTHER], uid="u2")))
    assert [texts(claim.devices) for claim in listed.claims] == [
        [f"plugin:{GPU}"],
        [f"plugin:{OTHER}"],
    ]
    assert listed.problems == (f"checkpoint u1/main: AllocResp for nvidia.com/gpu {text}",)


def test_only_the_first_few_problems_are_reported() -> None:
    entries = [entry([GPU], "!", uid=f"u{number}") for number in range(9)]
    random.Random(1).shuffle(entries)
    problems = read(checkpoint(*entries)).problems
    assert [text.split(":")[0] for text in problems[:3]] == [
        f"checkpoint u{n}/main" for n in range(3)
    ]
    assert problems[3:] == ("checkpoint: 6 more problems of this kind",)


@pytest.mark.parametrize(
    ("resource", "is_read"),
    [
        ("nvidia.com/gpu.shared", True),
        ("nvidia.com/mig-1g.10gb", True),
        ("aliyun.com/gpu-mem", True),
        ("volcano.sh/vgpu-number", True),
        ("rdma/hca", False),
        ("intel.com/sriov", False),
    ],
)
def test_only_resources_with_gpus_are_read(resource: str, is_read: bool) -> None:
    listed = read(checkpoint(entry(resource=resource)))
    assert [claim.resource for claim in listed.claims] == [resource] * is_read


def test_each_container_and_resource_is_one_claim() -> None:
    entries = [
        entry([GPU], uid="b"),
        entry([OTHER], uid="a", container="x"),
        entry([MIG], uid="a", container="x", resource="nvidia.com/mig-1g.10gb"),
        entry([OTHER], uid="a", container="init"),
    ]
    listed = [read(checkpoint(*random.Random(n).sample(entries, 4))).claims for n in range(6)]
    assert all(claims == listed[0] for claims in listed)
    assert [(c.subject.uid, c.subject.container, c.resource) for c in listed[0]] == [
        ("a", "init", "nvidia.com/gpu"),
        ("a", "x", "nvidia.com/gpu"),
        ("a", "x", "nvidia.com/mig-1g.10gb"),
        ("b", "main", "nvidia.com/gpu"),
    ]


@pytest.mark.parametrize(
    "data",
    [
        checkpoint(),
        b'{"Data": {"PodDeviceEntries": []}}',
        checkpoint(entry([])),
        checkpoint(entry(None)),
        checkpoint(entry({"0": None})),
        checkpoint(BootID="7b1c"),
    ],
)
def test_a_checkpoint_without_devices_has_no_claims(data: bytes) -> None:
    assert read(data) == FileClaims(())


def test_unknown_keys_are_ignored() -> None:
    raw = {**entry(), "Since": {"a": [1]}}
    assert only_claim(checkpoint(raw, BootID="x", More=[{}])).devices == (
        RawDeviceId("plugin", GPU),
    )


def test_a_response_may_be_null() -> None:
    assert only_claim(checkpoint(entry(alloc=None))).devices == (RawDeviceId("plugin", GPU),)


INVALID_CHECKPOINTS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is empty"),
    "blank": (b" \n", "is empty"),
    "cut off": (checkpoint(entry())[:-20], "is not a checkpoint of the kubelet: "),
    "cut off early": (checkpoint(entry())[:30], "is not a checkpoint of the kubelet: "),
    "zeros": (bytes(200), "is not a checkpoint of the kubelet: "),
    "a list": (b"[]", "is not a checkpoint of the kubelet: "),
    "another object": (b"{}", "is not a checkpoint of the kubelet: "),
    "no entries": (b'{"Data": {}}', "is not a checkpoint of the kubelet: "),
    "nested deeply": (
        b'{"Data": {"PodDeviceEntries": ' + b"[" * 100_000,
        "is not a checkpoint of the kubelet: ",
    ),
    "invalid entries": (checkpoint([1]), "Data.PodDeviceEntries[0] has an unknown format: "),
}


@pytest.mark.parametrize(("data", "text"), INVALID_CHECKPOINTS.values(), ids=INVALID_CHECKPOINTS)
def test_an_invalid_checkpoint_is_unreadable(data: bytes, text: str) -> None:
    with pytest.raises(UnreadableError) as caught:
        read(data)
    assert str(caught.value).startswith(f"checkpoint: {text}")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("PodUID", 1),
        ("PodUID", ""),
        ("ContainerName", None),
        ("ContainerName", ""),
        ("ResourceName", None),
        ("DeviceIDs", "GPU-a"),
        ("DeviceIDs", [1]),
        ("DeviceIDs", {"0": {"1": []}}),
        ("AllocResp", [1]),
    ],
)
def test_an_entry_of_an_unknown_format_makes_the_file_unreadable(key: str, value: Any) -> None:
    with pytest.raises(UnreadableError) as caught:
        read(checkpoint(entry(), {**entry(), key: value}))
    assert str(caught.value).startswith("checkpoint: Data.PodDeviceEntries[1] has an unknown")


def test_a_checkpoint_with_too_many_devices_is_unreadable() -> None:
    many = [entry([f"{GPU}::{n}" for n in range(2000)], uid=f"u{p}") for p in range(6)]
    with pytest.raises(UnreadableError) as caught:
        read(checkpoint(*many))
    assert "more than 10000 devices" in str(caught.value)
    assert len(read(checkpoint(*many[:5])).claims) == 5


def test_a_file_that_a_kubelet_wrote_is_read() -> None:
    data = json.dumps(
        {
            "Data": {
                "PodDeviceEntries": [
                    {
                        "PodUID": "970a395d-bb3b-11e8-89df-408d5c537d23",
                        "ContainerName": "main",
                        "ResourceName": "nvidia.com/gpu",
                        "DeviceIDs": [GPU],
                        "AllocResp": visible(GPU),
                    }
                ],
                "RegisteredDevices": {"nvidia.com/gpu": [GPU]},
            },
            "Checksum": 3_467_439_661,
        },
        separators=(",", ":"),
    )
    assert only_claim(data.encode()).subject.uid == "970a395d-bb3b-11e8-89df-408d5c537d23"
