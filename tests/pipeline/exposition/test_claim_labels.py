"""Labels `dra_*` of the ResourceClaim by which a container holds a device."""

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.exposition.naming import CLAIM_LABELS, CLAIMED_MIG_LABELS
from pipeline.exposition.options import Sharing
from pipeline.model import Snapshot
from tests.pipeline.exposition.claimed_gpus import claimed_gpus
from tests.pipeline.exposition.pages import of, parsed, rendered
from tests.support.examples import examples
from tests.support.nodes import (
    Node,
    claims,
    dra_claim,
    dra_names,
    gpu,
    kubelet_claim,
    mig,
    reading,
    uuid_of,
)

LABELS = (*CLAIM_LABELS, *CLAIMED_MIG_LABELS)


def claim_labels(labels: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in labels.items() if name.startswith("dra_")}


def shown(
    snapshot: Snapshot, sharing: Sharing = "claims", metric: str = "DCGM_FI_DEV_FB_USED"
) -> list[tuple[str, str, dict[str, str]]]:
    """Return the device, the pod and the labels of the claim, of each series of one metric."""
    page = rendered(snapshot, sharing=sharing, inline=("resource_claims",))
    return [
        (labels["gpu"] + labels.get("GPU_I_ID", ""), labels["pod"], claim_labels(labels))
        for labels, _ in of(parsed(page), metric)
    ]


def values(claim: str, device: str) -> dict[str, str]:
    texts = (claim, "ml", "gpu.nvidia.com", "node-1", device)
    return dict(zip(CLAIM_LABELS, texts, strict=True))


MIG = {"dra_mig_profile": "1g.10gb", "dra_mig_device_uuid": mig(gpu(2), 1).uuid}


def test_each_holder_by_a_claim_has_a_copy_with_the_labels() -> None:
    assert shown(claimed_gpus()) == [
        ("0", "train-0", values("claim-of-train-0", "gpu-0")),
        ("1", "serve-a", values("shared", "gpu-1")),
        ("1", "serve-b", values("shared", "gpu-1")),
        ("2", "", {}),
        ("21", "note-0", {**values("part", "gpu-2-mig-1"), **MIG}),
        ("3", "", {}),
    ]


def test_a_shared_claim_is_known_also_where_a_device_counts_once() -> None:
    assert shown(claimed_gpus(), "info")[1:3] == [
        ("1", "", values("shared", "gpu-1")),
        ("2", "", {}),
    ]


def test_holders_with_different_claims_are_not_shown_with_one_of_them() -> None:
    node = Node()
    node.has(gpu(0))
    node.say(dra_names({"gpu-0": uuid_of(0)}), "pods", "pods")
    held = dra_claim("a", "one", "gpu-0"), dra_claim("b", "two", "gpu-0")
    node.say(claims(*held), "kubelet", "podresources")
    node.reads(reading(gpu(0), "memory_used_bytes", 0))
    assert shown(node.snapshot(), "info") == [("0", "", {})]
    assert [(pod, labels["dra_claim_name"]) for _, pod, labels in shown(node.snapshot())] == [
        ("a", "one"),
        ("b", "two"),
    ]


def test_replicas_of_a_device_plugin_have_no_copies_for_claims() -> None:
    node = Node()
    node.has(gpu(0))
    held = kubelet_claim("a", f"{uuid_of(0)}::0"), kubelet_claim("b", f"{uuid_of(0)}::1")
    node.say(claims(*held), "kubelet", "podresources")
    node.reads(reading(gpu(0), "memory_used_bytes", 0))
    assert shown(node.snapshot()) == [("0", "", {})]


def test_without_the_option_or_container_labels_there_are_no_labels() -> None:
    for page in (
        rendered(claimed_gpus()),
        rendered(claimed_gpus(), inline=("pod_uid", "labels"), sharing="claims"),
        rendered(claimed_gpus(), inline=("resource_claims",), containers=False),
    ):
        assert b"dra_" not in page


def test_the_info_of_each_holder_has_its_claim() -> None:
    page = rendered(claimed_gpus(), inline=("resource_claims",))
    found = [
        (labels["pod"], labels.get("dra_claim_name"))
        for labels, _ in of(parsed(page), "podgpu_device_holder_info")
    ]
    assert found == [
        ("train-0", "claim-of-train-0"),
        ("serve-a", "shared"),
        ("serve-b", "shared"),
        ("note-0", "part"),
    ]


HELD = st.dictionaries(
    st.sampled_from("abc"),
    st.tuples(st.integers(0, 2), st.sampled_from(["one", "two", ""])),
)


@given(HELD)
@settings(max_examples=examples(50), deadline=None)
def test_copies_say_what_each_pod_was_allocated(held: dict[str, tuple[int, str]]) -> None:
    """Any pods on three GPUs; a pod without a claim has the GPU from a device plugin."""
    node = Node()
    node.has(*map(gpu, range(3)))
    node.say(dra_names({f"gpu-{at}": uuid_of(at) for at in range(3)}), "pods", "pods")
    node.say(
        claims(
            *(
                dra_claim(pod, claim, f"gpu-{at}")
                if claim
                else kubelet_claim(pod, f"{uuid_of(at)}::{pod}")
                for pod, (at, claim) in held.items()
            )
        ),
        "kubelet",
        "podresources",
    )
    node.reads(*(reading(gpu(at), "power_watts", 0) for at in range(3)))
    snapshot = node.snapshot()
    expected = [
        (str(at), holder.subject.pod, held[holder.subject.pod][1])
        for at in range(3)
        for holder in snapshot.layout.attributions[uuid_of(at)].holders
    ]
    found = shown(snapshot, "copies", "DCGM_FI_DEV_POWER_USAGE")
    copies = [(gpu_, pod, labels) for gpu_, pod, labels in found if pod]
    assert [(gpu_, pod, labels.get("dra_claim_name", "")) for gpu_, pod, labels in copies] == (
        expected
    )
    assert all(not labels or set(labels) == set(CLAIM_LABELS) for _, _, labels in copies)
