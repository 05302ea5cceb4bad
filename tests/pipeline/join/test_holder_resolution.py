"""Who holds a device, of all who are said to: the rule of `pipeline.join.holder_resolution`, as
tables."""

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
    annotated,
    answered,
    container,
    filed,
    kept,
    listed,
    pod,
    ran,
    said,
    uid_of,
    whole,
)

Saying = tuple[str, Callable[[str], Claim]]

SAYINGS: dict[str, Saying] = {
    "variable": ("runtime", lambda device: ran("a", device, evidence=Evidence.RUNTIME_ENV)),
    "podlist.json": ("podlist", lambda device: filed("a", device)),
    "annotation": ("pods", lambda device: annotated("a", device, container="main")),
    "kubelet's ids": ("kubelet", lambda device: listed("a", device)),
    "plugin's answer": ("checkpoint", lambda device: answered(uid_of("a"), [A], device)),
    "nodes": ("runtime", lambda device: ran("a", device)),
    "CDI names": ("runtime", lambda device: ran("a", device, evidence=Evidence.RUNTIME_CDI)),
}
OF_ONE_CONTAINER = list(SAYINGS)
"""The weakest first."""
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
            pytest.param(SAYINGS[weak], SAYINGS[strong], id=f"{weak} < {strong}")
            for at, strong in enumerate(names)
            for weak in names[:at]
        ],
    )


def tell(node: Cluster, source: str, *claims: Claim) -> None:
    if source == "pods":
        node.pods(*(replace(pod("a"), claims=claims), pod("b"), pod("c")))
    else:
        node.tell(source, whole(*claims))


class TestWhatCantBeTrue:
    """Rule 1; `test_pods.py` has the pods that can't hold anything."""

    def test_a_claim_that_is_no_longer_good(self) -> None:
        node = Cluster()
        node.kubelet(listed("a", A))
        node.tick(GOOD_FOR)
        assert node.held() == {A: ["a/main"]}
        node.tick(GOOD_FOR + 1)
        assert node.held() == {}

    def test_each_source_s_silence_counts_by_itself(self) -> None:
        node = Cluster()
        node.kubelet(listed("a", A))
        node.file(filed("b", A))
        node.seconds = 200
        node.file(filed("b", A))
        assert node.held() == {A: ["a/main"]}
        node.tick(GOOD_FOR + 1)
        assert node.held() == {A: ["b/main"]}

    @pytest.mark.parametrize("ids", [(), ("GPU-unknown",), ("",), ("all",)])
    def test_a_claim_on_no_device_of_this_node(self, ids: Sequence[str]) -> None:
        node = Cluster()
        node.kubelet(listed("a", *ids))
        assert (node.held(), node.conflicts()) == ({}, {})

    def test_unknown_ids_beside_known_ones(self) -> None:
        node = Cluster()
        node.kubelet(listed("a", "GPU-unknown", B))
        assert node.held() == {B: ["a/main"]}


class TestEvidence:
    """Rule 2."""

    @pairs(OF_ONE_CONTAINER)
    def test_of_one_container_the_strongest_voids_the_others_wherever_they_point(
        self, weak: Saying, strong: Saying
    ) -> None:
        if weak[0] == strong[0]:
            weak = ("kubelet", weak[1])
        for first, second in ((weak, strong), (strong, weak)):
            node = Cluster()
            node.pods(pod("a"))
            for source, claim in (first, second):
                tell(node, source, claim(B if claim is strong[1] else A))
            assert node.held() == {B: ["a/main"]}
            assert node.conflicts() == {}

    @pairs(BETWEEN_PODS)
    def test_of_two_pods_the_stronger_holds_the_device_and_the_other_is_a_conflict(
        self, weak: Saying, strong: Saying
    ) -> None:
        node = Cluster()
        node.pods(pod("a"), pod("b"))
        other = replace(
            weak[1](A),
            subject=PartialRef("ml", "b", "main", uid_of("b")),
        )
        node.say(SourceAdded(9), "other", "other")
        tell(node, strong[0], strong[1](A))
        tell(node, "other", other)
        assert node.held() == {A: ["a/main"]}
        assert node.conflicts() == {A: 1}
        assert node.on(A).conflicting_pods == ("ml/b",)

    def test_containers_are_weighed_each_by_itself(self) -> None:
        node = Cluster()
        node.pods(pod("a", container("main"), container("other")))
        node.kubelet(listed("a", A), listed("a", B, container="other"))
        node.runtime(ran("a", C))
        assert node.held() == {B: ["a/other"], C: ["a/main"]}

    @pytest.mark.parametrize(
        ("pod_s", "containers", "expected"),
        [
            pytest.param(
                annotated("a", A), [filed("a", B)], {A: ["a/"]}, id="the pod's is stronger"
            ),
            pytest.param(
                annotated("a", A), [ran("a", B)], {B: ["a/main"]}, id="the container's is stronger"
            ),
            pytest.param(
                annotated("a", A),
                [ran("a", B), listed("a", C, container="other")],
                {B: ["a/main"], C: ["a/other"]},
                id="one container's is stronger",
            ),
            pytest.param(
                annotated("a", A),
                [annotated("a", B, container="main"), filed("a", C, container="other")],
                {A: ["a/"], B: ["a/main"]},
                id="both are the same",
            ),
        ],
    )
    def test_what_is_said_of_the_pod_is_weighed_against_its_containers(
        self, pod_s: Claim, containers: list[Claim], expected: dict[str, list[str]]
    ) -> None:
        node = Cluster()
        node.pods(pod("a", container("main"), container("other")))
        node.file(pod_s, *containers)
        assert node.held() == expected


