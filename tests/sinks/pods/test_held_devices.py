"""The annotations that each pod should have, from the holders of all devices."""

import pytest

from pipeline.model import Attribution, Evidence, Holder, Instant, PartialRef, PodInfo
from sinks.pods.held_devices import DesiredAnnotations, PodRef, desired_annotations
from tests.sinks.pods.support import GPUS, SLICE

RESOURCES = frozenset({"nvidia.com/gpu"})


def holder(pod: str, container: str = "main", uid: str = "", *, namespace: str = "ml") -> Holder:
    subject = PartialRef(namespace, pod, container, uid)
    return Holder(subject, None, Instant(0, 0), "kubelet", Evidence.KUBELET_IDS)


def attribution(device: int, *holders: Holder, conflicts: int = 0) -> Attribution:
    return Attribution((*GPUS[:3], SLICE)[device], True, holders, ("ml/other",) * conflicts)


def desired(*attributions: Attribution) -> dict[str, DesiredAnnotations]:
    return {
        str(place): annotations
        for place, annotations in desired_annotations(attributions, RESOURCES).items()
    }


def test_each_pod_has_its_devices_in_device_order_with_their_containers() -> None:
    assert desired(
        attribution(0, holder("a")),
        attribution(1, holder("a"), holder("a", "side"), holder("b", uid="7")),
        attribution(2),
        attribution(3, holder("a", "")),
    ) == {
        "ml/a": DesiredAnnotations(
            "",
            ((GPUS[0].uuid, ("main",)), (GPUS[1].uuid, ("main", "side")), (SLICE.uuid, ("",))),
            RESOURCES,
        ),
        "ml/b": DesiredAnnotations("7", ((GPUS[1].uuid, ("main",)),), RESOURCES),
    }


def test_the_uid_is_that_of_the_api_server_if_a_source_reported_the_pod() -> None:
    subject = PartialRef("ml", "a", "main", "0123abcd")
    info = PodInfo("mirror", "ml", "a")
    static_holder = Holder(subject, None, Instant(0, 0), "kubelet", Evidence.KUBELET_IDS, info)
    assert desired(attribution(0, static_holder))["ml/a"].uid == "mirror"


@pytest.mark.parametrize(
    ("first", "second", "uid"), [("", "7", "7"), ("7", "", "7"), ("7", "7", "7"), ("", "", "")]
)
def test_a_uid_that_one_device_has_applies_to_all_devices_of_the_pod(
    first: str, second: str, uid: str
) -> None:
    assert (
        desired(attribution(0, holder("a", uid=first)), attribution(1, holder("a", uid=second)))[
            "ml/a"
        ].uid
        == uid
    )


def test_two_pods_with_one_name_are_not_annotated() -> None:
    assert desired(
        attribution(0, holder("a", uid="1")),
        attribution(1, holder("a", uid="2")),
        attribution(2, holder("b")),
    ) == {"ml/b": DesiredAnnotations("", ((GPUS[2].uuid, ("main",)),), RESOURCES)}


def test_a_pod_in_a_conflict_is_not_annotated_at_all() -> None:
    shown = desired(
        attribution(0, holder("a"), holder("b"), conflicts=2),
        attribution(1, holder("a")),
        attribution(2, holder("c")),
    )
    assert list(shown) == ["ml/c"]


def test_the_only_holder_after_a_conflict_and_pods_that_share_are_annotated() -> None:
    assert list(desired(attribution(0, holder("a"), conflicts=1))) == ["ml/a"]
    assert list(desired(attribution(0, holder("a"), holder("a", "side"), conflicts=1))) == ["ml/a"]
    assert list(desired(attribution(0, holder("a"), holder("b")))) == ["ml/a", "ml/b"]


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
def test_invalid_pod_names_are_ignored(namespace: str, name: str) -> None:
    assert desired(attribution(0, holder(name, namespace=namespace))) == {}


@pytest.mark.parametrize(
    ("namespace", "name"),
    [("ml", "a"), ("m-1", "train-0.x"), ("m" * 63, "a" * 253), ("kube-system", "etcd-node-1")],
)
def test_valid_pod_names_have_a_path(namespace: str, name: str) -> None:
    [place] = desired_annotations([attribution(0, holder(name, namespace=namespace))], RESOURCES)
    assert place == PodRef(namespace, name)
    assert place.path == f"/api/v1/namespaces/{namespace}/pods/{name}"
