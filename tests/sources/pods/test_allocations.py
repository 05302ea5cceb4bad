"""Claims that are read from the annotations of schedulers."""

import json
from typing import Any

import pytest

from pipeline.model import Claim, Evidence, Origin, PartialRef, PodContainer, RawDeviceId
from sources.pods.allocations.annotation_table import allocations
from tests.sources.pods.annotations import (
    ALIYUN,
    ALIYUN2,
    ALIYUN2_ASSIGNED,
    ALIYUN_ASSIGNED,
    ALIYUN_DEV,
    ALIYUN_POD,
    CONFIGURED,
    DECIDED,
    HAMI,
    HAMI_MIG,
    HAMI_PHASE,
    INDEX,
    KOORDINATOR,
    ONE,
    TWO,
    VGPU,
    VOLCANO_PHASE,
    WITH_INIT,
    A,
    B,
    Held,
    M,
    facts,
    gpu,
    held,
    koordinator,
)


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        ([gpu(0, "100", "100", id=A)], [("", (f"uuid {A}",), 1.0)]),
        ([gpu(3, "50", "50")], [("", ("minor 3",), 0.5)]),
        ([gpu("3", "50", "50")], [("", ("minor 3",), 0.5)]),
        ([gpu(3, 50, id="")], [("", ("minor 3",), 0.5)]),
        ([gpu(3, None, "25")], [("", ("minor 3",), 0.25)]),
        ([gpu(3, "0", "25")], [("", ("minor 3",), 0.25)]),
        ([gpu(3, "30", "25")], [("", ("minor 3",), 0.3)]),
        ([gpu(3, "200")], [("", ("minor 3",), None)]),
        ([gpu(3, "50000m")], [("", ("minor 3",), 0.5)]),
        ([gpu(3, "0.1k")], [("", ("minor 3",), 1.0)]),
        ([gpu(3)], [("", ("minor 3",), None)]),
        ([{"minor": 3, "resources": None}], [("", ("minor 3",), None)]),
        ([{"minor": 3}], [("", ("minor 3",), None)]),
        (
            [gpu(0, "100", id=A), gpu(1, "100", id=B)],
            [("", (f"uuid {A}", f"uuid {B}"), 1.0)],
        ),
        ([gpu(0, "100"), gpu(1, "50")], [("", ("minor 0",), 1.0), ("", ("minor 1",), 0.5)]),
        ([gpu(0, "50"), gpu(0, "50")], [("", ("minor 0",), 0.5)]),
        ([], []),
    ],
)
def test_annotations_of_koordinator_are_read(
    gpus: list[dict[str, Any]], expected: list[Held]
) -> None:
    assert held(koordinator(*gpus)) == expected
    # The claim is for the whole pod: any of its containers may use the GPUs.
    assert held(koordinator(*gpus), TWO) == expected


@pytest.mark.parametrize("amount", ["16Gi", "17179869184", "16000M", "16E", "1e9", 7, None])
def test_memory_in_bytes_gives_no_share(amount: object) -> None:
    allocated = {"minor": 1, "resources": {"koordinator.sh/gpu-memory": amount}}
    assert held(koordinator(allocated)) == [("", ("minor 1",), None)]


@pytest.mark.parametrize("value", ["{}", '{"rdma": [{"minor": 0}]}', '{"gpu": null}'])
def test_annotations_of_koordinator_without_gpus_give_no_claims(value: str) -> None:
    assert held({KOORDINATOR: value}) == []


