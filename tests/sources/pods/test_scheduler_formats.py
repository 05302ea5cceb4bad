"""The annotation formats of schedulers and their releases, with the spec of each pod."""

from typing import Any

import pytest

from pipeline.model import PodContainer, RawDeviceId
from sources.pods.allocations.annotation_table import allocations
from tests.sources.pods.annotations import ALIYUN2, HAMI, KOORDINATOR, VGPU, A, B, facts
from tests.sources.pods.pod_objects import map_pod, raw_container, raw_pod

OLD_HAMI = "4pd.io/vgpu-ids-new"
GPU = "nvidia.com/gpu"
RESOURCES = {VGPU: "volcano.sh/vgpu-number", ALIYUN2: "aliyun.com/gpu-count"}
"""By annotation: the resource that a pod of that scheduler requests; `GPU` for all others."""
A1, B1 = f"{A},NVIDIA,1000,0:", f"{B},NVIDIA,1000,0:"
NONE = ",,0,0:"

# Notation of containers: a name; `*` after it for each GPU that it requests; `i:` before the name
# of an init container; `#` for a GPU as older releases of koordinator name it.
FORMATS = [
    # HAMi up to 2.8: one row for each container except init containers.
    (HAMI, f"{A1};", "a*", "a=A"),
    (HAMI, f"{A1};", "i:i a*", "a=A"),
    (HAMI, f"{A1};{B1};", "i:i* a* b*", "a=A b=B"),
    # HAMi 2.9 (issue 1932, HAMi-WebUI 98): rows of init containers come first.
    (HAMI, f";{A1};", "i:i a*", "a=A"),
    (HAMI, f";;{A1}{B1};", "i:i i:j a**", "a=A,B"),
    (HAMI, f"{A1};{B1};", "i:i* a*", "i=A a=B"),
    # HAMi 2.10 (issue 2899): init containers that request nothing have no row.
    (HAMI, f"{A1};{B1};", "i:i a* b*", "a=A b=B"),
    # T18: the spec shows which row is missing.
    (HAMI, f"{A1};", "a b*", "b=A"),
    (HAMI, f"{A1};{B1};", "i:i* a* b", "i=A a=B"),
    (HAMI, f"{A1};;", "a b*", "row 0 names a device for container a, which requests none"),
    # T19, HAMi issue 991: placeholders and empty rows, also in the same text.
    (HAMI, f"{NONE};{A1};{NONE};", "a b* c", "b=A"),
    (HAMI, f";{A1};;", "a b* c", "b=A"),
    (HAMI, f"{A1};;{NONE};{NONE};", "a* b c d", "a=A"),
    # The spec of that issue: up to 2.5 the first containers have no row, and the others have one.
    (HAMI, f"{A1};;{NONE};{NONE};{NONE};", "a b* c d e", "b=A"),
    (HAMI, f"{A1};;{NONE};", "a b* c", "b=A"),
    (HAMI, f"{A1};;;{NONE};", "a b c* d", "c=A"),
    (HAMI, f"{A1};;{NONE};{B1};", "a b* c d*", "b=A d=B"),
    (HAMI, f"{A1};{B1};;{NONE};", "a b* c* d", "b=A c=B"),
    (OLD_HAMI, f"{A1};;{NONE};", "a b* c", "b=A"),
    (
        HAMI,
        f"{A1};{B1};{NONE};",
        "a b* c",
        "row 0 names a device for container a, which requests none",
    ),
    (HAMI, f"{NONE};;{A1};", "a b* c", "row 2 names a device for container c, which requests none"),
    # HAMi up to 2.3.
    (OLD_HAMI, f"{A1};", "a*", "a=A"),
    (OLD_HAMI, f";{A1};", "a b*", "b=A"),
    # volcano: rows are separated by semicolons, without init containers.
    (VGPU, f"{A1}{B1}", "a**", "a=A,B"),
    (VGPU, f";{A1}", "a b*", "b=A"),
    (VGPU, f"{NONE};{A1}", "a b*", "b=A"),
    (VGPU, f"{A1};", "a b*", "row 0 names a device for container a, which requests none"),
    # gpushare: by the index of the container.
    (ALIYUN2, '{"1":{"1":4}}', "a b*", "b=1"),
    (ALIYUN2, '{"0":{"1":4}}', "a b*", "container 0 has a device, but a requests none"),
    # koordinator: for the whole pod; by minor number before 1.6, and by uuid since.
    # Older releases have resources in the domain of Kubernetes.
    (
        KOORDINATOR,
        '{"gpu":[{"minor":1,"resources":{"kubernetes.io/gpu-core":"100"}}]}',
        "a b#",
        "=1",
    ),
    (KOORDINATOR, '{"gpu":[{"minor":1}]}', "a b*", "=1"),
    (KOORDINATOR, f'{{"gpu":[{{"minor":1,"id":"{A}"}}]}}', "a b*", "=A"),
]


