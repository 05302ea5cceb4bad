"""Which pods' annotations are believed, and whose."""

from typing import Any

import pytest

from tests.sources.pods.annotations import (
    ALIYUN,
    DECIDED,
    HAMI,
    INDEX,
    OURS,
    VGPU,
    A,
    gpu,
    koordinator,
)
from tests.sources.pods.raws import distilled, distilled_with_left, raw_asking, raw_pod

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
        ({}, False),
        (raw_asking("cpu"), False),
        (raw_asking("kubernetes.io/batch-cpu"), False),
        (raw_asking("nvidia.com/gpu"), True),
        (raw_asking("aliyun.com/gpu-mem"), True),
    ],
)
@pytest.mark.parametrize("broken", [False, True])
def test_annotations_are_read_where_devices_are_asked_for(
    scheduler: str, spec: dict[str, Any], held: bool, broken: bool
) -> None:
    """A pod that was copied or restored brings annotations of another one with it."""
    annotations = {key: "{" if broken else value for key, value in EVERY[scheduler].items()}
    raw = raw_pod(spec=spec, annotations=annotations)
    pod, left = distilled_with_left(raw, device_annotations=(OURS,))
    assert pod is not None
    assert bool(pod.claims) is (held and not broken)
    assert bool(left) is (held and broken)


@pytest.mark.parametrize(
    "schedulers", [(), ("hami",), ("gpushare", "koordinator"), tuple(EVERY)[:-1]]
)
def test_schedulers_that_are_not_named_are_not_read(schedulers: tuple[str, ...]) -> None:
    every = {key: value for told in EVERY.values() for key, value in told.items()}
    raw = raw_pod(spec=raw_asking(), annotations=every)
    pod = distilled(raw, schedulers=schedulers, device_annotations=(OURS,))
    said = {claim.origin.detail for claim in pod.claims}
    wanted = {key for name in (*schedulers, "") for key in EVERY[name]} - {DECIDED}
    assert said == wanted
    # Nor are they complained of.
    broken = raw_pod(spec=raw_asking(), annotations=dict.fromkeys(every, "{"))
    _, left = distilled_with_left(broken, schedulers=schedulers)
    complaints = {one.annotation for told in left for one in told.complaints}
    assert complaints == {key for name in schedulers for key in EVERY[name]} - {DECIDED}


@pytest.mark.parametrize("scheduler", ["koordinator", "gpushare", ""])
@pytest.mark.parametrize(
    "spec",
    [
        {"initContainers": raw_asking()["containers"]},
        {"resourceClaims": [{"name": "gpu"}]},
    ],
)
def test_a_pod_as_a_whole_may_ask_in_any_way(scheduler: str, spec: dict[str, Any]) -> None:
    pod = distilled(raw_pod(spec=spec, annotations=EVERY[scheduler]), device_annotations=(OURS,))
    assert pod.claims
