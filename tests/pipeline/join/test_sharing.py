"""Several pods on one device, several containers of one pod, and the share that each has."""

from dataclasses import replace

import pytest

from pipeline.model import Claim, Evidence, PartialRef, Pod
from tests.pipeline.join.cluster import (
    GPUS,
    A,
    B,
    C,
    Cluster,
    annotation_claim,
    checkpoint_claim,
    container,
    kubelet_claim,
    make_claim,
    plugin_answer,
    pod,
    podlist_claim,
    runtime_claim,
    uid_of,
)


class TestParts:
    """Rule 4: parts of a device that several pods can hold together."""

    @pytest.mark.parametrize(
        "ids",
        [
            (f"{A}::0", f"{A}::1"),
            ("nvidia3/vgpu0", "nvidia3/vgpu1"),
            (f"{A}::0", f"{A}::0"),
        ],
    )
    def test_replicas_are_parts_of_a_device(self, ids: tuple[str, str]) -> None:
        node = Cluster()
        node.pods(pod("a", started=1), pod("b", started=2))
        node.seconds = 3
        node.kubelet(*(kubelet_claim(name, text) for name, text in zip("ab", ids, strict=True)))
        assert node.held() == {A: ["a/main", "b/main"]}
        assert (node.conflicts(), node.shares(A)) == ({}, [None, None])

    def test_several_replicas_in_one_container_are_one_holder(self) -> None:
        node = Cluster()
        node.kubelet(kubelet_claim("a", f"{A}::0", f"{A}::1"))
        assert (node.held(), node.shares(A)) == ({A: ["a/main"]}, [None])

    def test_holders_have_the_replicas_of_their_container(self) -> None:
        node = Cluster()
        node.kubelet(
            kubelet_claim("a", f"{A}::10", f"{A}::2"),
            kubelet_claim("b", f"{A}::3"),
            kubelet_claim("c", B, "x::1"),
        )
        assert [h.replicas for h in node.attribution(A).holders] == [("2", "10"), ("3",)]
        assert [h.replicas for h in node.attribution(B).holders] == [()]

    def test_holders_have_replicas_if_stronger_evidence_names_only_the_device(self) -> None:
        node = Cluster()
        node.runtime(runtime_claim("a", A))
        node.kubelet(kubelet_claim("a", f"{A}::1"))
        [holder] = node.attribution(A).holders
        assert (holder.evidence, holder.replicas) == (Evidence.RUNTIME_NODES, ("1",))

    @pytest.mark.parametrize("reverse", [False, True])
    def test_a_replica_and_the_whole_device_in_one_claim_are_a_part(self, reverse: bool) -> None:
        ids = [f"{A}::0", A]
        node = Cluster()
        node.kubelet(
            kubelet_claim("a", *(reversed(ids) if reverse else ids)), kubelet_claim("b", f"{A}::1")
        )
        assert node.held() == {A: ["a/main", "b/main"]}
        assert node.conflicts() == {}

    def test_pods_have_the_shares_that_a_scheduler_gave(self) -> None:
        node = Cluster()
        node.pods(
            pod("a", claims=[annotation_claim("a", "3", scheme="minor", share=0.5)]),
            pod("b", claims=[annotation_claim("b", A, share=0.25)]),
        )
        assert node.held() == {A: ["a/main", "b/main"]}
        assert node.shares(A) == [0.5, 0.25]
        assert node.conflicts() == {}

    def test_t01_an_annotation_has_no_effect_on_a_device_offered_as_replicas(self) -> None:
        node = Cluster()
        node.pods(pod("a", claims=[annotation_claim("a", A, share=0.5)]), pod("b"))
        node.kubelet(kubelet_claim("b", f"{A}::1"))
        assert node.held() == {A: ["b/main"]}

    def test_claims_without_a_share_do_not_conflict(self) -> None:
        node = Cluster()
        node.file(podlist_claim("a", A), podlist_claim("b", A))
        assert node.held() == {A: ["a/main", "b/main"]}
        assert (node.conflicts(), node.shares(A)) == ({}, [None, None])

    def test_several_pods_share_a_resource_claim(self) -> None:
        node = Cluster()
        node.pods(pod("a", started=1), pod("b", started=2))
        node.seconds = 3
        node.kubelet(
            *(
                make_claim(
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
        ("partial", "exclusive"),
        [
            pytest.param(
                replace(annotation_claim("a", A, share=0.5), vouched=True),
                podlist_claim("c", A),
                id="weaker evidence",
            ),
            pytest.param(
                podlist_claim("a", A, share=0.5),
                podlist_claim("c", A, share=1),
                id="same evidence, earlier start",
            ),
        ],
    )
    def test_an_overruled_exclusive_claim_leaves_the_device_to_all_partial_claims(
        self, partial: Claim, exclusive: Claim
    ) -> None:
        node = Cluster()
        node.pods(pod("a", started=2), pod("b", started=1), pod("c", started=0))
        node.seconds = 3
        node.file(partial, exclusive)
        node.kubelet(kubelet_claim("b", f"{A}::1"))
        assert node.held() == {A: ["a/main", "b/main"]}
        assert node.conflicts() == {A: 1}

    def test_a_scheduler_s_share_of_1_is_exclusive_despite_placeholders(
        self,
    ) -> None:
        node = Cluster(GPUS[:1])
        node.pods(pod("a", claims=[annotation_claim("a", A, share=1)]), pod("b"))
        node.kubelet(kubelet_claim("a", f"{A}-0"), kubelet_claim("b", f"{A}-1"))
        assert (node.held(), node.shares(A)) == ({A: ["a/main"]}, [1.0])
        assert node.conflicts() == {A: 1}

    def test_pods_with_replicas_replace_an_older_exclusive_holder(self) -> None:
        node = Cluster()
        node.pods(pod("old", started=0), pod("a", started=1), pod("b", started=2))
        node.seconds = 3
        node.kubelet(
            kubelet_claim("old", A), kubelet_claim("a", f"{A}::0"), kubelet_claim("b", f"{A}::1")
        )
        assert node.held() == {A: ["a/main", "b/main"]}
        assert node.conflicts() == {A: 1}

    def test_a_newer_exclusive_holder_replaces_pods_with_replicas(self) -> None:
        node = Cluster()
        node.pods(pod("new", started=3), pod("a", started=1), pod("b", started=2))
        node.seconds = 4
        node.kubelet(
            kubelet_claim("new", A), kubelet_claim("a", f"{A}::0"), kubelet_claim("b", f"{A}::1")
        )
        assert (node.held(), node.shares(A)) == ({A: ["new/main"]}, [1.0])
        assert node.conflicts() == {A: 2}


class TestTwoOnOneDevice:
    """Rule 5: the kubelet allocates a device to one pod at a time."""

    @staticmethod
    def both(*pods: Pod) -> Cluster:
        node = Cluster()
        if pods:
            node.pods(*pods)
        node.seconds = 100
        node.kubelet(kubelet_claim("a", A), kubelet_claim("b", A))
        return node

    @pytest.mark.parametrize(
        ("starts", "holder"),
        [((1, 2), "b"), ((2, 1), "a")],
    )
    def test_the_pod_that_started_last_holds_it(self, starts: tuple[int, int], holder: str) -> None:
        node = self.both(pod("a", started=starts[0]), pod("b", started=starts[1]))
        assert node.held() == {A: [f"{holder}/main"]}
        assert (node.conflicts(), node.shares(A)) == ({A: 1}, [1.0])

    def test_restarts_of_a_container_do_not_change_the_start_of_its_pod(self) -> None:
        node = self.both(
            pod("a", container(started=9), started=1), pod("b", container(started=5), started=2)
        )
        assert node.held() == {A: ["b/main"]}

    @pytest.mark.parametrize(
        "pods",
        [
            pytest.param([], id="no source of pods"),
            pytest.param([pod("a")], id="one start unknown"),
            pytest.param([pod("a"), pod("b")], id="same start"),
        ],
    )
    def test_pods_without_different_starts_are_shown_as_a_conflict(self, pods: list[Pod]) -> None:
        node = self.both(*pods)
        assert node.held() == {A: ["a/main", "b/main"]}
        assert (node.conflicts(), node.shares(A)) == ({A: 2}, [None, None])

    @pytest.mark.parametrize(
        ("shares", "conflicts"),
        [
            pytest.param([1.0, None], {A: 2}, id="nothing left for the second"),
            pytest.param([0.5, 0.5, None], {A: 3}, id="nothing left for the third"),
            pytest.param([0.5, None], {}, id="a part left"),
            pytest.param([0.5, 0.5], {}, id="sum is 1"),
            pytest.param([1.0, 0.5], {A: 2}, id="sum above 1"),
        ],
    )
    def test_shares_that_do_not_fit_are_a_conflict(
        self, shares: list[float | None], conflicts: dict[str, int]
    ) -> None:
        node = Cluster()
        node.file(
            *(replace(podlist_claim(f"p{at}", A), share=share) for at, share in enumerate(shares))
        )
        assert len(node.held()[A]) == len(shares)
        assert node.conflicts() == conflicts

    def test_the_strongest_evidence_of_a_container_counts_whichever_source_is_shown(self) -> None:
        """Rule 8 selects the source that is shown; the container's rank stays the same."""
        node = Cluster()
        node.pods(pod("a", started=1), pod("b", started=2))
        node.seconds = 4
        node.kubelet(kubelet_claim("a", A, resource="example.com/gpu"), kubelet_claim("b", A))
        node.checkpoint(plugin_answer(uid_of("a"), [B], A))
        assert (node.held(), node.conflicts()) == ({A: ["a/main"]}, {A: 1})

    def test_start_times_of_claims_decide_without_a_source_of_pods(self) -> None:
        node = Cluster()
        node.kubelet(replace(kubelet_claim("a", A), since=pod("", started=7).started))
        node.checkpoint(replace(checkpoint_claim("1", A), since=pod("", started=6).started))
        assert node.held() == {A: ["a/main"]}

    def test_an_ended_pod_causes_no_conflict(self) -> None:
        node = self.both(pod("a", started=1, ended=True), pod("b", started=1))
        assert (node.held(), node.conflicts()) == ({A: ["b/main"]}, {})

    def test_the_kubelet_s_claim_is_exclusive_though_weaker_claims_name_both_pods(self) -> None:
        node = self.both(pod("a", started=1), pod("b", started=2))
        node.file(podlist_claim("a", A), podlist_claim("b", A))
        assert (node.held(), node.shares(A)) == ({A: ["b/main"]}, [1.0])


class TestContainersOfOnePod:
    """Rule 6."""

    def test_an_ended_init_container_leaves_its_device_to_the_app(self) -> None:
        node = Cluster()
        containers = (container("prepare", "init", started=1), container("main"))
        node.pods(pod("a", *containers))
        node.checkpoint(
            checkpoint_claim(uid_of("a"), A, container="prepare"), checkpoint_claim(uid_of("a"), A)
        )
        assert node.held() == {A: ["a/main", "a/prepare"]}
        ended = replace(containers[0], ended=True)
        node.upsert(pod("a", ended, containers[1]))
        assert (node.held(), node.shares(A)) == ({A: ["a/main"]}, [1.0])
        assert node.conflicts() == {}

    def test_an_ended_init_container_is_shown_if_no_other_has_the_device(self) -> None:
        node = Cluster()
        node.pods(pod("a", container("prepare", "init", ended=True), container("main")))
        node.checkpoint(checkpoint_claim(uid_of("a"), A, container="prepare"))
        assert node.held() == {A: ["a/prepare"]}

    def test_a_sidecar_holds_its_device(self) -> None:
        node = Cluster()
        node.pods(pod("a", container("proxy", "sidecar", started=1), container("main", started=2)))
        node.kubelet(kubelet_claim("a", A, container="proxy"), kubelet_claim("a", B))
        assert node.held() == {A: ["a/proxy"], B: ["a/main"]}

    def test_a_completed_container_releases_only_the_device_that_another_has(self) -> None:
        node = Cluster()
        node.pods(pod("a", container("first", ended=True), container("main")))
        node.kubelet(kubelet_claim("a", A, B, container="first"), kubelet_claim("a", B))
        assert node.held() == {A: ["a/first"], B: ["a/main"]}


class TestShares:
    """Rule 7, and which share is shown."""

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
    def test_shares_with_a_sum_above_1_are_unknown(
        self, shares: list[float | None], expected: list[float | None]
    ) -> None:
        node = Cluster()
        node.file(*(podlist_claim(f"p{n:02}", A, share=share) for n, share in enumerate(shares)))
        assert node.shares(A) == expected
        assert node.conflicts() == ({} if expected == shares else {A: len(shares)})

    def test_the_only_holder_with_an_id_of_the_kubelet_has_the_whole_device(self) -> None:
        node = Cluster()
        node.kubelet(kubelet_claim("a", A), kubelet_claim("b", f"{B}::0"))
        node.file(podlist_claim("c", C))
        assert [node.shares(device) for device in (A, B, C)] == [[1.0], [None], [None]]

    def test_the_share_may_come_from_an_overruled_claim(self) -> None:
        node = Cluster()
        node.pods(pod("a", claims=[annotation_claim("a", A, container="main", share=0.5)]))
        node.runtime(runtime_claim("a", A))
        assert node.shares(A) == [0.5]
        assert node.attribution(A).holders[0].evidence is Evidence.RUNTIME_NODES

    def test_the_share_of_the_strongest_evidence_counts(self) -> None:
        node = Cluster()
        node.pods(pod("a", claims=[annotation_claim("a", A, container="main", share=0.5)]))
        node.file(podlist_claim("a", A, share=0.25))
        node.runtime(runtime_claim("a", A))
        assert node.shares(A) == [0.5]

    @pytest.mark.parametrize(
        ("containers", "runs", "expected"),
        [
            pytest.param(["main"], ["main"], [0.5], id="only container"),
            pytest.param(["main", "other"], ["main"], [0.5], id="one of two has the device"),
            pytest.param(["main", "other"], ["main", "other"], [None, None], id="both have it"),
            pytest.param(["main", "other"], [], [0.5], id="unknown which has it"),
        ],
    )
    def test_the_share_of_a_pod_is_its_container_s_if_no_other_container_has_the_device(
        self, containers: list[str], runs: list[str], expected: list[float | None]
    ) -> None:
        node = Cluster()
        claims = [annotation_claim("a", A, share=0.5)]
        node.pods(pod("a", *(container(name) for name in containers), claims=claims))
        node.runtime(*(runtime_claim("a", A, container=name) for name in runs))
        assert node.shares(A) == expected

    def test_a_share_applies_to_one_device_only(self) -> None:
        node = Cluster()
        node.pods(pod("a", claims=[annotation_claim("a", A, container="main", share=0.5)]))
        node.runtime(runtime_claim("a", A, B))
        assert (node.shares(A), node.shares(B)) == ([0.5], [None])
