"""How the text of a problem names the containers that it is about."""

import pytest

from pipeline.model import DevicesDiscovered
from pipeline.status_page.document_builder import status_of
from pipeline.status_page.problem_text import affected_text
from pipeline.status_page.use_format import AffectedStatus, ProblemStatus
from tests.pipeline.status_page.scenes import report_claims, started_node, status_input
from tests.support.nodes import claim, claims, gpu, kubelet_claim, uuid_of


def affected(kind: str, *parts: str, more: int = 0) -> str:
    containers = tuple(
        AffectedStatus(namespace="ml", pod=f"p{at}", container=None, uid=None, part=part)  # type: ignore[arg-type]
        for at, part in enumerate(parts)
    )
    return affected_text(
        ProblemStatus(
            kind=kind,
            severity="info",
            where=None,
            device=None,
            text="",
            containers=containers,
            containers_left_out=more,
        )
    )


@pytest.mark.parametrize(
    ("kind", "parts", "expected"),
    [
        ("xid", (), ""),
        ("xid", ("used", "held"), "affected: ml/p0, ml/p1"),
        ("xid", ("used", "caused", "held"), "caused by: ml/p1; affected: ml/p0, ml/p2"),
        ("gpu_lost", ("held",), "affected: ml/p0"),
        ("conflict", ("claims", "claims"), "claimed by: ml/p0, ml/p1"),
        ("conflict", ("claims", "held"), "claimed by: ml/p0; held by: ml/p1"),
        ("xid", ("held",) * 6, "affected: ml/p0, ml/p1, ml/p2, ml/p3 and 2 more"),
    ],
)
def test_the_containers_are_grouped_by_their_part(
    kind: str, parts: tuple[str, ...], expected: str
) -> None:
    assert affected(kind, *parts) == expected


def test_containers_that_were_left_out_are_counted() -> None:
    assert affected("xid", "caused", more=3) == "caused by: ml/p0 and 3 more"


def test_a_conflict_names_the_holder_too() -> None:
    """The kubelet's claim is stronger than that of a file, which stays without effect."""
    node = started_node(("gpus", "nvml"), ("kubelet", "podresources"), ("podlist", "podlist"))
    node.say(DevicesDiscovered((gpu(0),)))
    report_claims(node, kubelet_claim("render-0", uuid_of(0)))
    node.say(claims(claim("encode-0", uuid_of(0)), good_for=900), "podlist", "podlist")
    [found] = [one for one in status_of(status_input(node)).problems or () if one.device]
    assert found.text == "GPU 0: claims of pods contradict each other"
    assert affected_text(found) == "claimed by: ml/encode-0; held by: ml/render-0 (main)"
