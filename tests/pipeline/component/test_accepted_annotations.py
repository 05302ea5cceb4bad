"""Which annotations of pods count."""

from pipeline.component.accepted_annotations import AcceptedAnnotations
from pipeline.model import RawDeviceId
from tests.pipeline.join.cluster import annotated, pod

ZERO = frozenset({RawDeviceId("minor", "0")})
KEY = annotated("web", "0", scheme="minor").origin.detail


def test_t03_a_forged_mirror_neither_replaces_nor_drops_what_counts_of_another_pod() -> None:
    accepted = AcceptedAnnotations()
    web = pod("web", uid="uid-web", claims=[annotated("web", "0", scheme="minor")])
    evil = pod("evil", uid="uid-evil", static_uid="uid-web")
    for pods in ((web, evil), (evil, web)):
        accepted.replace("pods", pods)
        assert accepted.devices("uid-web", KEY) == ZERO
    accepted.put("pods", evil)
    assert accepted.devices("uid-web", KEY) == ZERO
    accepted.drop("pods", evil)
    assert accepted.devices("uid-web", KEY) == ZERO


def test_a_static_pod_goes_by_the_kubelets_uid_too() -> None:
    accepted = AcceptedAnnotations()
    claims = [annotated("static", "0", scheme="minor")]
    accepted.replace("pods", [pod("static", uid="mirror", static_uid="hash", claims=claims)])
    assert [accepted.devices(uid, KEY) for uid in ("mirror", "hash", "other")] == [
        ZERO,
        ZERO,
        None,
    ]
