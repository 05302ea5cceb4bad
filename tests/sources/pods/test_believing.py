"""Which pods' annotations are believed, and whose."""

from typing import Any

import pytest

from tests.sources.pods.annotations import (
    ALIYUN,
    ALIYUN_DEV,
    ALIYUN_POD,
    DECIDED,
    HAMI,
    INDEX,
    OURS,
    VGPU,
    A,
    B,
    gpu,
    koordinator,
)
from tests.sources.pods.raws import (
    distilled,
    distilled_with_left,
    raw_asking,
    raw_container,
    raw_pod,
)

EVERY = {
    "koordinator": koordinator(gpu(3, "50")),
    "hami": {HAMI: f"{A},NVIDIA,3000,50:;"},
    "volcano": {VGPU: f"{A},NVIDIA,3000,50:", INDEX: "0", DECIDED: "1"},
    "gpushare": {ALIYUN: "3"},
    "": {OURS: f'{{"nvidia.com/gpu": "{A}"}}'},
}


@pytest.mark.parametrize("scheduler", EVERY)
@pytest.mark.parametrize(
    ("spec", "held"),
    [
        ({}, set()),
        (raw_asking("cpu"), set()),
        (raw_asking("kubernetes.io/batch-cpu"), set()),
        (raw_asking("nvidia.com/gpu"), {"koordinator", "hami", ""}),
        (raw_asking("nvidia.com/gpu", "0"), set()),
        (raw_asking("nvidia.com/gpumem"), {"hami", ""}),
        (raw_asking("koordinator.sh/gpu-core"), {"koordinator", ""}),
        (raw_asking("volcano.sh/vgpu-number"), {"volcano", ""}),
        (raw_asking("aliyun.com/gpu-mem"), {"gpushare", ""}),
        (raw_asking("example.com/fuse"), {""}),
        (
            {
                "initContainers": [
                    raw_container("prepare", resources={"limits": {"koordinator.sh/gpu-core": 50}})
                ]
            },
            {"koordinator", ""},
        ),
        ({"resourceClaims": [{"name": "gpu"}]}, {""}),
    ],
)
@pytest.mark.parametrize("broken", [False, True])
def test_t01_annotations_count_where_their_schedulers_resource_is_requested(
    scheduler: str, spec: dict[str, Any], held: set[str], broken: bool
) -> None:
    """A pod that was copied or restored brings annotations of another one with it."""
    annotations = {key: "{" if broken else value for key, value in EVERY[scheduler].items()}
    raw = raw_pod(spec=spec, annotations=annotations)
    pod, left = distilled_with_left(raw, device_annotations=(OURS,))
    assert pod is not None
    assert bool(pod.claims) is (scheduler in held and not broken)
    # A pod that requests devices is told what is wrong with its annotations.
    assert bool(left) is (bool(held) and (broken or scheduler not in held))


ALL = {
    "containers": [
        raw_container(
            resources={
                "limits": {
                    "koordinator.sh/gpu-core": "50",
                    "nvidia.com/gpu": "1",
                    "volcano.sh/vgpu-number": "1",
                    "aliyun.com/gpu-mem": "4",
                }
            }
        )
    ]
}


@pytest.mark.parametrize(
    "schedulers", [(), ("hami",), ("gpushare", "koordinator"), tuple(EVERY)[:-1]]
)
def test_schedulers_that_are_not_named_are_not_read(schedulers: tuple[str, ...]) -> None:
    every = {key: value for given_out in EVERY.values() for key, value in given_out.items()}
    raw = raw_pod(spec=ALL, annotations=every)
    pod = distilled(raw, schedulers=schedulers, device_annotations=(OURS,))
    said = {claim.origin.detail for claim in pod.claims}
    wanted = {key for name in (*schedulers, "") for key in EVERY[name]} - {DECIDED}
    assert said == wanted
    # Nor are they complained of.
    broken = raw_pod(spec=raw_asking(), annotations=dict.fromkeys(every, "{"))
    _, left = distilled_with_left(broken, schedulers=schedulers)
    complaints = {one.annotation for given_out in left for one in given_out.complaints}
    assert complaints == {key for name in schedulers for key in EVERY[name]} - {DECIDED}


