"""What a container that is being made gets, and how nothing keeps it from being made."""

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest

from pipeline.component.accepted_annotations import AcceptedAnnotations, Gpu
from pipeline.model import Claim, Evidence, Origin, PartialRef, Pod, PodInfo, RawDeviceId
from sources.nri.container_table import ContainerTable
from sources.nri.koordinator_injection import koordinator_adjustment
from sources.nri.plugin import Inject
from tests.fakes.nri import wire
from tests.sources.nri.talking import Talk

KOORDINATOR = "scheduling.koordinator.sh/device-allocated"
ENV = "NVIDIA_VISIBLE_DEVICES"
RDMA = '{"rdma": [{"minor": 0}]}'


def gpus(*minors: object) -> dict[str, str]:
    return {KOORDINATOR: json.dumps({"gpu": [{"minor": minor} for minor in minors]})}


GPU = "GPU-0000000{}-5eed-4a5e-9c0d-000000000000"


class Trusting(AcceptedAnnotations):
    """A node whose GPUs are all a scheduler's, and a pod that may have what it names."""

    def __init__(self) -> None:
        super().__init__()
        self.gpus = {minor: Gpu(GPU.format(minor), False, frozenset()) for minor in range(10)}

    def devices(self, uid: str, annotation: str) -> frozenset[RawDeviceId]:
        return Anything()


class Anything(frozenset[RawDeviceId]):
    """Equal to every set, and not empty."""

    def __bool__(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, frozenset)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return 0


def injecting() -> Inject:
    """Return what injects where a source of pods has accepted the annotation."""
    return partial(koordinator_adjustment, Trusting())


def adjusted(talk: Talk, annotations: Mapping[str, str], **of: Any) -> dict[str, str]:
    """Return the variables that a new container gets."""
    code, answer = talk.call(
        "CreateContainer", wire.subject(wire.pod(annotations=annotations), wire.container(**of))
    )
    assert code == 0
    assert wire.fields(answer).keys() <= {1}, "neither updates nor evictions"
    adjustment = wire.one(answer, 1)
    assert wire.fields(adjustment).keys() <= {4}, "nothing but variables"
    pairs = [pair for pair in wire.fields(adjustment).get(4, []) if isinstance(pair, bytes)]
    return {wire.one(pair, 1).decode(): wire.one(pair, 2).decode() for pair in pairs}


@pytest.mark.parametrize(
    ("annotations", "of", "expected"),
    [
        pytest.param(gpus(1), {}, "1", id="one"),
        pytest.param(gpus(3, "1"), {}, "3,1", id="several, as they are named"),
        pytest.param(gpus(1, 1), {}, "1", id="the same twice"),
        pytest.param(
            {KOORDINATOR: json.dumps({"gpu": [{"minor": 2, "id": GPU.format(2)}]})},
            {},
            "2",
            id="by minor number",
        ),
        pytest.param(gpus(1), {"env": ["CUDA_VERSION=12"]}, "1", id="other variables are fine"),
        pytest.param(gpus(1), {"env": [f"{ENV}=0"]}, None, id="another's value"),
        pytest.param(gpus(1), {"env": [f"{ENV}=1"]}, None, id="the same value by another"),
        pytest.param(gpus(1), {"env": [f"{ENV}="]}, None, id="empty, and there"),
        pytest.param(gpus(1), {"cdi": ["nvidia.com/gpu=0"]}, None, id="given by CDI already"),
        pytest.param(
            gpus(1), {"mounts": ["/var/run/nvidia-container-devices/GPU-x"]}, None, id="by mounts"
        ),
        pytest.param({}, {}, None, id="no annotation"),
        pytest.param(gpus(), {}, None, id="no GPUs"),
        pytest.param({KOORDINATOR: RDMA}, {}, None, id="a network card"),
    ],
)
def test_koordinators_choice(
    annotations: Mapping[str, str], of: dict[str, Any], expected: str | None
) -> None:
    talk = Talk(injecting())
    assert adjusted(talk, annotations, **of) == ({} if expected is None else {ENV: expected})
    assert talk.news().warnings == []


def test_an_images_all_gives_way_and_could_be_no_conflict_if_it_were_another_plugins() -> None:
    """A variable that is taken away and set anew is nobody else's any more."""
    talk = Talk(injecting())
    found = adjusted(talk, gpus(1, 2), env=[f"{ENV}=all"])
    assert list(found.items()) == [(f"-{ENV}", ""), (ENV, "1,2")]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("", 'expected JSON, found ""'),
        ("{", 'expected JSON, found "{"'),
        ("[" * 50_000, "expected JSON"),
        ('{"gpu": [{"id": "GPU-1"}]}', '.gpu[0].minor: expected a number, found "null"'),
        ('{"gpu": [{"minor": "0,1"}]}', '.gpu[0].minor: expected a number, found "0,1"'),
        ('{"gpu": [{"minor": 1, "id": "x y"}]}', ".gpu[0].id: expected a uuid of a GPU"),
        ('{"gpu": [{"minor": -1}]}', '.gpu[0].minor: expected a number, found "-1"'),
        (" " * 70_000, "is longer than 65536 characters"),
        (json.dumps({"gpu": [{"minor": n} for n in range(2000)]}), "more than 1024 devices"),
    ],
)
def test_a_wrong_annotation_is_reported_once_and_costs_no_container(value: str, text: str) -> None:
    talk = Talk(injecting())
    for _ in range(3):
        assert adjusted(talk, {KOORDINATOR: value}) == {}
    (complaint,) = talk.news().warnings
    assert complaint.startswith(f"pod ml/train-0: annotation {KOORDINATOR}: ")
    assert text in complaint
    assert complaint.endswith("; no GPU is injected")


