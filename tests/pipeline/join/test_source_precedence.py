"""Which of several sources counts, and unusual claims."""

from dataclasses import replace

import pytest

from pipeline.model import Claim, ClockTicked, Evidence, PartialRef, SourceAdded
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
    pod,
    podlist_claim,
    runtime_claim,
    uid_of,
)


class TestSourceOrder:
    """Rule 8: with equal evidence, the order of sources decides."""

    def test_with_equal_evidence_the_earlier_source_is_shown(self) -> None:
        node = Cluster()
        node.pods(pod("a"))
        node.checkpoint(checkpoint_claim(uid_of("a"), A))
        node.kubelet(kubelet_claim("a", A))
        assert [holder.source for holder in node.attribution(A).holders] == ["kubelet"]
        node.say(SourceAdded(7), "kubelet", "kubelet")
        assert [holder.source for holder in node.attribution(A).holders] == ["checkpoint"]

    @pytest.mark.parametrize("reverse", [False, True])
    def test_the_order_of_claims_within_a_source_does_not_matter(self, reverse: bool) -> None:
        node = Cluster()
        claims = [
            podlist_claim("a", A, share=0.25),
            podlist_claim("a", A, share=0.5),
            podlist_claim("a", A),
        ]
        node.file(*(reversed(claims) if reverse else claims))
        assert node.shares(A) == [0.25]


REQUESTS = ("koordinator.sh/gpu-core",)


class TestKoordinator:
    """Shares of pods by minor number, and a proxy that reports them for the first container."""

    def test_without_pods_only_the_proxy_s_claim_is_known(self) -> None:
        node = Cluster()
        node.kubelet(kubelet_claim("a", A, container="first"))
        assert node.held() == {A: ["a/first"]}

    def test_with_pods_the_share_is_not_attributed_to_the_first_container(self) -> None:
        node = Cluster()
        claims = [annotation_claim("a", "3", scheme="minor", share=0.5)]
        node.pods(
            pod("a", container("first"), container("second"), claims=claims, requests=REQUESTS)
        )
        node.kubelet(kubelet_claim("a", A, container="first"))
        assert (node.held(), node.shares(A)) == ({A: ["a/"]}, [0.5])

    def test_two_half_shares_that_the_proxy_lists_as_whole_devices_do_not_conflict(self) -> None:
        node = Cluster()
        half = {"scheme": "minor", "share": 0.5}
        node.pods(
            *(
                pod(
                    name,
                    claims=[annotation_claim(name, "3", **half)],  # type: ignore[arg-type]
                    requests=REQUESTS,
                )
                for name in "ab"
            )
        )
        node.kubelet(kubelet_claim("a", A), kubelet_claim("b", A))
        assert (node.held(), node.shares(A)) == ({A: ["a/main", "b/main"]}, [0.5, 0.5])
        assert node.conflicts() == {}

    def test_an_annotation_that_contradicts_the_kubelet_replaces_its_claim(self) -> None:
        node = Cluster()
        claims = [annotation_claim("a", "0", scheme="minor", share=1)]
        node.pods(pod("a", claims=claims, requests=REQUESTS))
        node.kubelet(kubelet_claim("a", A))
        assert list(node.held().values()) == [["a/main"]]
        assert node.attribution(A).holders == ()

    def test_the_variable_that_the_hook_set_names_the_container(self) -> None:
        node = Cluster()
        claims = [annotation_claim("a", "3", scheme="minor", share=0.5)]
        node.pods(pod("a", container("first"), container("second"), claims=claims))
        ref = PartialRef("ml", "a", "second", uid_of("a"))
        node.runtime(make_claim(Evidence.RUNTIME_ENV, ref, ["3"], "minor"))
        assert node.attribution(A).access == ()
        assert (node.held(), node.shares(A)) == ({A: ["a/second"]}, [0.5])


def variable(name: str, *ids: str) -> Claim:
    """Return the claim of a container's environment variable."""
    return runtime_claim(name, *ids, evidence=Evidence.RUNTIME_ENV)


