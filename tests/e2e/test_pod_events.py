"""Events for XID errors: API server and kubelet are real, the GPUs are simulated."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.documented import rules
from tests.e2e.kube import access
from tests.e2e.kube.api import Object
from tests.e2e.kube.cluster import Cluster
from tests.e2e.kube.plugin import DevicePlugin
from tests.e2e.kube.pods import gpu_pod
from tests.e2e.processes import wait_until
from tests.e2e.scenes import distinct
from tests.e2e.watched_podgpu import ALL, OFTEN, Owner, WatchedPodgpu, watching
from tests.sources.kernel.logs import Kmsg, xid

SCENE = distinct()
IDS = [gpu.uuid for gpu in SCENE.gpus]
SINK = "events"

WRITER = "podgpu-events"
"""The service account for writing; the one for watching pods has other permissions."""

READING, WRITING = rules("sources/pods.md"), rules("sinks/events.md")

Watch = Callable[..., WatchedPodgpu]


@pytest.fixture
def watch(kube: Cluster, tmp_path: Path) -> Iterator[Watch]:
    """Start a podgpu with the documented permissions; it is stopped at the end."""
    with ExitStack() as stack:

        def start(
            may: Collection[Object] = WRITING, log: Kmsg | None = None, **options: Any
        ) -> WatchedPodgpu:
            kubeconfig = access.account(tmp_path, kube.api, WRITER, may)
            sinks = {SINK: {"kind": "events", "kubeconfig": str(kubeconfig), **options}}
            kinds: Collection[str] = ALL
            ways: Mapping[str, Mapping[str, str]] = OFTEN
            if log is not None:
                kinds, ways = (*ALL, "kernel"), {**OFTEN, "kernel": {"path": str(log.path)}}
            folder = tmp_path / "podgpu"
            return stack.enter_context(
                watching(kube, folder, SCENE, kinds, READING, options=ways, sinks=sinks)
            )

        yield start


@pytest.fixture
def plugin(kube: Cluster) -> DevicePlugin:
    return kube.plugin(IDS)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Kmsg]:
    with closing(Kmsg(tmp_path / "kmsg")) as made:
        yield made


def events(kube: Cluster, namespace: str = "default") -> list[Object]:
    """Return the Events that podgpu created."""
    return kube.api.list("Event", namespace, fieldSelector="reason=GpuXidError")


def wait_events(kube: Cluster, count: int, namespace: str = "default") -> list[Object]:
    wait_until(lambda: len(events(kube, namespace)) == count, f"{count} Events")
    return events(kube, namespace)


def strike(podgpu: WatchedPodgpu, device: str, code: int) -> None:
    assert podgpu.fake is not None
    podgpu.fake.push_xid(IDS.index(device), code)


def held(made: Object, device: str, namespace: str = "default") -> dict[str, list[Owner]]:
    name, uid = made["metadata"]["name"], made["metadata"]["uid"]
    return {device: [Owner(name, "main", uid, namespace)]}


@pytest.fixture(autouse=True)
def _none_of_before(kube: Cluster) -> Iterator[None]:
    """Delete all Events after the test, because they outlive their pods."""
    yield
    for each in kube.api.list("Event"):
        place = each["metadata"]
        kube.api.delete("Event", place["name"], place["namespace"])


def test_a_pod_gets_an_event_for_an_xid_error_on_its_gpu(
    kube: Cluster, plugin: DevicePlugin, watch: Watch
) -> None:
    podgpu = watch(wait="1s")
    made = kube.run(gpu_pod("train-0", 1, namespace="ml"))
    bystander = kube.run(gpu_pod("other", 1, namespace="ml"))
    (given,), (others,) = plugin.asked
    podgpu.wait_owners(held(made, given, "ml") | held(bystander, others, "ml"))
    strike(podgpu, given, 79)
    (event,) = wait_events(kube, 1, "ml")
    assert event["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": "ml",
        "name": "train-0",
        "uid": made["metadata"]["uid"],
        "fieldPath": "spec.containers{main}",
    }
    assert event["type"] == "Warning"
    assert event["message"].startswith(f"XID 79 (GPU has fallen off the bus) on {given}, which")
    assert event["source"] == {"component": "podgpu", "host": kube.node}
    assert event["count"] == 1
    # Like the query of `kubectl describe pod`.
    of = f"involvedObject.uid={made['metadata']['uid']},reason=GpuXidError"
    assert len(kube.api.list("Event", "ml", fieldSelector=of)) == 1
    podgpu.wait_value("podgpu_sink_up", 1, sink=SINK)


def test_repeated_errors_are_counted_in_one_event(
    kube: Cluster, plugin: DevicePlugin, watch: Watch
) -> None:
    podgpu = watch(wait="0s", repeat="10s")
    made = kube.run(gpu_pod("train-0", 1))
    (given,) = plugin.asked[0]
    podgpu.wait_owners(held(made, given))
    strike(podgpu, given, 31)
    (first,) = wait_events(kube, 1)
    for _ in range(4):
        strike(podgpu, given, 31)
    wait_until(lambda: events(kube)[0]["count"] == 5, "the errors are counted")
    (event,) = events(kube)
    assert event["metadata"]["name"] == first["metadata"]["name"]
    assert event["firstTimestamp"] == first["firstTimestamp"]
    patched = {"sink": SINK, "method": "patch", "result": "ok"}
    podgpu.wait_value("podgpu_sink_requests_total", 1, 2, **patched)


def test_the_event_names_the_process_from_the_kernel_log(
    kube: Cluster, plugin: DevicePlugin, watch: Watch, log: Kmsg
) -> None:
    podgpu = watch(wait="2s", log=log)
    made = kube.run(gpu_pod("train-0", 1))
    (given,) = plugin.asked[0]
    podgpu.wait_owners(held(made, given))
    pid = _pid(kube, "train-0")
    strike(podgpu, given, 31)
    bus = SCENE.gpus[IDS.index(given)].bus_id
    log.write(xid(31, f"PCI:{bus.lower()[4:-2]}", f", pid={pid}, name=sh, Ch 00000010"))
    (event,) = wait_events(kube, 1)
    assert event["message"].endswith(
        f"the kernel log names a process of this pod: sh (pid {pid} on the node); "
        "advice: restart the program"
    )
    assert event["count"] == 1, "two reports of one error"


def _pid(kube: Cluster, pod: str) -> int:
    (status,) = kube.api.wait_phase(pod, "Running")["status"]["containerStatuses"]
    return kube.containerd.pid_of(status["containerID"].removeprefix("containerd://"))


def test_a_missing_permission_is_logged_and_retried(
    kube: Cluster, plugin: DevicePlugin, watch: Watch
) -> None:
    podgpu = watch(may=(), wait="0s")
    made = kube.run(gpu_pod("train-0", 1))
    (given,) = plugin.asked[0]
    podgpu.wait_owners(held(made, given))
    strike(podgpu, given, 48)
    wait_until(lambda: podgpu.value("podgpu_sink_up", sink=SINK) == 0, "sink down")
    lacks = 'apiGroups [""], resources ["events"], verbs [create, patch]'
    wait_until(lambda: lacks in podgpu.output(), "the missing permission is logged")
    access.set_rules(kube.api, WRITER, WRITING)
    (event,) = wait_events(kube, 1)
    assert event["count"] == 1
    wait_until(lambda: podgpu.value("podgpu_sink_up", sink=SINK) == 1, "up again")


def test_the_documented_rules_are_minimal() -> None:
    """The documented rules are those that the tests grant."""
    assert yaml.safe_dump(WRITING) == yaml.safe_dump(
        [{"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]}]
    )
