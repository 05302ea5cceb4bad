"""Several pods on one device, several containers of one pod, and what part of it each has."""

from dataclasses import replace

import pytest

from pipeline.model import Claim, Evidence, PartialRef, Pod
from tests.pipeline.join.cluster import (
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
)


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

    def test_which_replicas_a_container_has_is_reported(self) -> None:
        node = Cluster()
        node.kubelet(
            listed("a", f"{A}::10", f"{A}::2"), listed("b", f"{A}::3"), listed("c", B, "x::1")
        )
        assert [h.replicas for h in node.on(A).holders] == [("2", "10"), ("3",)]
        assert [h.replicas for h in node.on(B).holders] == [()]

    def test_so_it_is_where_better_evidence_names_the_device_alone(self) -> None:
        node = Cluster()
        node.runtime(ran("a", A))
        node.kubelet(listed("a", f"{A}::1"))
        [holder] = node.on(A).holders
        assert (holder.evidence, holder.replicas) == (Evidence.RUNTIME_NODES, ("1",))

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

    def test_t01_a_device_that_a_plugin_gives_out_by_replicas_is_no_schedulers(self) -> None:
        node = Cluster()
        node.pods(pod("a", claims=[annotated("a", A, share=0.5)]), pod("b"))
        node.kubelet(listed("b", f"{A}::1"))
        assert node.held() == {A: ["b/main"]}

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
            pytest.param(
                replace(annotated("a", A, share=0.5), vouched=True), filed("c", A), id="weaker"
            ),
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

    @pytest.mark.parametrize(
        ("shares", "conflicts"),
        [
            pytest.param([1.0, None], {A: 2}, id="nothing is left for the second"),
            pytest.param([0.5, 0.5, None], {A: 3}, id="nor for a third"),
            pytest.param([0.5, None], {}, id="something is left"),
            pytest.param([0.5, 0.5], {}, id="it fits"),
            pytest.param([1.0, 0.5], {A: 2}, id="more than there is"),
        ],
    )
    def test_who_holds_some_of_what_others_hold_whole_contradicts_them(
        self, shares: list[float | None], conflicts: dict[str, int]
    ) -> None:
        node = Cluster()
        node.file(*(replace(filed(f"p{at}", A), share=share) for at, share in enumerate(shares)))
        assert len(node.held()[A]) == len(shares)
        assert node.conflicts() == conflicts

    def test_the_best_evidence_of_a_container_counts_whichever_source_is_named(self) -> None:
        """Rule 8 names the source that stands earlier, and takes no rank from the container."""
        node = Cluster()
        node.pods(pod("a", started=1), pod("b", started=2))
        node.seconds = 4
        node.kubelet(listed("a", A, resource="example.com/gpu"), listed("b", A))
        node.checkpoint(answered(uid_of("a"), [B], A))
        assert (node.held(), node.conflicts()) == ({A: ["a/main"]}, {A: 1})

    def test_the_source_s_own_times_do_where_no_one_reports_of_pods(self) -> None:
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
        assert node.on(A).holders[0].evidence is Evidence.RUNTIME_NODES

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