@pytest.mark.parametrize(
    ("value", "containers", "expected"),
    [
        (f"{A},NVIDIA,3000,50:;", ONE, [("main", (f"uuid {A}",), 0.5)]),
        (f"{A},NVIDIA,3000,0:;", ONE, [("main", (f"uuid {A}",), None)]),
        (f"{A},NVIDIA,3000,100:", ONE, [("main", (f"uuid {A}",), 1.0)]),
        (f"{A},NVIDIA-A100,3000,150:;", ONE, [("main", (f"uuid {A}",), None)]),
        (
            f"{A},NVIDIA,3000,0:;{B},NVIDIA,5000,0:;",
            TWO,
            [("main", (f"uuid {A}",), None), ("side", (f"uuid {B}",), None)],
        ),
        (f";{B},NVIDIA,5000,0:;", TWO, [("side", (f"uuid {B}",), None)]),
        (f"{A},NVIDIA,5000,0:;;", TWO, [("main", (f"uuid {A}",), None)]),
        (
            f"{A},NVIDIA,3000,30:{B},NVIDIA,3000,30:;",
            ONE,
            [("main", (f"uuid {A}", f"uuid {B}"), 0.3)],
        ),
        (
            f"{A},NVIDIA,3000,30:{B},NVIDIA,3000,60:;",
            ONE,
            [("main", (f"uuid {A}",), 0.3), ("main", (f"uuid {B}",), 0.6)],
        ),
        (";;", TWO, []),
        (f"{A}[0-1],NVIDIA,3000,0:;", ONE, [("main", (f"uuid {A}",), None)]),
        # Three rows are for the init containers and main, one row is only for main.
        (
            f"{A},NVIDIA,1,0:;{B},NVIDIA,1,0:;;",
            WITH_INIT,
            [("prepare", (f"uuid {A}",), None), ("proxy", (f"uuid {B}",), None)],
        ),
        (f";;{B},NVIDIA,1,0:;", WITH_INIT, [("main", (f"uuid {B}",), None)]),
        (f"{B},NVIDIA,1,0:;", WITH_INIT, [("main", (f"uuid {B}",), None)]),
    ],
)
def test_annotations_of_hami_are_read(
    value: str, containers: tuple[PodContainer, ...], expected: list[Held]
) -> None:
    assert held({HAMI: value, HAMI_PHASE: "success"}, containers) == expected
    assert held({HAMI: value}, containers) == expected
    assert held({HAMI: value, HAMI_PHASE: "allocating"}, containers) == []
    assert held({HAMI: value, HAMI_PHASE: "failed"}, containers) == []


def instance(container: int, device: int, uuid: str = M) -> dict[str, Any]:
    more = {"migUUID": uuid} if uuid else {}
    return {"containerIndex": container, "deviceIndex": device, "gpuUUID": A, **more}


def test_annotations_of_hami_with_mig_instances_are_read() -> None:
    value = f"{A},NVIDIA,3000,0:{B},NVIDIA,3000,0:;"
    expected = held({HAMI: value, HAMI_MIG: json.dumps([instance(0, 0)])})
    assert expected == [("main", (f"uuid {M}", f"uuid {B}"), None)]
    # The MIG instance does not exist yet: the device of the container is unknown.
    assert held({HAMI: value, HAMI_MIG: json.dumps([instance(0, 0, "")])}) == []


