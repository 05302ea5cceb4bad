"""The rules of `pipeline.join.holder_resolution`: which of several candidates hold a device."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from pipeline.model import Claim, Evidence, PartialRef, Pod, SourceAdded, SourceLost
from tests.pipeline.join.cluster import (
    GOOD_FOR,
    GPUS,
    A,
    B,
    C,
    Cluster,
    annotation_claim,
    checkpoint_claim,
    claim_list,
    container,
    kubelet_claim,
    make_claim,
    plugin_answer,
    pod,
    podlist_claim,
    runtime_claim,
    uid_of,
)

SourceAndClaim = tuple[str, Callable[[str], Claim]]

CLAIMS: dict[str, SourceAndClaim] = {
    "variable": (
        "runtime",
        lambda device: runtime_claim("a", device, evidence=Evidence.RUNTIME_ENV),
    ),
    "podlist.json": ("podlist", lambda device: podlist_claim("a", device)),
    "annotation": ("pods", lambda device: annotation_claim("a", device, container="main")),
    "kubelet's ids": ("kubelet", lambda device: kubelet_claim("a", device)),
    "plugin's answer": ("checkpoint", lambda device: plugin_answer(uid_of("a"), [A], device)),
    "nodes": ("runtime", lambda device: runtime_claim("a", device)),
    "CDI names": (
        "runtime",
        lambda device: runtime_claim("a", device, evidence=Evidence.RUNTIME_CDI),
    ),
}
OF_ONE_CONTAINER = list(CLAIMS)
"""Weakest evidence first."""
BETWEEN_PODS = [
    "variable",
    "podlist.json",
    "annotation",
    "nodes",
    "CDI names",
    "kubelet's ids",
    "plugin's answer",
]


def pairs(names: list[str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        ("weak", "strong"),
        [
            pytest.param(CLAIMS[weak], CLAIMS[strong], id=f"{weak} < {strong}")
            for at, strong in enumerate(names)
            for weak in names[:at]
        ],
    )


def report(node: Cluster, source: str, *claims: Claim) -> None:
    if source == "pods":
        node.pods(*(replace(pod("a"), claims=claims), pod("b"), pod("c")))
    else:
        node.emit(source, claim_list(*claims))


class TestInvalidClaims:
    """Rule 1. `test_pod_table.py` tests the pods that cannot hold anything."""

    def test_an_expired_claim_has_no_effect(self) -> None:
        node = Cluster()
        node.kubelet(kubelet_claim("a", A))
        node.tick(GOOD_FOR)
        assert node.held() == {A: ["a/main"]}
        node.tick(GOOD_FOR + 1)
        assert node.held() == {}

    def test_claims_of_each_source_expire_separately(self) -> None:
        node = Cluster()
        node.kubelet(kubelet_claim("a", A))
        node.file(podlist_claim("b", A))
        node.seconds = 200
        node.file(podlist_claim("b", A))
        assert node.held() == {A: ["a/main"]}
        node.tick(GOOD_FOR + 1)
        assert node.held() == {A: ["b/main"]}

    @pytest.mark.parametrize("ids", [(), ("GPU-unknown",), ("",), ("all",)])
    def test_a_claim_on_an_unknown_device_has_no_effect(self, ids: Sequence[str]) -> None:
        node = Cluster()
        node.kubelet(kubelet_claim("a", *ids))
        assert (node.held(), node.conflicts()) == ({}, {})

    def test_unknown_ids_do_not_invalidate_known_ids_of_the_same_claim(self) -> None:
        node = Cluster()
        node.kubelet(kubelet_claim("a", "GPU-unknown", B))
        assert node.held() == {B: ["a/main"]}


class TestEvidence:
    """Rule 2."""

    @pairs(OF_ONE_CONTAINER)
    def test_of_one_container_the_strongest_evidence_decides_on_all_devices(
        self, weak: SourceAndClaim, strong: SourceAndClaim
    ) -> None:
        if weak[0] == strong[0]:
            weak = ("kubelet", weak[1])
        for first, second in ((weak, strong), (strong, weak)):
            node = Cluster()
            node.pods(pod("a"))
            for source, claim in (first, second):
                report(node, source, claim(B if claim is strong[1] else A))
            assert node.held() == {B: ["a/main"]}
            assert node.conflicts() == {}

    @pairs(BETWEEN_PODS)
    def test_of_two_pods_the_one_with_stronger_evidence_holds_the_device(
        self, weak: SourceAndClaim, strong: SourceAndClaim
    ) -> None:
        node = Cluster()
        node.pods(pod("a"), pod("b"))
        other = replace(
            weak[1](A),
            subject=PartialRef("ml", "b", "main", uid_of("b")),
        )
        node.say(SourceAdded(9), "other", "other")
        report(node, strong[0], strong[1](A))
        report(node, "other", other)
        assert node.held() == {A: ["a/main"]}
        assert node.conflicts() == {A: 1}
        assert node.attribution(A).conflicting_pods == ("ml/b",)

    def test_evidence_is_compared_for_each_container_separately(self) -> None:
        node = Cluster()
        node.pods(pod("a", container("main"), container("other")))
        node.kubelet(kubelet_claim("a", A), kubelet_claim("a", B, container="other"))
        node.runtime(runtime_claim("a", C))
        assert node.held() == {B: ["a/other"], C: ["a/main"]}

    @pytest.mark.parametrize(
        ("of_pod", "of_containers", "expected"),
        [
            pytest.param(
                annotation_claim("a", A),
                [podlist_claim("a", B)],
                {A: ["a/"]},
                id="the pod's claim is stronger",
            ),
            pytest.param(
                annotation_claim("a", A),
                [runtime_claim("a", B)],
                {B: ["a/main"]},
                id="the container's claim is stronger",
            ),
            pytest.param(
                annotation_claim("a", A),
                [runtime_claim("a", B), kubelet_claim("a", C, container="other")],
                {B: ["a/main"], C: ["a/other"]},
                id="the claim of one container is stronger",
            ),
            pytest.param(
                annotation_claim("a", A),
                [
                    annotation_claim("a", B, container="main"),
                    podlist_claim("a", C, container="other"),
                ],
                {A: ["a/"], B: ["a/main"]},
                id="both claims have the same evidence",
            ),
        ],
    )
    def test_a_claim_on_a_whole_pod_is_compared_with_claims_on_its_containers(
        self, of_pod: Claim, of_containers: list[Claim], expected: dict[str, list[str]]
    ) -> None:
        node = Cluster()
        node.pods(pod("a", container("main"), container("other")))
        node.file(of_pod, *of_containers)
        assert node.held() == expected


class TestSubstitution:
    """The device plugin allocates other devices than the kubelet requested from it."""

    @pytest.mark.parametrize("pods", [[pod("a")], None], ids=["pods known", "no source of pods"])
    def test_the_plugin_s_answer_replaces_the_requested_ids(self, pods: list[Pod] | None) -> None:
        node = Cluster()
        if pods is not None:
            node.pods(*pods)
        node.kubelet(kubelet_claim("a", A))
        node.checkpoint(plugin_answer(uid_of("a"), [A], B))
        assert node.held() == {B: ["a/main"]}
        [holder] = node.attribution(B).holders
        assert (holder.subject.uid, holder.evidence) == (uid_of("a"), Evidence.PLUGIN_ANSWER)

    def test_two_pods_hold_the_swapped_devices_that_the_plugin_answered(self) -> None:
        node = Cluster()
        node.kubelet(kubelet_claim("a", A), kubelet_claim("b", B))
        node.checkpoint(plugin_answer(uid_of("a"), [A], B), plugin_answer(uid_of("b"), [B], A))
        assert node.held() == {A: ["b/main"], B: ["a/main"]}
        assert node.conflicts() == {}

    @pytest.mark.parametrize("index", ["0", "nvidia.com/gpu=0"])
    def test_a_number_in_an_answer_is_the_nvml_index(self, index: str) -> None:
        node = Cluster()
        node.checkpoint(plugin_answer("u", ["nvidia3"], index))
        assert node.held() == {A: ["u/main"]}

    @pytest.mark.parametrize(
        "resource", ["nvidia.com/mig-1g.10gb", ""], ids=["another resource", "a ResourceClaim"]
    )
    def test_an_answer_does_not_replace_ids_of_another_resource(self, resource: str) -> None:
        """A container with two resources has both, if a plugin substitutes one of them."""
        node = Cluster()
        other_resource = replace(kubelet_claim("a", C), resource=resource)
        node.kubelet(kubelet_claim("a", A), other_resource)
        node.checkpoint(plugin_answer(uid_of("a"), [A], B))
        assert node.held() == {B: ["a/main"], C: ["a/main"]}

    def test_an_answer_without_devices_leaves_the_requested_ids_valid(self) -> None:
        node = Cluster()
        node.kubelet(kubelet_claim("a", A))
        node.checkpoint(plugin_answer(uid_of("a"), [A], "all"))
        assert node.held() == {A: ["a/main"]}


class TestNamesByMatchingIds:
    """Without a source of pods, the kubelet's list has names and its checkpoint has UIDs."""

    def test_the_same_ids_in_the_same_container_name_mean_the_same_pod(self) -> None:
        node = Cluster()
        node.kubelet(kubelet_claim("a", A), kubelet_claim("b", B))
        node.checkpoint(checkpoint_claim("1", A), checkpoint_claim("2", B))
        assert node.held() == {A: ["a/main"], B: ["b/main"]}
        assert [node.attribution(device).holders[0].subject.uid for device in (A, B)] == ["1", "2"]

    def test_a_match_of_one_container_names_the_other_containers_of_the_pod(self) -> None:
        node = Cluster()
        node.kubelet(kubelet_claim("a", A))
        node.checkpoint(checkpoint_claim("1", A), checkpoint_claim("1", B, container="init"))
        assert node.held() == {A: ["a/main"], B: ["a/init"]}

    @pytest.mark.parametrize(
        ("other", "held"),
        [
            (checkpoint_claim("1", A, container="other"), {A: ["a/main"]}),
            (checkpoint_claim("1", A, resource="nvidia.com/gpu.shared"), {A: ["1/main", "a/main"]}),
            (checkpoint_claim("1", A, B), {A: ["a/main"], B: ["1/main"]}),
            (plugin_answer("1", [A, B], C), {A: ["a/main"]}),
        ],
        ids=["another container", "another resource", "other ids", "other ids and an answer"],
    )
    def test_claims_that_differ_in_anything_are_not_matched(
        self, other: Claim, held: dict[str, list[str]]
    ) -> None:
        """An id of a resource that is listed under a name belongs to no other pod."""
        node = Cluster()
        node.kubelet(kubelet_claim("a", A))
        node.checkpoint(other)
        assert node.held() == held
        assert {h.subject.uid for h in node.attribution(A).holders if h.subject.pod} == {""}

    def test_two_names_or_two_uids_for_one_claim_are_not_matched(self) -> None:
        node = Cluster()
        node.kubelet(kubelet_claim("a", A), kubelet_claim("b", A))
        node.checkpoint(checkpoint_claim("1", A))
        assert node.held() == {A: ["a/main", "b/main"]}
        node = Cluster()
        node.kubelet(kubelet_claim("a", A))
        node.checkpoint(checkpoint_claim("1", A), checkpoint_claim("2", A))
        assert node.held() == {A: ["a/main"]}
        assert {holder.subject.uid for holder in node.attribution(A).holders} == {""}

    def test_a_uid_without_a_name_in_a_complete_list_holds_nothing(self) -> None:
        """The checkpoint keeps pods that are gone until another container gets a device."""
        node = Cluster()
        node.checkpoint(checkpoint_claim("uid-gone", B), checkpoint_claim("uid-a", A))
        node.kubelet(kubelet_claim("a", A), complete=False)
        assert node.held() == {A: ["a/main"], B: ["uid-gone/main"]}
        node.kubelet(kubelet_claim("a", A), complete=True)
        assert node.held() == {A: ["a/main"]}
        # A list that does not name the UID has no effect while its source is down.
        node.emit("kubelet", SourceLost("no such socket"))
        assert node.held() == {A: ["a/main"], B: ["uid-gone/main"]}
        node.kubelet(complete=True)
        assert node.held() == {}

    def test_the_pod_of_an_init_container_is_named_by_its_other_containers(self) -> None:
        node = Cluster()
        node.checkpoint(
            checkpoint_claim("uid-a", A), checkpoint_claim("uid-a", B, container="prepare")
        )
        node.kubelet(kubelet_claim("a", A), complete=True)
        assert node.held() == {A: ["a/main"], B: ["a/prepare"]}

    def test_names_of_a_source_of_pods_have_priority(self) -> None:
        node = Cluster()
        node.pods(pod("x", uid="1"))
        node.kubelet(kubelet_claim("a", A))
        node.checkpoint(checkpoint_claim("1", A))
        assert sorted(holder.subject.pod for holder in node.attribution(A).holders) == ["a", "x"]


