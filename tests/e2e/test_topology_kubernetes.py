"""The topology annotation of the Node: API server and kubelet are real, the GPUs are simulated."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from pipeline.topology.document import restored
from tests.e2e.documented import rules
from tests.e2e.kube import access
from tests.e2e.kube.cluster import Cluster
from tests.e2e.kube.plugin import DevicePlugin
from tests.e2e.kube.pods import gpu_pod
from tests.e2e.node_writer import Neighbour
from tests.e2e.processes import wait_until
from tests.e2e.topology_publisher import (
    ACCOUNT,
    IDS,
    MIN_INTERVAL,
    REFRESH,
    SETTLING,
    Publisher,
    annotate,
)

RULES = rules("sinks/node.md")
SLACK = 5.0
"""Reserve in seconds for a busy machine."""

WITHIN = SETTLING + MIN_INTERVAL + SLACK
AGAIN = REFRESH + SLACK

Make = Callable[..., Publisher]


@pytest.fixture
def make(kube: Cluster, tmp_path: Path) -> Iterator[Make]:
    """Start a podgpu with the documented permissions; it is stopped at the end."""
    kubeconfig = access.account(tmp_path, kube.api, ACCOUNT, RULES)
    with ExitStack() as stack:

        def start(**how: Any) -> Publisher:
            publisher = Publisher(kube, tmp_path / "podgpu", kubeconfig, **how)
            return stack.enter_context(publisher.running())

        yield start
    annotate(kube.api, kube.node, None)


@pytest.fixture
def plugin(kube: Cluster) -> DevicePlugin:
    return kube.plugin(IDS)


def without(*held: str) -> list[str]:
    return [device for device in IDS if device not in held]


def test_the_annotation_follows_the_pods(kube: Cluster, plugin: DevicePlugin, make: Make) -> None:
    podgpu = make(kubelet=True)
    podgpu.wait_free(IDS)
    kube.run(gpu_pod("train-0", 2, namespace="ml"))
    left = without(*plugin.asked[0])
    podgpu.wait_known(left)
    podgpu.wait_free(left, WITHIN)
    wait_until(podgpu.agrees, "the annotation equals /topology")
    published = podgpu.published()
    assert published is not None
    topology, free = restored(podgpu.topology())
    assert (published.topology.read, published.free, published.part) == (topology.read, free, 0)
    assert published.refresh == REFRESH
    assert abs(time.time() - published.at) < WITHIN
    assert not published.stale(time.time())
    kube.remove("train-0", "ml")
    podgpu.wait_known(IDS)
    podgpu.wait_free(IDS, WITHIN)
    assert podgpu.up() == 1
    assert "no topology" not in podgpu.output()


def test_changes_by_other_writers_are_overwritten(kube: Cluster, make: Make) -> None:
    podgpu = make()
    podgpu.wait_free(IDS)
    before = podgpu.published()
    annotate(kube.api, kube.node, None)
    podgpu.wait_free(IDS, AGAIN)
    after = podgpu.published()
    assert before is not None
    assert after is not None
    assert REFRESH - SLACK < after.at - before.at < AGAIN
    assert podgpu.overwritten() == 0
    annotate(kube.api, kube.node, "mine")
    podgpu.wait_free(IDS, AGAIN)
    wait_until(lambda: podgpu.overwritten() == 1, "it is counted")
    assert podgpu.up() == 1


def test_concurrent_writes_to_the_node_are_not_lost(kube: Cluster, make: Make) -> None:
    podgpu = make()
    podgpu.wait_free(IDS)
    with Neighbour(kube.api, kube.node) as neighbour:
        for held in (IDS[:1], IDS[:2], IDS[:3], IDS[:4]):
            podgpu.hold({"train-0": held})
            podgpu.wait_known(without(*held))
            podgpu.wait_free(without(*held), WITHIN)
    assert neighbour.lost() == {}
    assert podgpu.free() == IDS[4:]
    assert min(neighbour.writes[kind] for kind in ("annotation", "label", "status", "put")) > 3
    assert podgpu.up() == 1
    assert podgpu.overwritten() == 0
    neighbour.remove()


def test_a_revoked_permission_is_logged_and_retried(kube: Cluster, make: Make) -> None:
    podgpu = make()
    podgpu.wait_free(IDS)
    access.set_rules(kube.api, ACCOUNT, [])
    podgpu.hold({"train-0": IDS[:2]})
    podgpu.wait_up(0)
    wait_until(
        lambda: 'resources ["nodes"], verbs [get, patch]' in podgpu.output(),
        "the missing permission is logged",
    )
    assert podgpu.free() == IDS
    access.set_rules(kube.api, ACCOUNT, RULES)
    podgpu.wait_free(without(*IDS[:2]))
    podgpu.wait_up(1)


def test_the_api_server_is_restarted(kube: Cluster, make: Make) -> None:
    podgpu = make()
    podgpu.wait_free(IDS)
    kube.apiserver.stop()
    podgpu.hold({"train-0": IDS[:2]})
    podgpu.wait_up(0)
    kube.apiserver.start()
    podgpu.wait_free(without(*IDS[:2]), 60)
    podgpu.wait_up(1)
    kube.kubelet.restart()  # without a restart it may take a minute to reconnect


def test_the_annotation_is_removed_at_the_stop(kube: Cluster, make: Make) -> None:
    podgpu = make(options={"remove": "at_stop"})
    podgpu.wait_free(IDS)
    assert podgpu.stop() == 0
    assert podgpu.annotation() is None


def test_a_kept_annotation_is_removed_by_the_next_podgpu(kube: Cluster, make: Make) -> None:
    podgpu = make(options={"remove": "never"})
    podgpu.wait_free(IDS)
    assert podgpu.stop() == 0
    assert podgpu.free() == IDS
    podgpu.change(remove="now")
    podgpu.start()
    wait_until(lambda: podgpu.annotation() is None, "the annotation is removed")


def test_an_unknown_node_name_is_reported(kube: Cluster, make: Make) -> None:
    podgpu = make(options={"node": "elsewhere"})
    podgpu.wait_up(0)
    wait_until(lambda: "kubectl get nodes" in podgpu.output(), "the fix is logged")
    assert "elsewhere" in podgpu.output()
    assert podgpu.annotation() is None
