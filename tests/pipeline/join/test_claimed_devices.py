"""A holder has the ResourceClaim and the name by which its device was allocated."""

from dataclasses import replace

from pipeline.model import (
    ClaimedDevice,
    DeviceAliasesReplaced,
    Evidence,
    PartialRef,
    RawDeviceId,
    ResourceClaim,
    only_holder,
)
from tests.pipeline.join.cluster import A, B, kubelet_claim, make_claim, pod
from tests.pipeline.join.test_dra_name_history import (
    CLAIM_UID,
    FIRST,
    SWAPPED,
    Dra,
    dra,
    injected,
    prepared,
    running_node,
)


def claimed(name: str, device: str) -> ClaimedDevice:
    return ClaimedDevice("ml", name, "gpu.nvidia.com", "node-1", device)


def of(node: Dra, uuid: str) -> dict[str, ClaimedDevice | None]:
    """Return the claims of a device's holders by pod."""
    return {holder.subject.pod: holder.claimed for holder in node.attribution(uuid).holders}


def test_a_holder_by_a_resource_claim_has_the_claim() -> None:
    node = running_node()
    assert of(node, B) == {"py": claimed("claim-of-py", "gpu-1")}


def test_a_claim_keeps_its_name_of_the_device_when_the_slices_change() -> None:
    node = running_node()
    node.slices(SWAPPED, 20, 20.1)
    assert of(node, B) == {"py": claimed("claim-of-py", "gpu-1")}
    assert of(node, A) == {}


def test_the_runtime_overrules_the_kubelet_and_the_claim_stays() -> None:
    """The container runtime's evidence is stronger, and only the kubelet names the claim."""
    node = running_node()
    node.runtime(injected("py", "gpu-1"))
    [holder] = node.attribution(B).holders
    assert holder.evidence == Evidence.RUNTIME_CDI
    assert holder.claimed == claimed("claim-of-py", "gpu-1")


def test_without_the_kubelet_the_claim_is_unknown() -> None:
    node = Dra()
    node.slices(FIRST, 0, 1)
    node.start_pod("py", 10, 11)
    node.runtime(injected("py", "gpu-1"))
    assert of(node, B) == {"py": None}


def test_all_holders_of_a_shared_claim_have_it() -> None:
    node = Dra()
    node.slices(FIRST, 0, 1)
    for name in ("a", "b"):
        node.start_pod(name, 10, 11)
    node.prepare(12, prepared("a", "gpu-0", "shared"), prepared("b", "gpu-0", "shared"))
    assert of(node, A) == dict.fromkeys(("a", "b"), claimed("shared", "gpu-0"))


def test_a_device_plugin_allocates_without_a_claim() -> None:
    node = Dra()
    node.slices(FIRST, 0, 1)
    node.start_pod("py", 10, 11)
    node.prepare(12, kubelet_claim("py", A), prepared("py", "gpu-1"))
    assert of(node, A) == {"py": None}
    assert of(node, B) == {"py": claimed("claim-of-py", "gpu-1")}


def test_admin_access_is_no_claim_of_a_holder() -> None:
    node = running_node()
    admin = ResourceClaim("claim-of-watch", CLAIM_UID, admin=(dra("gpu-1"),))
    node.present["watch"] = replace(pod("watch", started=10), resource_claims=(admin,))
    node.pods(*node.present.values())
    node.prepare(13, prepared("py", "gpu-1"), prepared("watch", "gpu-1"))
    assert of(node, B) == {"py": claimed("claim-of-py", "gpu-1")}
    assert [access.subject.pod for access in node.attribution(B).access] == ["watch"]


def test_the_name_of_a_pool_may_contain_slashes() -> None:
    node = Dra()
    node.start_pod("py", 10, 11)
    text = "gpu.example.com/rack-7/node-1/gpu-0"
    made = make_claim(Evidence.KUBELET_IDS, PartialRef("ml", "py", "main"), [text], "dra")
    node.emit("pods", DeviceAliasesReplaced(((RawDeviceId("dra", text), A),)))
    node.prepare(12, replace(made, resource_claim="ml/one"))
    assert of(node, A) == {
        "py": ClaimedDevice("ml", "one", "gpu.example.com", "rack-7/node-1", "gpu-0")
    }


def test_containers_of_one_pod_with_the_same_claim_are_shown_with_it() -> None:
    node = Dra()
    node.slices(FIRST, 0, 1)
    node.start_pod("py", 10, 11)
    first = prepared("py", "gpu-0")
    side = replace(first, subject=replace(first.subject, container="side"))
    node.prepare(12, first, side)
    only = only_holder(node.attribution(A).holders)
    assert only is not None
    assert (only.subject.container, only.claimed) == ("", claimed("claim-of-py", "gpu-0"))

    other = replace(side, resource_claim="ml/other")
    node.prepare(13, first, other)
    only = only_holder(node.attribution(A).holders)
    assert only is not None
    assert only.claimed is None