class TestSubstitution:
    """The device plugin hands out other devices than the kubelet asked it for."""

    @pytest.mark.parametrize("pods", [[pod("a")], None], ids=["pods known", "no source of pods"])
    def test_the_answer_overrules_what_was_asked(self, pods: list[Pod] | None) -> None:
        node = Cluster()
        if pods is not None:
            node.pods(*pods)
        node.kubelet(listed("a", A))
        node.checkpoint(answered(uid_of("a"), [A], B))
        assert node.held() == {B: ["a/main"]}
        [holder] = node.on(B).holders
        assert (holder.subject.uid, holder.evidence) == (uid_of("a"), Evidence.PLUGIN_ANSWER)

    def test_two_that_were_swapped(self) -> None:
        node = Cluster()
        node.kubelet(listed("a", A), listed("b", B))
        node.checkpoint(answered(uid_of("a"), [A], B), answered(uid_of("b"), [B], A))
        assert node.held() == {A: ["b/main"], B: ["a/main"]}
        assert node.conflicts() == {}

    @pytest.mark.parametrize("index", ["0", "nvidia.com/gpu=0"])
    def test_an_answer_by_nvml_s_index_is_no_minor_number(self, index: str) -> None:
        node = Cluster()
        node.checkpoint(answered("u", ["nvidia3"], index))
        assert node.held() == {A: ["u/main"]}

    @pytest.mark.parametrize("resource", ["nvidia.com/mig-1g.10gb", ""], ids=["another", "a claim"])
    def test_it_overrules_nothing_that_was_asked_for_otherwise(self, resource: str) -> None:
        """A container with two resources, of which one plugin substitutes, has both."""
        node = Cluster()
        beside = replace(listed("a", C), resource=resource)
        node.kubelet(listed("a", A), beside)
        node.checkpoint(answered(uid_of("a"), [A], B))
        assert node.held() == {B: ["a/main"], C: ["a/main"]}

    def test_an_answer_that_names_nothing_leaves_what_was_asked(self) -> None:
        node = Cluster()
        node.kubelet(listed("a", A))
        node.checkpoint(answered(uid_of("a"), [A], "all"))
        assert node.held() == {A: ["a/main"]}


class TestNamesByCoincidence:
    """No source of pods: the kubelet's list has names, its checkpoint has uids."""

    def test_the_same_ids_in_a_container_of_the_same_name_are_the_same_pod_s(self) -> None:
        node = Cluster()
        node.kubelet(listed("a", A), listed("b", B))
        node.checkpoint(kept("1", A), kept("2", B))
        assert node.held() == {A: ["a/main"], B: ["b/main"]}
        assert [node.on(device).holders[0].subject.uid for device in (A, B)] == ["1", "2"]

    def test_what_one_container_reports_names_the_pod_s_others(self) -> None:
        node = Cluster()
        node.kubelet(listed("a", A))
        node.checkpoint(kept("1", A), kept("1", B, container="init"))
        assert node.held() == {A: ["a/main"], B: ["a/init"]}

    @pytest.mark.parametrize(
        ("other", "held"),
        [
            (kept("1", A, container="other"), {A: ["a/main"]}),
            (kept("1", A, resource="nvidia.com/gpu.shared"), {A: ["1/main", "a/main"]}),
            (kept("1", A, B), {A: ["a/main"], B: ["1/main"]}),
            (answered("1", [A, B], C), {A: ["a/main"]}),
        ],
        ids=["another container", "another resource", "other ids", "other ids and an answer"],
    )
    def test_what_differs_in_anything_is_not_taken_for_the_same(
        self, other: Claim, held: dict[str, list[str]]
    ) -> None:
        """But an id of a resource that the list has under a name is nobody else's."""
        node = Cluster()
        node.kubelet(listed("a", A))
        node.checkpoint(other)
        assert node.held() == held
        assert {h.subject.uid for h in node.on(A).holders if h.subject.pod} == {""}

    def test_two_names_or_two_uids_for_one_are_no_names(self) -> None:
        node = Cluster()
        node.kubelet(listed("a", A), listed("b", A))
        node.checkpoint(kept("1", A))
        assert node.held() == {A: ["a/main", "b/main"]}
        node = Cluster()
        node.kubelet(listed("a", A))
        node.checkpoint(kept("1", A), kept("2", A))
        assert node.held() == {A: ["a/main"]}
        assert {holder.subject.uid for holder in node.on(A).holders} == {""}

    def test_a_uid_for_which_a_list_of_all_holders_has_no_name_holds_nothing(self) -> None:
        """The checkpoint keeps pods that are gone, until somebody else gets a device."""
        node = Cluster()
        node.checkpoint(kept("uid-gone", B), kept("uid-a", A))
        node.kubelet(listed("a", A), complete=False)
        assert node.held() == {A: ["a/main"], B: ["uid-gone/main"]}
        node.kubelet(listed("a", A), complete=True)
        assert node.held() == {A: ["a/main"]}
        # What it doesn't name counts for nothing while it can't be asked.
        node.tell("kubelet", SourceLost("no such socket"))
        assert node.held() == {A: ["a/main"], B: ["uid-gone/main"]}
        node.kubelet(complete=True)
        assert node.held() == {}

    def test_an_init_container_s_pod_is_named_by_its_others(self) -> None:
        node = Cluster()
        node.checkpoint(kept("uid-a", A), kept("uid-a", B, container="prepare"))
        node.kubelet(listed("a", A), complete=True)
        assert node.held() == {A: ["a/main"], B: ["a/prepare"]}

    def test_names_from_a_source_of_pods_go_before(self) -> None:
        node = Cluster()
        node.pods(pod("x", uid="1"))
        node.kubelet(listed("a", A))
        node.checkpoint(kept("1", A))
        assert sorted(holder.subject.pod for holder in node.on(A).holders) == ["a", "x"]


