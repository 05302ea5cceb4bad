"""The scheduler's choice with the extender: the scheduler and one of two nodes are real."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pipeline.topology.node_annotation import KEY
from tests.e2e.documented import rules
from tests.e2e.extender_process import PAGE, REQUIRE, Extender, bound, wait_bound, wait_turned_away
from tests.e2e.kube import access, nodes
from tests.e2e.kube.cluster import Cluster
from tests.e2e.kube.plugin import DevicePlugin
from tests.e2e.kube.pods import GPU, gpu_pod
from tests.e2e.topology_publisher import (
    ACCOUNT,
    IDS,
    MIN_INTERVAL,
    SETTLING,
    Publisher,
    annotate,
    annotations,
)

REAL, MADE = "node1", "node2"
TOGETHER, APART = IDS[4:], IDS[2:4] + IDS[6:]
"""Holding these GPUs leaves four free GPUs in one group, or two in each group."""

LARGE = {"cpu": "256", "memory": "2Ti", GPU: "8"}
SMALL = {"cpu": "200m", "memory": "512Mi", GPU: "8"}
"""Without the extender, the scheduler prefers a large node to the real one, and the real one to a
small one."""

BACKOFF = 10.0
"""The longest time in seconds until the scheduler retries a pod without a node."""

SLACK = 5.0

Publish = Callable[..., Publisher]


class Choice(NamedTuple):
    """The node with four free GPUs in one group, the other's size, and the form of requests."""

    together: str
    made: Mapping[str, str]
    cached: bool


@pytest.fixture
def publish(kube: Cluster, tmp_path: Path) -> Iterator[Publish]:
    """Start a podgpu for each node that writes its annotation; they stop at the end."""
    kubeconfig = access.account(tmp_path, kube.api, ACCOUNT, rules("sinks/node.md"))
    with ExitStack() as stack:

        def start(node: str, **how: Any) -> Publisher:
            made = Publisher(kube, tmp_path / node, kubeconfig, node=node, **how)
            return stack.enter_context(made.running())

        yield start
    annotate(kube.api, REAL, None)


@pytest.fixture
def extender(kube: Cluster, tmp_path: Path) -> Iterator[Extender]:
    """An extender that the test starts; it is stopped at the end."""
    kubeconfig = access.account(tmp_path, kube.api, "podgpu-extender", rules(PAGE))
    made = Extender(tmp_path / "extender", kubeconfig)
    yield made
    status = made.stop() if made.process is not None else 0
    print(made.output()[-5000:])  # pytest shows it if the test has failed
    assert status == 0


@pytest.fixture
def plugin(kube: Cluster) -> DevicePlugin:
    return kube.plugin(IDS)


def hold_real(kube: Cluster, plugin: DevicePlugin, name: str, devices: Sequence[str]) -> None:
    """Run a pod on the real node with these GPUs."""
    plugin.set_devices(devices)
    kube.run(gpu_pod(name, len(devices)))
    plugin.set_devices(IDS)
    kube.wait_allocatable(GPU, len(IDS))


def hold_made(kube: Cluster, publisher: Publisher, name: str, devices: Sequence[str]) -> None:
    """Let a pod hold these GPUs of the node without a kubelet."""
    pod = gpu_pod(name, len(devices))
    pod["spec"]["nodeName"] = publisher.node
    kube.create(pod)
    publisher.hold({name: devices})


def ask(kube: Cluster, name: str, gpus: int, require: str = "") -> None:
    """Create a pod that the scheduler has to bind."""
    kube.create(
        gpu_pod(name, gpus, scheduled=True, annotations={REQUIRE: require} if require else None)
    )


def take_away(kube: Cluster, name: str) -> None:
    if bound(kube, name) == REAL:
        kube.remove(name)
    else:
        kube.api.delete("Pod", name, "default", grace=0)


@pytest.mark.parametrize(
    "choice",
    [
        pytest.param(Choice(REAL, LARGE, cached=True), id="node names, real node"),
        pytest.param(Choice(MADE, SMALL, cached=False), id="node objects, other node"),
    ],
)
def test_a_pod_is_scheduled_where_its_gpus_are_in_one_group(
    kube: Cluster,
    plugin: DevicePlugin,
    publish: Publish,
    extender: Extender,
    choice: Choice,
) -> None:
    """Without the extender, the scheduler would choose the other node."""
    nodes.add(kube.api, MADE, choice.made)
    real, made = publish(REAL, kubelet=True), publish(MADE)
    held = {node: TOGETHER if node == choice.together else APART for node in (REAL, MADE)}
    hold_real(kube, plugin, "before-real", held[REAL])
    hold_made(kube, made, "before-made", held[MADE])
    kube.schedule_with(extender.entry(nodeCacheCapable=choice.cached))

    ask(kube, "unadvised", 4)
    assert wait_bound(kube, "unadvised") != choice.together
    take_away(kube, "unadvised")

    extender.start()
    for publisher in (real, made):
        publisher.wait_free([each for each in IDS if each not in held[publisher.node]])
    extender.wait_nodes(fresh=2)
    ask(kube, "advised", 4)
    assert wait_bound(kube, "advised") == choice.together
    assert extender.asked("filter") == extender.asked("prioritize") == 1


