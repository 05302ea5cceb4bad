"""Which scheduler annotations of pods are accepted."""

from pipeline.component.accepted_annotations import AcceptedAnnotations
from pipeline.model import RawDeviceId
from tests.pipeline.join.cluster import annotation_claim, pod

ZERO = frozenset({RawDeviceId("minor", "0")})
KEY = annotation_claim("web", "0", scheme="minor").origin.detail


def test_t03_a_forged_mirror_pod_does_not_change_the_annotation_of_another_pod() -> None:
    accepted = AcceptedAnnotations()
    web = pod("web", uid="uid-web", claims=[annotation_claim("web", "0", scheme="minor")])
    evil = pod("evil", uid="uid-evil", static_uid="uid-web")
    for pods in ((web, evil), (evil, web)):
        accepted.replace("pods", pods)
        assert accepted.devices("uid-web", KEY) == ZERO
    accepted.put("pods", evil)
    assert accepted.devices("uid-web", KEY) == ZERO
    accepted.drop("pods", evil)
    assert accepted.devices("uid-web", KEY) == ZERO


def test_a_static_pod_is_found_by_its_own_uid_and_by_the_kubelets() -> None:
    accepted = AcceptedAnnotations()
    claims = [annotation_claim("static", "0", scheme="minor")]
    accepted.replace("pods", [pod("static", uid="mirror", static_uid="hash", claims=claims)])
    assert [accepted.devices(uid, KEY) for uid in ("mirror", "hash", "other")] == [
        ZERO,
        ZERO,
        None,
    ]
