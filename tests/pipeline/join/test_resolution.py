"""Who holds a device, of all who are said to: the rule of `pipeline.join.resolution`, as tables."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from pipeline.model import Claim, ClockTicked, Evidence, PartialRef, Pod, SourceAdded, SourceLost
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

WEAKEST_FIRST: list[Saying] = [
    ("kubelet", lambda device: listed("a", device)),
    ("checkpoint", lambda device: answered(uid_of("a"), [], device)),
    ("podlist", lambda device: filed("a", device)),
    ("pods", lambda device: annotated("a", device, container="main")),
    ("runtime", lambda device: ran("a", device)),
    ("runtime", lambda device: ran("a", device, evidence=Evidence.RUNTIME_CDI)),
]
NAMES = [
    "kubelet's ids",
    "plugin's answer",
    "podlist.json",
    "annotation",
    "runtime's environment",
    "runtime's CDI names",
]
PAIRS = [
    pytest.param(WEAKEST_FIRST[weak], WEAKEST_FIRST[strong], id=f"{NAMES[weak]} < {NAMES[strong]}")
    for strong in range(len(NAMES))
    for weak in range(strong)
]


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
        node.kubelet(listed("a", A))
        assert node.held() == {A: ["b/main"]}
        node.tick(GOOD_FOR + 1)
        assert node.held() == {A: ["a/main"]}

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

    @pytest.mark.parametrize(("weak", "strong"), PAIRS)
    def test_of_one_container_the_strongest_voids_the_others_wherever_they_point(
        self, weak: Saying, strong: Saying
    ) -> None:
        if weak[0] == strong[0]:
            weak = ("podlist", weak[1])
        for first, second in ((weak, strong), (strong, weak)):
            node = Cluster()
            node.pods(pod("a"))
            for source, claim in (first, second):
                tell(node, source, claim(B if claim is strong[1] else A))
            assert node.held() == {B: ["a/main"]}
            assert node.conflicts() == {}

    @pytest.mark.parametrize(("weak", "strong"), PAIRS)
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
        # But what a container's environment says alone, anybody may have written.
        winner = "b/main" if strong[1](A).origin.evidence == Evidence.RUNTIME_ENV else "a/main"
        assert node.held() == {A: [winner]}
        assert node.conflicts() == {A: 1}

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
                annotated("a", A), [listed("a", B)], {A: ["a/"]}, id="the pod's is stronger"
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
                [annotated("a", B, container="main"), listed("a", C, container="other")],
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

    def test_what_one_container_tells_names_the_pod_s_others(self) -> None:
        node = Cluster()
        node.kubelet(listed("a", A))
        node.checkpoint(kept("1", A), kept("1", B, container="init"))
        assert node.held() == {A: ["a/main"], B: ["a/init"]}

    @pytest.mark.parametrize(
        "other",
        [
            kept("1", A, container="other"),
            kept("1", A, resource="nvidia.com/gpu.shared"),
            kept("1", A, B),
        ],
        ids=["another container", "another resource", "other ids"],
    )
    def test_what_differs_in_anything_is_not_taken_for_the_same(self, other: Claim) -> None:
        node = Cluster()
        node.kubelet(listed("a", A))
        node.checkpoint(other)
        assert "" in {holder.subject.uid for holder in node.on(A).holders}
        assert "" in {holder.subject.pod for holder in node.on(A).holders}

    def test_two_names_or_two_uids_for_one_are_no_names(self) -> None:
        node = Cluster()
        node.kubelet(listed("a", A), listed("b", A))
        node.checkpoint(kept("1", A))
        assert node.held() == {A: ["1/main", "a/main", "b/main"]}
        node.kubelet(listed("a", A))
        node.checkpoint(kept("1", A), kept("2", A))
        assert node.held() == {A: ["1/main", "2/main", "a/main"]}

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


class TestParts:
    """Rule 4: what several pods can have together."""

    @pytest.mark.parametrize(
        "ids",
        [
            (f"{A}::0", f"{A}::1"),
            ("nvidia3/vgpu0", "nvidia3/vgpu1"),
            (f"{A}::0", f"{A}::0"),
        ],
    )
    def test_replicas(self, ids: tuple[str, str]) -> None:
        node = Cluster()
        node.pods(pod("a", started=1), pod("b", started=2))
        node.seconds = 3
        node.kubelet(*(listed(name, text) for name, text in zip("ab", ids, strict=True)))
        assert node.held() == {A: ["a/main", "b/main"]}
        assert (node.conflicts(), node.shares(A)) == ({}, [None, None])

    def test_several_replicas_in_one_container_are_one_holder(self) -> None:
        node = Cluster()
        node.kubelet(listed("a", f"{A}::0", f"{A}::1"))
        assert (node.held(), node.shares(A)) == ({A: ["a/main"]}, [None])

    @pytest.mark.parametrize("turned", [False, True])
    def test_a_replica_and_the_whole_in_one_claim_are_a_part(self, turned: bool) -> None:
        ids = [f"{A}::0", A]
        node = Cluster()
        node.kubelet(listed("a", *(reversed(ids) if turned else ids)), listed("b", f"{A}::1"))
        assert node.held() == {A: ["a/main", "b/main"]}
        assert node.conflicts() == {}

    def test_fractions_that_a_scheduler_gave(self) -> None:
        node = Cluster()
        node.pods(
            pod("a", claims=[annotated("a", "3", scheme="minor", share=0.5)]),
            pod("b", claims=[annotated("b", A, share=0.25)]),
        )
        assert node.held() == {A: ["a/main", "b/main"]}
        assert node.shares(A) == [0.5, 0.25]
        assert node.conflicts() == {}

    def test_a_fraction_and_a_replica_whoever_says_so(self) -> None:
        node = Cluster()
        node.pods(pod("a", claims=[annotated("a", A, share=0.5)]), pod("b"))
        node.kubelet(listed("b", f"{A}::1"))
        assert node.held() == {A: ["a/main", "b/main"]}

    def test_claims_that_say_nothing_of_being_alone(self) -> None:
        node = Cluster()
        node.file(filed("a", A), filed("b", A))
        assert node.held() == {A: ["a/main", "b/main"]}
        assert (node.conflicts(), node.shares(A)) == ({}, [None, None])

    def test_a_resource_claim_that_several_pods_share(self) -> None:
        node = Cluster()
        node.pods(pod("a", started=1), pod("b", started=2))
        node.seconds = 3
        node.kubelet(
            *(
                said(
                    Evidence.KUBELET_IDS,
                    PartialRef("ml", name, "main"),
                    ["nvidia.com/gpu=0"],
                    "cdi",
                )
                for name in "ab"
            )
        )
        assert node.held() == {A: ["a/main", "b/main"]}
        assert node.conflicts() == {}

    @pytest.mark.parametrize(
        ("part", "alone"),
        [
            pytest.param(annotated("a", A, share=0.5), filed("c", A), id="weaker"),
            pytest.param(filed("a", A, share=0.5), filed("c", A, share=1), id="earlier"),
        ],
    )
    def test_one_that_has_it_all_and_is_overruled_leaves_it_to_all_that_have_a_part(
        self, part: Claim, alone: Claim
    ) -> None:
        node = Cluster()
        node.pods(pod("a", started=2), pod("b", started=1), pod("c", started=0))
        node.seconds = 3
        node.file(part, alone)
        node.kubelet(listed("b", f"{A}::1"))
        assert node.held() == {A: ["a/main", "b/main"]}
        assert node.conflicts() == {A: 1}

    def test_one_that_a_scheduler_gave_all_of_it_has_it_alone_whatever_the_ids_look_like(
        self,
    ) -> None:
        node = Cluster(GPUS[:1])
        node.pods(pod("a", claims=[annotated("a", A, share=1)]), pod("b"))
        node.kubelet(listed("a", f"{A}-0"), listed("b", f"{A}-1"))
        assert (node.held(), node.shares(A)) == ({A: ["a/main"]}, [1.0])
        assert node.conflicts() == {A: 1}

    def test_a_gpu_that_is_time_sliced_since_drops_the_pod_that_had_it_alone(self) -> None:
        node = Cluster()
        node.pods(pod("old", started=0), pod("a", started=1), pod("b", started=2))
        node.seconds = 3
        node.kubelet(listed("old", A), listed("a", f"{A}::0"), listed("b", f"{A}::1"))
        assert node.held() == {A: ["a/main", "b/main"]}
        assert node.conflicts() == {A: 1}

    def test_a_gpu_that_is_whole_again_drops_them(self) -> None:
        node = Cluster()
        node.pods(pod("new", started=3), pod("a", started=1), pod("b", started=2))
        node.seconds = 4
        node.kubelet(listed("new", A), listed("a", f"{A}::0"), listed("b", f"{A}::1"))
        assert (node.held(), node.shares(A)) == ({A: ["new/main"]}, [1.0])
        assert node.conflicts() == {A: 2}


class TestTwoOnOneDevice:
    """Rule 5: the kubelet gives a device to one pod at a time."""

    @staticmethod
    def both(*pods: Pod) -> Cluster:
        node = Cluster()
        if pods:
            node.pods(*pods)
        node.seconds = 100
        node.kubelet(listed("a", A), listed("b", A))
        return node

    @pytest.mark.parametrize(
        ("starts", "holder"),
        [((1, 2), "b"), ((2, 1), "a")],
    )
    def test_the_pod_that_started_last_holds_it(self, starts: tuple[int, int], holder: str) -> None:
        node = self.both(pod("a", started=starts[0]), pod("b", started=starts[1]))
        assert node.held() == {A: [f"{holder}/main"]}
        assert (node.conflicts(), node.shares(A)) == ({A: 1}, [1.0])

    def test_a_container_that_starts_again_and_again_makes_its_pod_no_younger(self) -> None:
        node = self.both(
            pod("a", container(started=9), started=1), pod("b", container(started=5), started=2)
        )
        assert node.held() == {A: ["b/main"]}

    @pytest.mark.parametrize(
        "pods",
        [
            pytest.param([], id="no source of pods"),
            pytest.param([pod("a")], id="one start is unknown"),
            pytest.param([pod("a"), pod("b")], id="they started together"),
        ],
    )
    def test_without_a_last_one_both_are_shown_as_a_conflict(self, pods: list[Pod]) -> None:
        node = self.both(*pods)
        assert node.held() == {A: ["a/main", "b/main"]}
        assert (node.conflicts(), node.shares(A)) == ({A: 2}, [None, None])

    def test_the_source_s_own_times_do_where_nobody_tells_of_pods(self) -> None:
        node = Cluster()
        node.kubelet(replace(listed("a", A), since=pod("", started=7).started))
        node.checkpoint(replace(kept("1", A), since=pod("", started=6).started))
        assert node.held() == {A: ["a/main"]}

    def test_a_pod_that_ended_leaves_no_conflict(self) -> None:
        node = self.both(pod("a", started=1, ended=True), pod("b", started=1))
        assert (node.held(), node.conflicts()) == ({A: ["b/main"]}, {})

    def test_whoever_the_kubelet_gave_it_to_has_it_alone_even_if_others_say_so_too(self) -> None:
        node = self.both(pod("a", started=1), pod("b", started=2))
        node.file(filed("a", A), filed("b", A))
        assert (node.held(), node.shares(A)) == ({A: ["b/main"]}, [1.0])


class TestContainersOfOnePod:
    """Rule 6."""

    def test_an_init_container_s_device_passes_on_to_the_app(self) -> None:
        node = Cluster()
        containers = (container("prepare", "init", started=1), container("main"))
        node.pods(pod("a", *containers))
        node.checkpoint(kept(uid_of("a"), A, container="prepare"), kept(uid_of("a"), A))
        assert node.held() == {A: ["a/main", "a/prepare"]}
        ended = replace(containers[0], ended=True)
        node.upsert(pod("a", ended, containers[1]))
        assert (node.held(), node.shares(A)) == ({A: ["a/main"]}, [1.0])
        assert node.conflicts() == {}

    def test_an_init_container_that_alone_had_a_device_is_all_there_is(self) -> None:
        node = Cluster()
        node.pods(pod("a", container("prepare", "init", ended=True), container("main")))
        node.checkpoint(kept(uid_of("a"), A, container="prepare"))
        assert node.held() == {A: ["a/prepare"]}

    def test_a_sidecar_stays(self) -> None:
        node = Cluster()
        node.pods(pod("a", container("proxy", "sidecar", started=1), container("main", started=2)))
        node.kubelet(listed("a", A, container="proxy"), listed("a", B))
        assert node.held() == {A: ["a/proxy"], B: ["a/main"]}

    def test_one_that_completed_yields_on_that_device_alone(self) -> None:
        node = Cluster()
        node.pods(pod("a", container("first", ended=True), container("main")))
        node.kubelet(listed("a", A, B, container="first"), listed("a", B))
        assert node.held() == {A: ["a/first"], B: ["a/main"]}


class TestShares:
    """Rule 7, and whose share is shown."""

    @pytest.mark.parametrize(
        ("shares", "expected"),
        [
            ([0.5, 0.5], [0.5, 0.5]),
            ([0.5, None], [0.5, None]),
            ([0.1] * 10, [0.1] * 10),
            ([1 / 49] * 49, [1 / 49] * 49),
            ([0.6, 0.5], [None, None]),
            ([0.6, 0.5, None], [None, None, None]),
        ],
    )
    def test_what_comes_to_more_than_a_whole_is_not_believed(
        self, shares: list[float | None], expected: list[float | None]
    ) -> None:
        node = Cluster()
        node.file(*(filed(f"p{n:02}", A, share=share) for n, share in enumerate(shares)))
        assert node.shares(A) == expected
        assert node.conflicts() == ({} if expected == shares else {A: len(shares)})

    def test_one_alone_with_the_kubelet_s_id_has_all_of_it(self) -> None:
        node = Cluster()
        node.kubelet(listed("a", A), listed("b", f"{B}::0"))
        node.file(filed("c", C))
        assert [node.shares(device) for device in (A, B, C)] == [[1.0], [None], [None]]

    def test_an_overruled_word_may_know_the_share(self) -> None:
        node = Cluster()
        node.pods(pod("a", claims=[annotated("a", A, container="main", share=0.5)]))
        node.runtime(ran("a", A))
        assert node.shares(A) == [0.5]
        assert node.on(A).holders[0].evidence is Evidence.RUNTIME_ENV

    def test_of_several_the_best_founded_share_counts(self) -> None:
        node = Cluster()
        node.pods(pod("a", claims=[annotated("a", A, container="main", share=0.5)]))
        node.file(filed("a", A, share=0.25))
        node.runtime(ran("a", A))
        assert node.shares(A) == [0.5]

    @pytest.mark.parametrize(
        ("containers", "runs", "expected"),
        [
            pytest.param(["main"], ["main"], [0.5], id="its only container"),
            pytest.param(["main", "other"], ["main"], [0.5], id="only one of two has the device"),
            pytest.param(["main", "other"], ["main", "other"], [None, None], id="both have it"),
            pytest.param(["main", "other"], [], [0.5], id="nobody tells which"),
        ],
    )
    def test_a_pod_s_share_is_a_container_s_if_no_other_has_any_of_it(
        self, containers: list[str], runs: list[str], expected: list[float | None]
    ) -> None:
        node = Cluster()
        claims = [annotated("a", A, share=0.5)]
        node.pods(pod("a", *(container(name) for name in containers), claims=claims))
        node.runtime(*(ran("a", A, container=name) for name in runs))
        assert node.shares(A) == expected

    def test_a_share_is_of_one_device_and_not_of_another(self) -> None:
        node = Cluster()
        node.pods(pod("a", claims=[annotated("a", A, container="main", share=0.5)]))
        node.runtime(ran("a", A, B))
        assert (node.shares(A), node.shares(B)) == ([0.5], [None])


class TestWhoHasTheWord:
    """Rule 8."""

    def test_on_equal_evidence_the_earlier_source(self) -> None:
        node = Cluster()
        node.pods(pod("a"))
        node.checkpoint(kept(uid_of("a"), A))
        node.kubelet(listed("a", A))
        assert [holder.source for holder in node.on(A).holders] == ["kubelet"]
        node.say(SourceAdded(7), "kubelet", "kubelet")
        assert [holder.source for holder in node.on(A).holders] == ["checkpoint"]

    @pytest.mark.parametrize("turned", [False, True])
    def test_of_one_source_the_order_is_no_matter(self, turned: bool) -> None:
        node = Cluster()
        twice = [filed("a", A, share=0.25), filed("a", A, share=0.5), filed("a", A)]
        node.file(*(reversed(twice) if turned else twice))
        assert node.shares(A) == [0.25]


class TestKoordinator:
    """Pod-level fractions by minor number, and a proxy that credits them to the first container."""

    def test_without_pods_the_proxy_s_word_is_all_there_is(self) -> None:
        node = Cluster()
        node.kubelet(listed("a", A, container="first"))
        assert node.held() == {A: ["a/first"]}

    def test_with_pods_the_first_container_is_not_made_up(self) -> None:
        node = Cluster()
        claims = [annotated("a", "3", scheme="minor", share=0.5)]
        node.pods(pod("a", container("first"), container("second"), claims=claims))
        node.kubelet(listed("a", A, container="first"))
        assert (node.held(), node.shares(A)) == ({A: ["a/"]}, [0.5])

    def test_two_halves_that_the_proxy_lists_as_wholes(self) -> None:
        node = Cluster()
        half = {"scheme": "minor", "share": 0.5}
        node.pods(*(pod(name, claims=[annotated(name, "3", **half)]) for name in "ab"))  # type: ignore[arg-type]
        node.kubelet(listed("a", A), listed("b", A))
        assert (node.held(), node.shares(A)) == ({A: ["a/main", "b/main"]}, [0.5, 0.5])
        assert node.conflicts() == {}

    def test_an_annotation_that_contradicts_the_kubelet(self) -> None:
        node = Cluster()
        node.pods(pod("a", claims=[annotated("a", "0", scheme="minor", share=1)]))
        node.kubelet(listed("a", A))
        assert list(node.held().values()) == [["a/main"]]
        assert node.on(A).holders == ()

    def test_the_environment_that_its_hook_set_names_the_containers(self) -> None:
        node = Cluster()
        claims = [annotated("a", "3", scheme="minor", share=0.5)]
        node.pods(pod("a", container("first"), container("second"), claims=claims))
        ref = PartialRef("ml", "a", "second", uid_of("a"))
        node.runtime(said(Evidence.RUNTIME_ENV, ref, ["3"], "minor"))
        assert (node.held(), node.shares(A)) == ({A: ["a/second"]}, [0.5])


class TestEnvironment:
    """`NVIDIA_VISIBLE_DEVICES` is written by those who give out devices, and by anybody else."""

    def test_alone_it_holds_what_nobody_was_given(self) -> None:
        node = Cluster()
        node.runtime(ran("monitor", A))
        assert node.held() == {A: ["monitor/main"]}

    @pytest.mark.parametrize(
        "given",
        [
            pytest.param(listed("train", A), id="by the kubelet"),
            pytest.param(filed("train", A), id="in podlist.json"),
            pytest.param(annotated("train", A), id="by a scheduler"),
        ],
    )
    def test_it_takes_no_device_from_a_pod_that_was_given_it(self, given: Claim) -> None:
        node = Cluster()
        node.runtime(ran("monitor", A, B), ran("train", A))
        node.kubelet(given)
        assert node.held() == {A: ["train/main"], B: ["monitor/main"]}
        assert node.conflicts() == {A: 1}

    def test_it_is_the_best_word_on_a_pod_that_was_given_some(self) -> None:
        """The plugin handed out another one than the kubelet asked for."""
        node = Cluster()
        node.kubelet(listed("train", A))
        node.runtime(ran("train", B))
        assert node.held() == {B: ["train/main"]}


class TestPodListFile:
    def test_it_goes_before_the_kubelet_s_ids(self) -> None:
        node = Cluster()
        node.kubelet(listed("a", A))
        node.file(filed("a", B))
        assert node.held() == {B: ["a/main"]}

    def test_another_pod_that_it_names_overrules_the_kubelet_s_and_is_a_conflict(self) -> None:
        node = Cluster()
        node.kubelet(listed("a", A))
        node.file(filed("b", A))
        assert (node.held(), node.conflicts()) == ({A: ["b/main"]}, {A: 1})

    def test_a_pod_in_it_that_is_gone_yields(self) -> None:
        node = Cluster()
        node.pods(pod("a"), pod("b"))
        node.kubelet(listed("a", A))
        node.file(filed("b", A))
        node.delete("b")
        assert (node.held(), node.conflicts()) == ({A: ["a/main"]}, {})


class TestOddities:
    def test_a_claim_that_names_nobody_shows_that_somebody_holds_it(self) -> None:
        node = Cluster()
        node.file(said(Evidence.POD_LIST_FILE, PartialRef(), [A], "uuid"))
        assert node.held() == {A: ["/"]}

    def test_a_device_named_twice_is_held_once(self) -> None:
        node = Cluster()
        node.kubelet(listed("a", A, A, "nvidia3", A.upper()))
        assert (node.held(), node.shares(A)) == ({A: ["a/main"]}, [1.0])

    def test_an_index_that_a_missing_gpu_had_is_the_present_one_s(self) -> None:
        node = Cluster(GPUS[:2])
        node.runtime(ran("a", "0"))
        assert node.held() == {A: ["a/main"]}
        node.has(replace(GPUS[1], index=0))
        assert node.held() == {B: ["a/main"]}

    def test_time_that_goes_back_changes_nothing(self) -> None:
        node = Cluster()
        node.seconds = 100
        node.pods(pod("a", claims=[annotated("a", B)]))
        node.kubelet(listed("a", A))
        node.seconds = 5
        node.say(ClockTicked(), "", "clock")
        node.kubelet(listed("a", A), listed("c", C))
        assert node.held() == {B: ["a/main"], C: ["c/main"]}