@pytest.mark.parametrize(
    ("value", "containers", "expected"),
    [
        (";", TWO, []),
        (f"{A},NVIDIA,3000,50:", ONE, [("main", (f"uuid {A}",), 0.5)]),
        (f"{A},NVIDIA,3000,50:;", ONE, [("main", (f"uuid {A}",), 0.5)]),
        (
            f"{A},NVIDIA,3000,50:;{B},NVIDIA,3000,50:",
            TWO,
            [("main", (f"uuid {A}",), 0.5), ("side", (f"uuid {B}",), 0.5)],
        ),
        (f"{A},NVIDIA,3000,50:;", TWO, [("main", (f"uuid {A}",), 0.5)]),
        (f";{A},NVIDIA,3000,50:", TWO, [("side", (f"uuid {A}",), 0.5)]),
        (f"{A},NVIDIA,3000,50:", WITH_INIT, [("main", (f"uuid {A}",), 0.5)]),
    ],
)
def test_annotations_of_volcano_with_uuids_are_read(
    value: str, containers: tuple[PodContainer, ...], expected: list[Held]
) -> None:
    assert held({VGPU: value}, containers) == expected
    assert held({VGPU: value, VOLCANO_PHASE: "success"}, containers) == expected
    assert held({VGPU: value, VOLCANO_PHASE: "allocating"}, containers) == []


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({INDEX: "0", DECIDED: "1593764466550835304"}, [("", ("index 0",), None)]),
        ({INDEX: "0, 1", DECIDED: "1"}, [("", ("index 0", "index 1"), None)]),
        ({INDEX: "0,1"}, []),
    ],
)
def test_annotations_of_volcano_with_indices_are_read(
    annotations: dict[str, str], expected: list[Held]
) -> None:
    assert held(annotations, TWO) == expected


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({ALIYUN: "3"}, [("", ("minor 3",), None)]),
        ({ALIYUN: "3", ALIYUN_ASSIGNED: "true"}, [("", ("minor 3",), None)]),
        ({ALIYUN: "3", ALIYUN_ASSIGNED: "false"}, []),
        ({ALIYUN: "-1"}, []),
        ({ALIYUN: "3", ALIYUN_POD: "3", ALIYUN_DEV: "15"}, [("", ("minor 3",), 0.2)]),
        ({ALIYUN: "3", ALIYUN_POD: "15", ALIYUN_DEV: "15"}, [("", ("minor 3",), 1.0)]),
        ({ALIYUN: "3", ALIYUN_POD: "16", ALIYUN_DEV: "15"}, [("", ("minor 3",), None)]),
        ({ALIYUN: "3", ALIYUN_POD: "0", ALIYUN_DEV: "0"}, [("", ("minor 3",), None)]),
        ({ALIYUN: "3", ALIYUN_POD: "3"}, [("", ("minor 3",), None)]),
        (
            {ALIYUN2: '{"0":{"1":4},"1":{"1":4,"2":4}}'},
            [("main", ("minor 1",), None), ("side", ("minor 1", "minor 2"), None)],
        ),
        ({ALIYUN2: '{"0":{"1":4}}', ALIYUN: "1"}, [("main", ("minor 1",), None)]),
        ({ALIYUN2: '{"0":{"1":4}}', ALIYUN2_ASSIGNED: "false"}, []),
        ({ALIYUN2: '{"0":{}}'}, []),
        ({ALIYUN2: "{}"}, []),
    ],
)
def test_annotations_of_gpushare_are_read(
    annotations: dict[str, str], expected: list[Held]
) -> None:
    assert held(annotations, TWO) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"nvidia.com/gpu": f"{A},{B}"}, [("nvidia.com/gpu", (A, B))]),
        ({"nvidia.com/gpu": f" {A} , "}, [("nvidia.com/gpu", (A,))]),
        ({"nvidia.com/gpu": [A, M]}, [("nvidia.com/gpu", (A, M))]),
        ({"a/x": A, "b/y": M}, [("a/x", (A,)), ("b/y", (M,))]),
        ({"nvidia.com/gpu": ""}, []),
        ({}, []),
    ],
)
def test_annotations_that_the_configuration_names_are_read(
    value: object, expected: list[tuple[str, tuple[str, ...]]]
) -> None:
    claims, complaints = allocations(
        facts({CONFIGURED: json.dumps(value)}), (CONFIGURED, CONFIGURED)
    )
    assert complaints == {}
    assert [(c.resource, tuple(d.text for d in c.devices)) for c in claims] == expected
    assert {d.scheme for c in claims for d in c.devices} <= {"uuid"}
    assert allocations(facts({CONFIGURED: json.dumps(value)})) == ((), {})


def test_a_claim_contains_all_known_names_and_ids() -> None:
    annotations = koordinator(gpu(3, "50")) | {HAMI: f"{A},NVIDIA,3000,50:;"}
    claims, _ = allocations(facts(annotations))
    pod = Claim(
        PartialRef("ml", "train-0", "", "uid-1"),
        (RawDeviceId("minor", "3"),),
        0.5,
        None,
        Origin(Evidence.SCHEDULER_ANNOTATION, KOORDINATOR),
    )
    container = Claim(
        PartialRef("ml", "train-0", "main", "uid-1", "id-main"),
        (RawDeviceId("uuid", A),),
        0.5,
        None,
        Origin(Evidence.SCHEDULER_ANNOTATION, HAMI),
    )
    assert claims == (pod, container)