class TestEnvironment:
    """Allocators of devices set `NVIDIA_VISIBLE_DEVICES`, and any image or pod may set it."""

    def test_t02_a_variable_is_shown_as_access_and_holds_nothing(self) -> None:
        node = Cluster()
        node.runtime(variable("monitor", A))
        assert node.held() == {}
        assert [one.subject.pod for one in node.attribution(A).access] == ["monitor"]

    @pytest.mark.parametrize(
        "claim",
        [
            pytest.param(kubelet_claim("train", A), id="the kubelet"),
            pytest.param(podlist_claim("train", A), id="podlist.json"),
            pytest.param(annotation_claim("train", A), id="a scheduler"),
        ],
    )
    def test_a_variable_takes_no_device_from_a_pod_with_a_claim(self, claim: Claim) -> None:
        node = Cluster()
        node.runtime(variable("monitor", A, B), variable("train", A))
        node.kubelet(claim)
        assert node.held() == {A: ["train/main"]}
        assert [one.subject.pod for one in node.attribution(B).access] == ["monitor"]

    def test_a_weaker_claim_moves_no_pod_to_another_device(self) -> None:
        node = Cluster()
        node.kubelet(kubelet_claim("train", A))
        node.runtime(variable("train", B))
        assert node.held() == {A: ["train/main"]}

    def test_a_variable_resolves_a_placeholder_if_no_other_claim_does(self) -> None:
        node = Cluster()
        node.kubelet(kubelet_claim("train", f"{A}-3"))
        node.runtime(variable("train", B))
        assert node.held() == {B: ["train/main"]}
        # The variable names more devices than the kubelet allocated.
        node.runtime(variable("train", B, C))
        assert node.held() == {}


class TestPodListFile:
    def test_a_weaker_claim_moves_no_pod_to_another_device(self) -> None:
        node = Cluster()
        node.kubelet(kubelet_claim("a", A))
        node.file(podlist_claim("a", B))
        assert node.held() == {A: ["a/main"]}

    def test_the_file_resolves_a_placeholder(self) -> None:
        node = Cluster()
        node.kubelet(kubelet_claim("a", f"{A}-3"))
        node.file(podlist_claim("a", B))
        assert node.held() == {B: ["a/main"]}

    def test_another_pod_in_the_file_is_a_conflict(self) -> None:
        node = Cluster()
        node.kubelet(kubelet_claim("a", A))
        node.file(podlist_claim("b", A))
        assert (node.held(), node.conflicts()) == ({A: ["a/main"]}, {A: 1})

    def test_a_deleted_pod_in_the_file_causes_no_conflict(self) -> None:
        node = Cluster()
        node.pods(pod("a"), pod("b"))
        node.kubelet(kubelet_claim("a", A))
        node.file(podlist_claim("b", A))
        node.delete("b")
        assert (node.held(), node.conflicts()) == ({A: ["a/main"]}, {})


class TestUnusualClaims:
    def test_a_claim_without_a_pod_name_holds_the_device(self) -> None:
        node = Cluster()
        node.file(make_claim(Evidence.POD_LIST_FILE, PartialRef(), [A], "uuid"))
        assert node.held() == {A: ["/"]}

    def test_a_device_that_is_claimed_twice_is_held_once(self) -> None:
        node = Cluster()
        node.kubelet(kubelet_claim("a", A, A, "nvidia3", A.upper()))
        assert (node.held(), node.shares(A)) == ({A: ["a/main"]}, [1.0])

    def test_an_index_of_a_missing_gpu_means_the_present_gpu_with_that_index(self) -> None:
        node = Cluster(GPUS[:2])
        node.runtime(runtime_claim("a", "0"))
        assert node.held() == {A: ["a/main"]}
        node.has(replace(GPUS[1], index=0))
        assert node.held() == {B: ["a/main"]}

    def test_a_clock_that_goes_back_changes_nothing(self) -> None:
        node = Cluster()
        node.seconds = 100
        node.pods(pod("a", claims=[annotation_claim("a", B)]))
        node.kubelet(kubelet_claim("a", A))
        node.seconds = 5
        node.say(ClockTicked(), "", "clock")
        node.kubelet(kubelet_claim("a", A), kubelet_claim("c", C))
        assert node.held() == {A: ["a/main"], C: ["c/main"]}