class TestPlaceholders:
    """Rule 3: ids that HAMi, volcano and gpushare let the kubelet count by."""

    FORMS = pytest.mark.parametrize("form", ["{}-3", "{}-_-3", "{}-memory-3", "{}-core-3"])

    @FORMS
    def test_they_yield_to_the_annotation(self, form: str) -> None:
        node = Cluster()
        node.pods(pod("a", claims=[annotated("a", B, container="main", share=0.5)]))
        node.kubelet(listed("a", form.format(A)))
        node.checkpoint(kept(uid_of("a"), form.format(A)))
        assert node.held() == {B: ["a/main"]}
        assert node.snapshot().sources["kubelet"].unresolved == ()

    @FORMS
    def test_they_yield_to_the_plugin_s_answer_without_any_pods(self, form: str) -> None:
        node = Cluster()
        node.kubelet(listed("a", form.format(A)))
        node.checkpoint(answered("1", [form.format(A)], B))
        assert node.held() == {B: ["a/main"]}
        assert node.snapshot().sources["kubelet"].unresolved == ()

    @FORMS
    def test_alone_they_hold_nothing_and_are_counted_where_there_are_several_gpus(
        self, form: str
    ) -> None:
        node = Cluster()
        node.kubelet(listed("a", form.format(A)))
        assert node.held() == {}
        unresolved = node.snapshot().sources["kubelet"].unresolved
        assert [raw.text for raw in unresolved] == [form.format(A)]

    @FORMS
    def test_on_a_node_with_one_gpu_there_is_no_mistaking_it_and_all_have_a_part(
        self, form: str
    ) -> None:
        node = Cluster(GPUS[:1])
        node.pods(pod("a", started=1), pod("b", started=2))
        node.seconds = 3
        node.kubelet(listed("a", form.format(A)), listed("b", form.format(A)[:-1] + "4"))
        assert node.held() == {A: ["a/main", "b/main"]}
        assert (node.conflicts(), node.shares(A)) == ({}, [None, None])

    def test_a_second_gpu_ends_that_certainty(self) -> None:
        node = Cluster(GPUS[:1])
        node.kubelet(listed("a", f"{A}-3"))
        assert node.held() == {A: ["a/main"]}
        node.has(*GPUS[:2])
        assert node.held() == {}
        node.has(*GPUS[:1])
        # It is missing, and still one of this node's.
        assert node.held() == {}

    def test_real_ids_of_any_evidence_go_before_them(self) -> None:
        node = Cluster()
        node.file(said(Evidence.RUNTIME_ENV, PartialRef("ml", "a", "main"), [f"{A}-3"], "plugin"))
        node.kubelet(listed("a", B))
        assert node.held() == {B: ["a/main"]}

    def test_a_container_s_yield_to_what_is_known_of_the_pod(self) -> None:
        node = Cluster(GPUS[:1])
        node.pods(pod("a", container("main"), container("other")))
        node.file(annotated("a", A, share=0.5))
        node.kubelet(listed("a", f"{A}-3"), listed("a", f"{A}-4", container="other"))
        assert node.held() == {A: ["a/"]}

    def test_a_pod_s_yield_to_what_is_known_of_its_containers(self) -> None:
        node = Cluster(GPUS[:1])
        node.pods(pod("a", container("main"), container("other")))
        ref = PartialRef("ml", "a")
        node.file(said(Evidence.POD_LIST_FILE, ref, [f"{A}-3"], "plugin"))
        node.kubelet(listed("a", A))
        assert node.held() == {A: ["a/main"]}

    def test_other_containers_keep_theirs(self) -> None:
        node = Cluster()
        node.kubelet(listed("a", A), listed("a", f"{B}-3", container="other"))
        assert node.held() == {A: ["a/main"]}
        assert len(node.snapshot().sources["kubelet"].unresolved) == 1
