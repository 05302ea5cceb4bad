"""What is injected into a new container, and that nothing prevents its creation."""

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest

from pipeline.component.accepted_annotations import AcceptedAnnotations, Gpu
from pipeline.model import Claim, Evidence, Origin, PartialRef, Pod, PodInfo, RawDeviceId
from sources.nri.container_table import ContainerTable
from sources.nri.koordinator_adjustment import koordinator_adjustment
from sources.nri.plugin import Inject
from tests.fakes.nri import wire
from tests.sources.nri.plugin_connection import PluginConnection

KOORDINATOR = "scheduling.koordinator.sh/device-allocated"
ENV = "NVIDIA_VISIBLE_DEVICES"
RDMA = '{"rdma": [{"minor": 0}]}'


def gpus(*minors: object) -> dict[str, str]:
    return {KOORDINATOR: json.dumps({"gpu": [{"minor": minor} for minor in minors]})}


GPU = "GPU-0000000{}-5eed-4a5e-9c0d-000000000000"


class AcceptsAnything(AcceptedAnnotations):
    """All GPUs of the node belong to the scheduler, and each annotation is accepted."""

    def __init__(self) -> None:
        super().__init__()
        self.gpus = {minor: Gpu(GPU.format(minor), False, frozenset()) for minor in range(10)}

    def devices(self, uid: str, annotation: str) -> frozenset[RawDeviceId]:
        return EqualsEverySet()


class EqualsEverySet(frozenset[RawDeviceId]):
    """Equal to every set, and not empty."""

    def __bool__(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, frozenset)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return 0


def inject_anything() -> Inject:
    """Return an injection for pods whose annotation is accepted."""
    return partial(koordinator_adjustment, AcceptsAnything())


def injected_variables(
    connection: PluginConnection, annotations: Mapping[str, str], **container: Any
) -> dict[str, str]:
    """Return the variables that are injected into a new container."""
    code, response = connection.call(
        "CreateContainer",
        wire.subject(wire.pod(annotations=annotations), wire.container(**container)),
    )
    assert code == 0
    assert wire.fields(response).keys() <= {1}, "no updates or evictions"
    adjustment = wire.one(response, 1)
    assert wire.fields(adjustment).keys() <= {4}, "only variables"
    pairs = [pair for pair in wire.fields(adjustment).get(4, []) if isinstance(pair, bytes)]
    return {wire.one(pair, 1).decode(): wire.one(pair, 2).decode() for pair in pairs}


@pytest.mark.parametrize(
    ("annotations", "container", "expected"),
    [
        pytest.param(gpus(1), {}, "1", id="one GPU"),
        pytest.param(gpus(3, "1"), {}, "3,1", id="several GPUs, in the annotation's order"),
        pytest.param(gpus(1, 1), {}, "1", id="the same GPU twice"),
        pytest.param(
            {KOORDINATOR: json.dumps({"gpu": [{"minor": 2, "id": GPU.format(2)}]})},
            {},
            "2",
            id="by minor number",
        ),
        pytest.param(gpus(1), {"env": ["CUDA_VERSION=12"]}, "1", id="with other variables"),
        pytest.param(gpus(1), {"env": [f"{ENV}=0"]}, None, id="variable set to another value"),
        pytest.param(gpus(1), {"env": [f"{ENV}=1"]}, None, id="variable set to the same value"),
        pytest.param(gpus(1), {"env": [f"{ENV}="]}, None, id="variable set to an empty value"),
        pytest.param(gpus(1), {"cdi": ["nvidia.com/gpu=0"]}, None, id="device by CDI"),
        pytest.param(
            gpus(1), {"mounts": ["/var/run/nvidia-container-devices/GPU-x"]}, None, id="by mount"
        ),
        pytest.param({}, {}, None, id="no annotation"),
        pytest.param(gpus(), {}, None, id="no GPUs"),
        pytest.param({KOORDINATOR: RDMA}, {}, None, id="only a network card"),
    ],
)
def test_the_gpus_that_koordinator_chose_are_injected(
    annotations: Mapping[str, str], container: dict[str, Any], expected: str | None
) -> None:
    connection = PluginConnection(inject_anything())
    assert injected_variables(connection, annotations, **container) == (
        {} if expected is None else {ENV: expected}
    )
    assert connection.take_changes().warnings == []


def test_the_value_all_of_an_image_is_replaced_without_a_conflict() -> None:
    """The variable is removed first, so that its owner in the runtime is not in conflict."""
    connection = PluginConnection(inject_anything())
    found = injected_variables(connection, gpus(1, 2), env=[f"{ENV}=all"])
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
def test_an_invalid_annotation_is_reported_once_and_prevents_no_container(
    value: str, text: str
) -> None:
    connection = PluginConnection(inject_anything())
    for _ in range(3):
        assert injected_variables(connection, {KOORDINATOR: value}) == {}
    (warning,) = connection.take_changes().warnings
    assert warning.startswith(f"pod ml/train-0: annotation {KOORDINATOR}: ")
    assert text in warning
    assert warning.endswith("; no GPU is injected")


