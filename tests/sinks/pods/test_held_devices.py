"""Who holds what, as it is to stand in pods."""

import pytest

from pipeline.model import Attribution, Evidence, Holder, Instant, PartialRef, PodInfo
from sinks.pods.held_devices import DesiredAnnotations, PodRef, desired_annotations
from tests.sinks.pods.support import GPUS, SLICE

RESOURCES = frozenset({"nvidia.com/gpu"})


def holder(pod: str, container: str = "main", uid: str = "", *, namespace: str = "ml") -> Holder:
    subject = PartialRef(namespace, pod, container, uid)
    return Holder(subject, None, Instant(0, 0), "kubelet", Evidence.KUBELET_IDS)


def on(device: int, *holders: Holder, conflicts: int = 0) -> Attribution:
    return Attribution((*GPUS[:3], SLICE)[device], True, holders, conflicts)


def found(*attributions: Attribution) -> dict[str, DesiredAnnotations]:
    return {
        str(place): what for place, what in desired_annotations(attributions, RESOURCES).items()
    }


def test_devices_in_their_order_with_all_who_hold_them() -> None:
    assert found(
        on(0, holder("a")),
        on(1, holder("a"), holder("a", "side"), holder("b", uid="7")),
        on(2),
        on(3, holder("a", "")),
    ) == {
        "ml/a": DesiredAnnotations(
            "",
            ((GPUS[0].uuid, ("main",)), (GPUS[1].uuid, ("main", "side")), (SLICE.uuid, ("",))),
            RESOURCES,
        ),
        "ml/b": DesiredAnnotations("7", ((GPUS[1].uuid, ("main",)),), RESOURCES),
    }


def test_the_uid_is_the_api_server_s_where_a_source_reported_of_the_pod() -> None:
    subject = PartialRef("ml", "a", "main", "0123abcd")
    info = PodInfo("mirror", "ml", "a")
    given_out = Holder(subject, None, Instant(0, 0), "kubelet", Evidence.KUBELET_IDS, info)
    assert found(on(0, given_out))["ml/a"].uid == "mirror"


@pytest.mark.parametrize(
    ("first", "second", "uid"), [("", "7", "7"), ("7", "", "7"), ("7", "7", "7"), ("", "", "")]
)
def test_who_is_known_in_one_place_is_known(first: str, second: str, uid: str) -> None:
    assert found(on(0, holder("a", uid=first)), on(1, holder("a", uid=second)))["ml/a"].uid == uid


def test_two_pods_of_one_name_are_left_alone() -> None:
    assert found(on(0, holder("a", uid="1")), on(1, holder("a", uid="2")), on(2, holder("b"))) == {
        "ml/b": DesiredAnnotations("", ((GPUS[2].uuid, ("main",)),), RESOURCES)
    }


def test_a_pod_in_conflict_is_left_alone_whole() -> None:
    shown = found(
        on(0, holder("a"), holder("b"), conflicts=2),
        on(1, holder("a")),
        on(2, holder("c")),
    )
    assert list(shown) == ["ml/c"]


def test_who_won_a_conflict_or_shares_the_device_is_not_in_conflict() -> None:
    assert list(found(on(0, holder("a"), conflicts=1))) == ["ml/a"]
    assert list(found(on(0, holder("a"), holder("a", "side"), conflicts=1))) == ["ml/a"]
    assert list(found(on(0, holder("a"), holder("b")))) == ["ml/a", "ml/b"]


@pytest.mark.parametrize(
    ("namespace", "name"),
    [
        ("", "a"),
        ("ml", ""),
        ("ml", ".."),
        ("..", "a"),
        ("ml", "a/b"),
        ("ml", "../../../nodes/node-1"),
        ("ml", "a?fieldManager=x"),
        ("ml", "a%2Fstatus"),
        ("ml", "a\n"),
        ("ml.x", "a"),
        ("ML", "a"),
        ("ml", "a" * 254),
        ("m" * 64, "a"),
        ("ml", "ä"),
    ],
)
def test_what_is_no_name_becomes_no_path(namespace: str, name: str) -> None:
    assert found(on(0, holder(name, namespace=namespace))) == {}


@pytest.mark.parametrize(
    ("namespace", "name"),
    [("ml", "a"), ("m-1", "train-0.x"), ("m" * 63, "a" * 253), ("kube-system", "etcd-node-1")],
)
def test_what_is_a_name_does(namespace: str, name: str) -> None:
    [place] = desired_annotations([on(0, holder(name, namespace=namespace))], RESOURCES)
    assert place == PodRef(namespace, name)
    assert place.path == f"/api/v1/namespaces/{namespace}/pods/{name}"
