"""The rule of trust: its table, and the faults that it answers, through the readers of raw pods."""

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.join.trust import AMONG_PODS, TRUST, as_table
from pipeline.model import NS, Evidence, PodsReplaced
from tests.pipeline.join.cluster import (
    GOOD_FOR,
    GPUS,
    A,
    B,
    Cluster,
    listed,
    offer,
    ran,
    uid_of,
)
from tests.sources.pods.raws import distilled, raw_container, raw_pod

DOCS = Path(__file__).parents[3] / "docs"
KOORDINATOR = "scheduling.koordinator.sh/device-allocated"


@pytest.mark.parametrize("page", ["attribution.md", "security.md"])
def test_the_pages_have_the_table(page: str) -> None:
    assert as_table() in (DOCS / page).read_text(encoding="utf-8")


def test_each_kind_of_evidence_has_one_row_and_a_rank_of_its_own() -> None:
    assert sorted(trust.evidence for trust in TRUST) == sorted(Evidence)
    assert sorted(AMONG_PODS.values()) == list(range(1, len(Evidence) + 1))


def raw(name: str, limits: dict[str, str], annotations: dict[str, str] | None = None) -> Any:
    spec = {"containers": [raw_container(resources={"limits": limits})]}
    return raw_pod(name, uid=uid_of(name), spec=spec, annotations=annotations)


def node(*raws: Any) -> Cluster:
    cluster = Cluster()
    pods = tuple(distilled(one) for one in raws)
    cluster.seconds = 1
    cluster.tell("pods", PodsReplaced(pods, GOOD_FOR * NS))
    cluster.tell("kubelet", offer(gpu=[gpu.uuid for gpu in GPUS]))
    return cluster


def allocated(*minors: int, core: str = "100", **more: str) -> dict[str, str]:
    entries = [
        {"minor": minor, "resources": {"koordinator.sh/gpu-core": core}, **more} for minor in minors
    ]
    return {KOORDINATOR: json.dumps({"gpu": entries})}


GPU = {"nvidia.com/gpu": "1"}


@pytest.mark.parametrize(
    ("limits", "annotations", "given", "conflicts"),
    [
        pytest.param(GPU, allocated(3, id=A), [B], {A: 1}, id="a: another's GPU"),
        pytest.param(GPU, allocated(2, core="1", id=B), [B], {}, id="b: its own, shrunk"),
        pytest.param({"example.com/fuse": "1"}, allocated(3, id=A), [], {}, id="c: none requested"),
        pytest.param({"example.com/fuse": "1"}, allocated(0, 1, 2, 3), [], {}, id="d: all of them"),
        pytest.param(
            {"koordinator.sh/gpu.shared": "4"},
            allocated(0, 1, 2, 3),
            [],
            {A: 1},
            id="all of them, requested of a scheduler that manages none",
        ),
    ],
)
def test_t01_an_annotation_moves_no_gpu_that_the_kubelet_gave(
    limits: dict[str, str], annotations: dict[str, str], given: list[str], conflicts: dict[str, int]
) -> None:
    cluster = node(raw("victim", GPU), raw("evil", limits, annotations))
    evil = [listed("evil", *given)] if given else []
    cluster.kubelet(listed("victim", A), *evil)
    assert cluster.held() == {A: ["victim/main"]} | {uuid: ["evil/main"] for uuid in given}
    assert [cluster.shares(uuid) for uuid in cluster.held()] == [[1.0]] * len(cluster.held())
    assert cluster.conflicts() == conflicts
    assert cluster.on(A).contradicting == (("ml/evil",) if conflicts else ())


@pytest.mark.parametrize("given", [True, False])
def test_t02_a_variable_takes_no_device_from_the_nodes_really_given(given: bool) -> None:
    cluster = Cluster()
    cluster.kubelet()
    evil = [ran("evil", B)] if given else []
    cluster.runtime(
        ran("victim", A), ran("evil", A, evidence=Evidence.RUNTIME_ENV, container_id="e"), *evil
    )
    assert cluster.held() == {A: ["victim/main"]} | ({B: ["evil/main"]} if given else {})
    assert cluster.conflicts() == {A: 1}
    assert [one.subject.pod for one in cluster.on(A).access] == ["evil"]