def test_a_pod_that_requires_nvlink_waits_for_a_free_group(
    kube: Cluster, plugin: DevicePlugin, publish: Publish, extender: Extender
) -> None:
    nodes.add(kube.api, MADE, LARGE)
    real, made = publish(REAL, kubelet=True), publish(MADE)
    hold_real(kube, plugin, "first", IDS[2:4])
    hold_real(kube, plugin, "second", IDS[6:])
    hold_made(kube, made, "third", APART)
    extender.start()
    kube.schedule_with(extender.entry())
    for publisher in (real, made):
        publisher.wait_free([each for each in IDS if each not in APART])
    extender.wait_nodes(fresh=2)

    ask(kube, "modest", 2, "nvlink")
    assert wait_bound(kube, "modest")
    take_away(kube, "modest")
    ask(kube, "demanding", 4, "nvlink")
    wait_turned_away(kube, "demanding", "2 podgpu: no NVLink group of the node has 4 free GPUs")

    kube.remove("first")
    began = time.monotonic()
    assert wait_bound(kube, "demanding") == REAL
    took = time.monotonic() - began
    print(f"scheduled {took:.1f} s after the group was free")
    assert took < SETTLING + MIN_INTERVAL + BACKOFF + SLACK


def test_unsatisfiable_requirements_are_reported(
    kube: Cluster, publish: Publish, extender: Extender
) -> None:
    nodes.add(kube.api, MADE, LARGE)
    publish(MADE).wait_free(IDS)
    extender.start()
    kube.schedule_with(extender.entry())
    extender.wait_nodes(fresh=1, none=1)
    ask(kube, "large", 8, "nvlink")
    wait_turned_away(kube, "large", "podgpu: ", "NVLink")
    ask(kube, "misspelt", 1, "nvlinks")
    wait_turned_away(kube, "misspelt", "podgpu: podgpu.io/require is 'nvlinks'", "hostbridge")
    ask(kube, "content", 8)
    assert wait_bound(kube, "content") == MADE


def test_the_scheduler_ignores_an_extender_that_does_not_respond(
    kube: Cluster, extender: Extender
) -> None:
    """Without the extender, requirements of pods are not enforced."""
    nodes.add(kube.api, MADE, LARGE)
    extender.start()
    kube.schedule_with(extender.entry(httpTimeout="1s"))
    extender.wait_nodes(none=2)
    ask(kube, "first", 1, "nvlink")
    wait_turned_away(kube, "first", "podgpu: ")
    assert extender.process is not None
    os.kill(extender.process.pid, signal.SIGSTOP)
    try:
        ask(kube, "second", 1, "nvlink")
        assert wait_bound(kube, "second") == MADE
    finally:
        os.kill(extender.process.pid, signal.SIGCONT)


def test_an_outdated_annotation_is_ignored(
    kube: Cluster, plugin: DevicePlugin, publish: Publish, extender: Extender
) -> None:
    nodes.add(kube.api, MADE, LARGE)
    real, made = publish(REAL, kubelet=True), publish(MADE)
    extender.start()
    kube.schedule_with(extender.entry())
    for publisher in (real, made):
        publisher.wait_free(IDS)
    extender.wait_nodes(fresh=2)
    ask(kube, "while-both-are-fresh", 2)
    assert wait_bound(kube, "while-both-are-fresh") == MADE
    take_away(kube, "while-both-are-fresh")

    made.stop()
    text = json.loads(annotations(kube.api, MADE)[KEY])
    text["at"] -= 3 * text["refresh"] + 1
    annotate(kube.api, MADE, json.dumps(text))
    extender.wait_nodes(fresh=1, stale=1)
    ask(kube, "unbound-by-it", 2)
    assert wait_bound(kube, "unbound-by-it") == REAL
    ask(kube, "too-large-for-the-other", 8, "node")
    wait_turned_away(kube, "too-large-for-the-other", "podgpu: ", "the pod requires node")
    ask(kube, "without-demands", 8)
    assert wait_bound(kube, "without-demands") == MADE
