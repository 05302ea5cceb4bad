"""Which annotations are read: it depends on the pod's requests, the options and the node."""

from typing import Any

import pytest

from tests.sources.pods.annotations import (
    ALIYUN,
    ALIYUN_DEV,
    ALIYUN_POD,
    CONFIGURED,
    DECIDED,
    HAMI,
    INDEX,
    VGPU,
    A,
    B,
    gpu,
    koordinator,
)
from tests.sources.pods.pod_objects import (
    map_pod,
    mapped,
    raw_container,
    raw_pod,
    spec_requesting,
)

ANNOTATIONS = {
    "koordinator": koordinator(gpu(3, "50")),
    "hami": {HAMI: f"{A},NVIDIA,3000,50:;"},
    "volcano": {VGPU: f"{A},NVIDIA,3000,50:", INDEX: "0", DECIDED: "1"},
    "gpushare": {ALIYUN: "3"},
    "": {CONFIGURED: f'{{"nvidia.com/gpu": "{A}"}}'},
}


@pytest.mark.parametrize("scheduler", ANNOTATIONS)
@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, set()),
        (spec_requesting("cpu"), set()),
        (spec_requesting("kubernetes.io/batch-cpu"), set()),
        (spec_requesting("nvidia.com/gpu"), {"koordinator", "hami", ""}),
        (spec_requesting("nvidia.com/gpu", "0"), set()),
        (spec_requesting("nvidia.com/gpumem"), {"hami", ""}),
        (spec_requesting("koordinator.sh/gpu-core"), {"koordinator", ""}),
        (spec_requesting("volcano.sh/vgpu-number"), {"volcano", ""}),
        (spec_requesting("aliyun.com/gpu-mem"), {"gpushare", ""}),
        (spec_requesting("example.com/fuse"), {""}),
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
    scheduler: str, spec: dict[str, Any], expected: set[str], broken: bool
) -> None:
    """A pod that was copied or restored may have annotations of another pod."""
    annotations = {key: "{" if broken else value for key, value in ANNOTATIONS[scheduler].items()}
    raw = raw_pod(spec=spec, annotations=annotations)
    pod, omissions = map_pod(raw, device_annotations=(CONFIGURED,))
    assert pod is not None
    assert bool(pod.claims) is (scheduler in expected and not broken)
    # Problems of annotations are reported only for pods that request devices.
    assert bool(omissions) is (bool(expected) and (broken or scheduler not in expected))


ALL_RESOURCES = {
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
    "schedulers", [(), ("hami",), ("gpushare", "koordinator"), tuple(ANNOTATIONS)[:-1]]
)
def test_annotations_of_schedulers_that_are_not_configured_are_ignored(
    schedulers: tuple[str, ...],
) -> None:
    every = {key: value for each in ANNOTATIONS.values() for key, value in each.items()}
    raw = raw_pod(spec=ALL_RESOURCES, annotations=every)
    pod = mapped(raw, schedulers=schedulers, device_annotations=(CONFIGURED,))
    found = {claim.origin.detail for claim in pod.claims}
    expected = {key for name in (*schedulers, "") for key in ANNOTATIONS[name]} - {DECIDED}
    assert found == expected
    # Problems of these annotations are not reported either.
    broken = raw_pod(spec=spec_requesting(), annotations=dict.fromkeys(every, "{"))
    _, omissions = map_pod(broken, schedulers=schedulers)
    complaints = {annotation for each in omissions for annotation in each.problems}
    assert complaints == {key for name in schedulers for key in ANNOTATIONS[name]} - {DECIDED}


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
    pod, omissions = map_pod(raw_pod(spec=spec, annotations=annotation))
    assert pod is not None
    assert [claim.share for claim in pod.claims] == ([] if share is None else [share])
    assert bool(omissions) is (share is None and annotation != {})


CORE, SHARED = "koordinator.sh/gpu-core", "koordinator.sh/gpu.shared"
MEMORY = "koordinator.sh/gpu-memory"


@pytest.mark.parametrize(
    ("init", "containers", "annotation", "share"),
    [
        # Twice 0.5 GPU is one GPU.
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
        # Init containers end before the other containers start.
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
            id="next to a sidecar",
        ),
    ],
)
def test_t01_a_pod_claims_at_most_the_sum_of_its_containers_requests(
    init: tuple[dict[str, str], ...],
    containers: tuple[dict[str, str], ...],
    annotation: dict[str, str],
    share: float | None,
) -> None:
    def limited_container(kind: str, number: int, limits: dict[str, str]) -> dict[str, Any]:
        sidecar = {"restartPolicy": limits[""]} if "" in limits else {}
        own = {name: amount for name, amount in limits.items() if name}
        return raw_container(f"{kind}{number}", resources={"limits": own}, **sidecar)

    spec = {
        "initContainers": [
            limited_container("i", number, limits) for number, limits in enumerate(init)
        ],
        "containers": [
            limited_container("c", number, limits) for number, limits in enumerate(containers)
        ],
    }
    pod, omissions = map_pod(raw_pod(spec=spec, annotations=annotation))
    assert pod is not None
    found = {claim.share for claim in pod.claims}
    assert found == (set() if share is None else {share})
    assert bool(omissions) is (share is None)


@pytest.mark.parametrize(
    ("key", "resource", "annotation"),
    [
        ("hami.io/vgpu-node", "nvidia.com/gpu", ANNOTATIONS["hami"]),
        ("volcano.sh/vgpu-node", "volcano.sh/vgpu-number", ANNOTATIONS["volcano"]),
    ],
)
def test_t20_an_annotation_for_another_node_does_not_count(
    key: str, resource: str, annotation: dict[str, str]
) -> None:
    spec = spec_requesting(resource)
    for node, counts in (("node-1", True), ("node-2", False)):
        raw = raw_pod(spec=spec, annotations={**annotation, key: node})
        pod, omissions = map_pod(raw)
        assert pod is not None
        assert bool(pod.claims) is counts
        assert bool(omissions) is not counts


def test_the_resources_of_a_scheduler_can_be_configured() -> None:
    raw = raw_pod(spec=spec_requesting("example.com/vgpu", "1"), annotations=ANNOTATIONS["hami"])
    assert mapped(raw).claims == ()
    assert len(mapped(raw, hami_resources=("example.com/vgpu",)).claims) == 1