class TestPlaceholders:
    """Rule 3: ids of HAMi, volcano and gpushare that only let the kubelet count."""

    FORMS = pytest.mark.parametrize("form", ["{}-3", "{}-_-3", "{}-memory-3", "{}-core-3"])

    @FORMS
    def test_an_annotation_has_priority_over_placeholders(self, form: str) -> None:
        node = Cluster()
        node.pods(pod("a", claims=[annotation_claim("a", B, container="main", share=0.5)]))
        node.kubelet(kubelet_claim("a", form.format(A)))
        node.checkpoint(checkpoint_claim(uid_of("a"), form.format(A)))
        assert node.held() == {B: ["a/main"]}
        assert node.snapshot().sources["kubelet"].unresolved == ()

    @FORMS
    def test_the_plugin_s_answer_has_priority_over_placeholders_without_pods(
        self, form: str
    ) -> None:
        node = Cluster()
        node.kubelet(kubelet_claim("a", form.format(A)))
        node.checkpoint(plugin_answer("1", [form.format(A)], B))
        assert node.held() == {B: ["a/main"]}
        assert node.snapshot().sources["kubelet"].unresolved == ()

    @FORMS
    def test_placeholders_of_several_gpus_hold_nothing_and_are_unresolved(self, form: str) -> None:
        node = Cluster()
        node.kubelet(kubelet_claim("a", form.format(A)))
        assert node.held() == {}
        unresolved = node.snapshot().sources["kubelet"].unresolved
        assert [raw.text for raw in unresolved] == [form.format(A)]

    @FORMS
    def test_placeholders_on_a_node_with_one_gpu_mean_parts_of_it(self, form: str) -> None:
        node = Cluster(GPUS[:1])
        node.pods(pod("a", started=1), pod("b", started=2))
        node.seconds = 3
        node.kubelet(
            kubelet_claim("a", form.format(A)), kubelet_claim("b", form.format(A)[:-1] + "4")
        )
        assert node.held() == {A: ["a/main", "b/main"]}
        assert (node.conflicts(), node.shares(A)) == ({}, [None, None])

    def test_placeholders_hold_nothing_after_a_second_gpu_was_added(self) -> None:
        node = Cluster(GPUS[:1])
        node.kubelet(kubelet_claim("a", f"{A}-3"))
        assert node.held() == {A: ["a/main"]}
        node.has(*GPUS[:2])
        assert node.held() == {}
        node.has(*GPUS[:1])
        # The GPU is missing, and still belongs to this node.
        assert node.held() == {}

    def test_real_ids_of_any_evidence_have_priority_over_placeholders(self) -> None:
        node = Cluster()
        node.file(
            make_claim(Evidence.RUNTIME_ENV, PartialRef("ml", "a", "main"), [f"{A}-3"], "plugin")
        )
        node.kubelet(kubelet_claim("a", B))
        assert node.held() == {B: ["a/main"]}

    def test_a_claim_on_the_pod_has_priority_over_placeholders_of_its_containers(self) -> None:
        node = Cluster(GPUS[:1])
        node.pods(pod("a", container("main"), container("other")))
        node.file(annotation_claim("a", A, share=0.5))
        node.kubelet(kubelet_claim("a", f"{A}-3"), kubelet_claim("a", f"{A}-4", container="other"))
        assert node.held() == {A: ["a/"]}

    def test_a_claim_on_a_container_has_priority_over_placeholders_of_its_pod(self) -> None:
        node = Cluster(GPUS[:1])
        node.pods(pod("a", container("main"), container("other")))
        ref = PartialRef("ml", "a")
        node.file(make_claim(Evidence.POD_LIST_FILE, ref, [f"{A}-3"], "plugin"))
        node.kubelet(kubelet_claim("a", A))
        assert node.held() == {A: ["a/main"]}

    def test_placeholders_of_another_container_stay_unresolved(self) -> None:
        node = Cluster()
        node.kubelet(kubelet_claim("a", A), kubelet_claim("a", f"{B}-3", container="other"))
        assert node.held() == {A: ["a/main"]}
        assert len(node.snapshot().sources["kubelet"].unresolved) == 1