@pytest.mark.parametrize(
    ("requests", "annotation", "share"),
    [
        ({"koordinator.sh/gpu-core": "50"}, koordinator(gpu(1, "50")), 0.5),
        ({"koordinator.sh/gpu-core": "50"}, koordinator(gpu(1, "100")), 0.5),
        ({"koordinator.sh/gpu-core": "50"}, koordinator(gpu(1, "10")), 0.1),
        ({"koordinator.sh/gpu-core": "200"}, koordinator(gpu(1, "100"), gpu(2, "100")), 1.0),
        ({"koordinator.sh/gpu-core": "100"}, koordinator(gpu(1, "50"), gpu(2, "50")), None),
        (
            {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu.shared": "2"},
            koordinator(gpu(1, "50"), gpu(2, "50")),
            0.5,
        ),
        ({"koordinator.sh/gpu-memory": "16Gi"}, koordinator(gpu(1, "30")), 0.3),
        ({"kubernetes.io/gpu-core": "50"}, koordinator(gpu(1, "100")), 0.5),
        ({"kubernetes.io/gpu-memory-ratio": "50"}, koordinator(gpu(1, "100")), 0.5),
        ({"kubernetes.io/gpu": "200"}, koordinator(gpu(1, "100"), gpu(2, "100")), 1.0),
        ({"kubernetes.io/gpu-memory": "16Gi"}, koordinator(gpu(1), gpu(2)), None),
        ({"kubernetes.io/batch-cpu": "50"}, {}, None),
        ({"koordinator.sh/gpu-memory": "16Gi"}, koordinator(gpu(1), gpu(2)), None),
        ({"nvidia.com/gpu": "1", "nvidia.com/gpucores": "30"}, {HAMI: f"{A},N,1,90:;"}, 0.3),
        ({"nvidia.com/gpu": "1"}, {HAMI: f"{A},N,1,30:{B},N,1,30:;"}, None),
        ({"aliyun.com/gpu-mem": "3"}, {ALIYUN: "3", ALIYUN_POD: "3", ALIYUN_DEV: "12"}, 0.25),
    ],
)
def test_t01_an_annotation_counts_up_to_the_number_and_share_requested(
    requests: dict[str, str], annotation: dict[str, str], share: float | None
) -> None:
    spec = {"containers": [raw_container(resources={"limits": requests})]}
    pod, left = distilled_with_left(raw_pod(spec=spec, annotations=annotation))
    assert pod is not None
    assert [claim.share for claim in pod.claims] == ([] if share is None else [share])
    assert bool(left) is (share is None and annotation != {})


CORE, SHARED = "koordinator.sh/gpu-core", "koordinator.sh/gpu.shared"
MEMORY = "koordinator.sh/gpu-memory"


@pytest.mark.parametrize(
    ("init", "asked", "annotation", "share"),
    [
        # Twice 50 hundredths are one GPU.
        pytest.param((), ({CORE: "50"}, {CORE: "50"}), koordinator(gpu(1, "100")), 1.0, id="sum"),
        pytest.param((), ({CORE: "50"}, {CORE: "50"}), koordinator(gpu(1, "50")), 0.5, id="less"),
        pytest.param(
            (),
            ({CORE: "50"}, {CORE: "50"}),
            koordinator(gpu(1, "50"), gpu(2, "50")),
            None,
            id="no two halves",
        ),
        pytest.param((), ({CORE: "30"}, {CORE: "20"}), koordinator(gpu(1, "100")), 0.5, id="cut"),
        pytest.param((), ({CORE: "30"}, {}), koordinator(gpu(1, "100")), 0.3, id="one of two"),
        pytest.param(
            (),
            ({CORE: "100"}, {CORE: "100"}),
            koordinator(gpu(1, "100"), gpu(2, "100")),
            1.0,
            id="two",
        ),
        pytest.param(
            (),
            ({CORE: "50", SHARED: "1"}, {CORE: "50", SHARED: "1"}),
            koordinator(gpu(1, "50"), gpu(2, "50")),
            0.5,
            id="two shared ones",
        ),
        pytest.param(
            (), ({MEMORY: "8Gi"}, {MEMORY: "8Gi"}), koordinator(gpu(1), gpu(2)), None, id="memory"
        ),
        # Init containers end before the others begin.
        pytest.param(({CORE: "50"},), ({CORE: "50"},), koordinator(gpu(1, "100")), 0.5, id="init"),
        pytest.param(({CORE: "80"},), ({CORE: "50"},), koordinator(gpu(1, "100")), 0.8, id="more"),
        pytest.param(
            ({CORE: "50"}, {CORE: "60"}), ({},), koordinator(gpu(1, "100")), 0.6, id="one by one"
        ),
        pytest.param(
            ({CORE: "20", "": "Always"}, {CORE: "60"}),
            ({CORE: "30"},),
            koordinator(gpu(1, "100")),
            0.8,
            id="beside a sidecar",
        ),
    ],
)
def test_t01_a_pod_claims_no_more_than_its_containers_request_in_sum(
    init: tuple[dict[str, str], ...],
    asked: tuple[dict[str, str], ...],
    annotation: dict[str, str],
    share: float | None,
) -> None:
    def made(kind: str, number: int, limits: dict[str, str]) -> dict[str, Any]:
        sidecar = {"restartPolicy": limits[""]} if "" in limits else {}
        own = {name: amount for name, amount in limits.items() if name}
        return raw_container(f"{kind}{number}", resources={"limits": own}, **sidecar)

    spec = {
        "initContainers": [made("i", number, limits) for number, limits in enumerate(init)],
        "containers": [made("c", number, limits) for number, limits in enumerate(asked)],
    }
    pod, left = distilled_with_left(raw_pod(spec=spec, annotations=annotation))
    assert pod is not None
    found = {claim.share for claim in pod.claims}
    assert found == (set() if share is None else {share})
    assert bool(left) is (share is None)


@pytest.mark.parametrize(
    ("key", "resource", "annotation"),
    [
        ("hami.io/vgpu-node", "nvidia.com/gpu", EVERY["hami"]),
        ("volcano.sh/vgpu-node", "volcano.sh/vgpu-number", EVERY["volcano"]),
    ],
)
def test_t20_an_annotation_for_another_node_does_not_count(
    key: str, resource: str, annotation: dict[str, str]
) -> None:
    spec = raw_asking(resource)
    for node, counts in (("node-1", True), ("node-2", False)):
        raw = raw_pod(spec=spec, annotations={**annotation, key: node})
        pod, left = distilled_with_left(raw)
        assert pod is not None
        assert bool(pod.claims) is counts
        assert bool(left) is not counts


def test_the_resources_of_a_scheduler_are_an_option() -> None:
    raw = raw_pod(spec=raw_asking("example.com/vgpu", "1"), annotations=EVERY["hami"])
    assert distilled(raw).claims == ()
    assert len(distilled(raw, hami_resources=("example.com/vgpu",)).claims) == 1