@pytest.mark.parametrize(("annotation", "value", "spec", "expected"), FORMATS)
def test_t18_t19_each_format_gives_its_containers_the_devices(
    annotation: str, value: str, spec: str, expected: str
) -> None:
    raw: dict[str, list[Any]] = {"containers": [], "initContainers": []}
    for container in spec.split():
        kind, _, name = container.rpartition(":")
        number = name.count("*")
        resource = RESOURCES.get(annotation, GPU)
        limits = {"limits": {resource: str(number)}} if number else {}
        if name.endswith("#"):
            limits = {"limits": {"kubernetes.io/gpu": "100"}}
        raw["initContainers" if kind else "containers"].append(
            raw_container(name.rstrip("*#"), resources=limits)
        )
    pod, omissions = map_pod(raw_pod(spec=raw, annotations={annotation: value}))
    assert pod is not None
    short = {A: "A", B: "B"}
    found = [
        f"{c.subject.container}={','.join(short.get(d.text, d.text) for d in c.devices)}"
        for c in pod.claims
    ]
    problems = [problem for one in omissions for problem in one.problems.values()]
    assert " ".join(found + problems) == expected


def test_t18_only_requests_of_gpu_resources_count() -> None:
    """A container that requests a network card requests no GPU."""
    base = facts({HAMI: f"{A1};;"}, (PodContainer("a"), PodContainer("b")))
    for resource, claimed in ((GPU, True), ("rdma/hca", False)):
        requests = {"a": {resource: "1"}, "b": {GPU: "1"}}
        changed = type(base)(
            *(base.namespace, base.name, base.uid, base.annotations, base.containers),
            requested=requests,
            resources={GPU},
        )
        claims, complaints = allocations(changed)
        assert (bool(claims), bool(complaints)) == (claimed, not claimed)


GROUP = "runai-gpu-group"
RESERVED = "run.ai/reserve_for_gpu_index"


@pytest.mark.parametrize(
    ("labels", "annotations", "expected"),
    [
        ({GROUP: "g"}, {"gpu-fraction": "0.5"}, ("main", ["g"], 0.5)),
        ({GROUP: "g"}, {"gpu-memory": "2000"}, ("main", ["g"], None)),
        ({GROUP: "g"}, {}, None),
        ({GROUP: "g"}, {"gpu-fraction": "1"}, None),
        (
            {f"{GROUP}/g": "g", f"{GROUP}/h": "h"},
            {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"},
            ("main", ["g", "h"], 0.5),
        ),
        (
            {GROUP: "g"},
            {"gpu-fraction": ".25", "gpu-fraction-container-name": "b"},
            ("b", ["g"], 0.25),
        ),
        ({f"{GROUP}/g": "g", f"{GROUP}/h": "h"}, {"gpu-fraction": "0.5"}, None),
        ({GROUP: "g"}, {"gpu-fraction": "7"}, None),
        ({GROUP: "g"}, {"gpu-fraction-container-name": "x"}, None),
    ],
)
def test_t21_a_pod_shares_the_gpus_of_the_reservation_pod_of_its_group(
    labels: dict[str, str],
    annotations: dict[str, str],
    expected: tuple[str, list[str], float | None] | None,
) -> None:
    spec = {"containers": [raw_container(), raw_container("b")]}
    pod, omissions = map_pod(raw_pod(labels=labels, annotations=annotations, spec=spec))
    assert pod is not None
    assert pod.reserves == ()
    if expected is None:
        assert (pod.claims, len(omissions)) == ((), 1)
        return
    [claim] = pod.claims
    devices = [RawDeviceId("reserved", group) for group in expected[1]]
    assert (claim.subject.container, list(claim.devices), claim.share) == (
        expected[0],
        devices,
        expected[2],
    )


@pytest.mark.parametrize(
    ("namespace", "reserves"),
    [("kai-resource-reservation", ("g",)), ("runai-reservation", ("g",)), ("ml", ())],
)
def test_t21_only_a_pod_in_a_reservation_namespace_reserves(
    namespace: str, reserves: tuple[str, ...]
) -> None:
    annotations = {RESERVED: A, "gpu-fraction": "0.5"}
    raw = raw_pod(labels={GROUP: "g"}, annotations=annotations, metadata={"namespace": namespace})
    pod, _ = map_pod(raw)
    assert pod is not None
    assert pod.reserves == reserves
    assert [claim.devices for claim in pod.claims] == [
        (RawDeviceId("uuid", A),) if reserves else (RawDeviceId("reserved", "g"),)
    ]
    pod, _ = map_pod(raw, schedulers=("hami",))
    assert pod is not None
    assert (pod.reserves, pod.claims) == ((), ())