@pytest.mark.parametrize("payload", [b"\xff", wire.subject(b"\xff"), wire.subject(b"", b"\xff")])
def test_an_invalid_request_gets_an_empty_response(payload: bytes) -> None:
    assert PluginConnection(inject_anything()).call("CreateContainer", payload) == (0, b"")


def test_an_internal_error_prevents_no_container() -> None:
    def broken(payload: bytes, table: ContainerTable) -> bytes:
        raise ZeroDivisionError("by zero")

    connection = PluginConnection(broken)
    for _ in range(3):
        assert connection.call("CreateContainer") == (0, b"")
    assert connection.take_changes().warnings == [
        "a bug in podgpu: no GPU is injected: ZeroDivisionError: by zero"
    ]


def test_nothing_is_injected_if_injection_is_off() -> None:
    assert injected_variables(PluginConnection(), gpus(1)) == {}


def accepted_with(*claims: Claim) -> AcceptedAnnotations:
    accepted = AcceptedAnnotations()
    accepted.gpus = AcceptsAnything().gpus
    accepted.replace("pods", [Pod(PodInfo("uid-train-0", "ml", "train-0"), claims=claims)])
    return accepted


def accepted_claim(*minors: int) -> Claim:
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
            AcceptedAnnotations(), "the source pods has not reported this pod yet", id="unknown"
        ),
        pytest.param(accepted_with(), "the pod does not request these GPUs", id="requests nothing"),
        pytest.param(accepted_with(accepted_claim(1)), "names other GPUs", id="other GPUs, fewer"),
        pytest.param(
            accepted_with(accepted_claim(1, 3)), "names other GPUs", id="other GPUs, as many"
        ),
    ],
)
def test_t03_nothing_is_injected_into_a_pod_that_does_not_request_it(
    accepted: AcceptedAnnotations, why: str
) -> None:
    connection = PluginConnection(partial(koordinator_adjustment, accepted))
    for _ in range(2):
        assert injected_variables(connection, gpus(1, 2)) == {}
    (warning,) = connection.take_changes().warnings
    assert why in warning


def by_id(minor: int, uuid: str) -> dict[str, str]:
    return {KOORDINATOR: json.dumps({"gpu": [{"minor": minor, "id": uuid}]})}


A, B = GPU.format(1), GPU.format(2)
NO_HOLDERS: frozenset[str] = frozenset()


@pytest.mark.parametrize(
    ("known", "annotation", "why"),
    [
        (None, gpus(1), "some sources have not reported yet which"),
        ({}, gpus(1), "names minor number 1, which is not a known GPU"),
        ({1: Gpu(A, True, NO_HOLDERS)}, gpus(1), "which a device plugin or a DRA driver manages"),
        ({1: Gpu(A, False, frozenset({"ml/b"}))}, gpus(1), "that is allocated to another pod"),
        ({1: Gpu(A, False, frozenset({"uid-b"}))}, gpus(1), "that is allocated to another pod"),
        (
            {1: Gpu(A, False, NO_HOLDERS)},
            by_id(1, B),
            f"names minor number 1 as {B}, but it is {A}",
        ),
        ({1: Gpu(A, False, frozenset({"ml/train-0"}))}, gpus(1), ""),
        ({1: Gpu(A, False, frozenset({"uid-train-0"}))}, by_id(1, A.upper()), ""),
    ],
)
def test_t03_a_gpu_of_a_plugin_or_of_another_pod_is_not_injected(
    known: dict[int, Gpu] | None, annotation: dict[str, str], why: str
) -> None:
    accepted = AcceptsAnything()
    accepted.gpus = known
    connection = PluginConnection(partial(koordinator_adjustment, accepted))
    for _ in range(2):
        assert injected_variables(connection, annotation) == ({} if why else {ENV: "1"})
    assert [why in warning for warning in connection.take_changes().warnings] == [True] * bool(why)


def test_t03_one_minor_number_with_two_ids_is_refused() -> None:
    both = [{"minor": 1, "id": uuid} for uuid in (A, B)]
    connection = PluginConnection(inject_anything())
    assert injected_variables(connection, {KOORDINATOR: json.dumps({"gpu": both})}) == {}
    (warning,) = connection.take_changes().warnings
    assert ".gpu[1]: minor 1 has two different ids" in warning


def test_t03_a_gpu_that_the_pod_requests_is_injected() -> None:
    assert injected_variables(
        PluginConnection(partial(koordinator_adjustment, accepted_with(accepted_claim(1, 2)))),
        gpus(1, 2),
    ) == {ENV: "1,2"}
