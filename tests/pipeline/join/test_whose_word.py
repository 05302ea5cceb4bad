"""Which of several sources has the word, and odd things that they say."""

from dataclasses import replace

import pytest

from pipeline.model import Claim, ClockTicked, Evidence, PartialRef, SourceAdded
from tests.pipeline.join.cluster import (
    GPUS,
    A,
    B,
    C,
    Cluster,
    annotated,
    container,
    filed,
    kept,
    listed,
    pod,
    ran,
    said,
    uid_of,
)


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


ASKED = ("koordinator.sh/gpu-core",)


class TestKoordinator:
    """Pod-level fractions by minor number, and a proxy that credits them to the first container."""

    def test_without_pods_the_proxy_s_word_is_all_there_is(self) -> None:
        node = Cluster()
        node.kubelet(listed("a", A, container="first"))
        assert node.held() == {A: ["a/first"]}

    def test_with_pods_the_first_container_is_not_made_up(self) -> None:
        node = Cluster()
        claims = [annotated("a", "3", scheme="minor", share=0.5)]
        node.pods(pod("a", container("first"), container("second"), claims=claims, requests=ASKED))
        node.kubelet(listed("a", A, container="first"))
        assert (node.held(), node.shares(A)) == ({A: ["a/"]}, [0.5])

    def test_two_halves_that_the_proxy_lists_as_wholes(self) -> None:
        node = Cluster()
        half = {"scheme": "minor", "share": 0.5}
        node.pods(
            *(
                pod(name, claims=[annotated(name, "3", **half)], requests=ASKED)  # type: ignore[arg-type]
                for name in "ab"
            )
        )
        node.kubelet(listed("a", A), listed("b", A))
        assert (node.held(), node.shares(A)) == ({A: ["a/main", "b/main"]}, [0.5, 0.5])
        assert node.conflicts() == {}

    def test_an_annotation_that_contradicts_the_kubelet(self) -> None:
        node = Cluster()
        node.pods(pod("a", claims=[annotated("a", "0", scheme="minor", share=1)], requests=ASKED))
        node.kubelet(listed("a", A))
        assert list(node.held().values()) == [["a/main"]]
        assert node.on(A).holders == ()

    def test_the_environment_that_its_hook_set_names_the_containers(self) -> None:
        node = Cluster()
        claims = [annotated("a", "3", scheme="minor", share=0.5)]
        node.pods(pod("a", container("first"), container("second"), claims=claims))
        ref = PartialRef("ml", "a", "second", uid_of("a"))
        node.runtime(said(Evidence.RUNTIME_ENV, ref, ["3"], "minor"))
        assert node.on(A).access == ()
        assert (node.held(), node.shares(A)) == ({A: ["a/second"]}, [0.5])


def seen(name: str, *ids: str) -> Claim:
    """A variable of a container."""
    return ran(name, *ids, evidence=Evidence.RUNTIME_ENV)


class TestEnvironment:
    """`NVIDIA_VISIBLE_DEVICES` is written by those who give out devices, and by anybody else."""

    def test_t02_alone_it_holds_nothing_and_is_shown_as_access(self) -> None:
        node = Cluster()
        node.runtime(seen("monitor", A))
        assert node.held() == {}
        assert [one.subject.pod for one in node.on(A).access] == ["monitor"]

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
        node.runtime(seen("monitor", A, B), seen("train", A))
        node.kubelet(given)
        assert node.held() == {A: ["train/main"]}
        assert [one.subject.pod for one in node.on(B).access] == ["monitor"]

    def test_it_moves_no_device_that_the_kubelet_gave_to_a_pod_alone(self) -> None:
        node = Cluster()
        node.kubelet(listed("train", A))
        node.runtime(seen("train", B))
        assert node.held() == {A: ["train/main"]}

    def test_it_says_which_device_a_placeholder_means_where_nothing_else_does(self) -> None:
        node = Cluster()
        node.kubelet(listed("train", f"{A}-3"))
        node.runtime(seen("train", B))
        assert node.held() == {B: ["train/main"]}
        # No more devices than the kubelet gave.
        node.runtime(seen("train", B, C))
        assert node.held() == {}


class TestPodListFile:
    def test_it_moves_no_device_that_the_kubelet_gave_to_a_pod_alone(self) -> None:
        node = Cluster()
        node.kubelet(listed("a", A))
        node.file(filed("a", B))
        assert node.held() == {A: ["a/main"]}

    def test_it_says_which_device_a_placeholder_means(self) -> None:
        node = Cluster()
        node.kubelet(listed("a", f"{A}-3"))
        node.file(filed("a", B))
        assert node.held() == {B: ["a/main"]}

    def test_another_pod_that_it_names_is_a_conflict(self) -> None:
        node = Cluster()
        node.kubelet(listed("a", A))
        node.file(filed("b", A))
        assert (node.held(), node.conflicts()) == ({A: ["a/main"]}, {A: 1})

    def test_a_pod_in_it_that_is_gone_yields(self) -> None:
        node = Cluster()
        node.pods(pod("a"), pod("b"))
        node.kubelet(listed("a", A))
        node.file(filed("b", A))
        node.delete("b")
        assert (node.held(), node.conflicts()) == ({A: ["a/main"]}, {})


class TestOddities:
    def test_a_claim_that_names_no_one_shows_that_someone_holds_it(self) -> None:
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
        assert node.held() == {A: ["a/main"], C: ["c/main"]}