@pytest.mark.parametrize("payload", [b"\xff", wire.subject(b"\xff"), wire.subject(b"", b"\xff")])
def test_what_cannot_be_read_is_answered_with_nothing(payload: bytes) -> None:
    assert Talk(injecting()).call("CreateContainer", payload) == (0, b"")


def test_a_fault_of_ours_costs_no_container() -> None:
    def broken(payload: bytes, roster: ContainerTable) -> bytes:
        raise ZeroDivisionError("by zero")

    talk = Talk(broken)
    for _ in range(3):
        assert talk.call("CreateContainer") == (0, b"")
    assert talk.news().warnings == ["no GPU is injected: ZeroDivisionError: by zero"]


def test_an_observer_injects_nothing() -> None:
    assert adjusted(Talk(), gpus(1)) == {}


def accepting(*claims: Claim) -> AcceptedAnnotations:
    accepted = AcceptedAnnotations()
    accepted.gpus = Trusting().gpus
    accepted.replace("pods", [Pod(PodInfo("uid-train-0", "ml", "train-0"), claims=claims)])
    return accepted


def allowed(*minors: int) -> Claim:
    return Claim(
        PartialRef("ml", "train-0", "", "uid-train-0"),
        tuple(RawDeviceId("minor", str(minor)) for minor in minors),
        None,
        None,
        Origin(Evidence.SCHEDULER_ANNOTATION, KOORDINATOR),
    )


@pytest.mark.parametrize(
    ("accepted", "why"),
    [
        pytest.param(
            AcceptedAnnotations(), "the pods source has not reported this pod yet", id="unknown"
        ),
        pytest.param(accepting(), "the pod does not request these GPUs", id="requests nothing"),
        pytest.param(accepting(allowed(1)), "names other GPUs", id="others, fewer"),
        pytest.param(accepting(allowed(1, 3)), "names other GPUs", id="others, as many"),
    ],
)
def test_t03_nothing_is_injected_into_a_pod_that_does_not_request_it(
    accepted: AcceptedAnnotations, why: str
) -> None:
    talk = Talk(partial(koordinator_adjustment, accepted))
    for _ in range(2):
        assert adjusted(talk, gpus(1, 2)) == {}
    (complaint,) = talk.news().warnings
    assert why in complaint


def by_id(minor: int, uuid: str) -> dict[str, str]:
    return {KOORDINATOR: json.dumps({"gpu": [{"minor": minor, "id": uuid}]})}


A, B = GPU.format(1), GPU.format(2)
NO_ONE: frozenset[str] = frozenset()


@pytest.mark.parametrize(
    ("known", "annotation", "why"),
    [
        (None, gpus(1), "not all sources have reported which"),
        ({}, gpus(1), "names minor number 1, which is not a known GPU"),
        ({1: Gpu(A, True, NO_ONE)}, gpus(1), "which a device plugin or a DRA driver manages"),
        ({1: Gpu(A, False, frozenset({"ml/b"}))}, gpus(1), "that is allocated to another pod"),
        ({1: Gpu(A, False, frozenset({"uid-b"}))}, gpus(1), "that is allocated to another pod"),
        ({1: Gpu(A, False, NO_ONE)}, by_id(1, B), f"names minor number 1 as {B}, but it is {A}"),
        ({1: Gpu(A, False, frozenset({"ml/train-0"}))}, gpus(1), ""),
        ({1: Gpu(A, False, frozenset({"uid-train-0"}))}, by_id(1, A.upper()), ""),
    ],
)
def test_t03_a_gpu_that_is_no_scheduler_s_or_another_pod_s_is_not_injected(
    known: dict[int, Gpu] | None, annotation: dict[str, str], why: str
) -> None:
    accepted = Trusting()
    accepted.gpus = known
    talk = Talk(partial(koordinator_adjustment, accepted))
    for _ in range(2):
        assert adjusted(talk, annotation) == ({} if why else {ENV: "1"})
    assert [why in complaint for complaint in talk.news().warnings] == [True] * bool(why)


def test_t03_one_number_beside_two_ids_is_no_choice() -> None:
    both = [{"minor": 1, "id": uuid} for uuid in (A, B)]
    talk = Talk(injecting())
    assert adjusted(talk, {KOORDINATOR: json.dumps({"gpu": both})}) == {}
    (complaint,) = talk.news().warnings
    assert ".gpu[1]: minor 1 has two different ids" in complaint


def test_t03_a_pod_that_requests_it_gets_it() -> None:
    assert adjusted(
        Talk(partial(koordinator_adjustment, accepting(allowed(1, 2)))), gpus(1, 2)
    ) == {ENV: "1,2"}
