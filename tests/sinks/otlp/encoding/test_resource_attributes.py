"""The resource of a reading, and its attributes."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from pipeline.base.version import VERSION
from pipeline.fields import FieldPlan
from pipeline.model import Evidence, Holder, PartialRef, PodInfo
from sinks.otlp.encoding.attribute_sets import container_attributes, node_attributes
from sinks.otlp.encoding.encoder import Encoder
from tests.sinks.otlp.encoding.support import Point, held, named, pods, points
from tests.support.nodes import START, Node, at, claim, gpu, reading

SUBJECT = PartialRef("ml", "train-0", "main", "u-1", "c0ffee")
POD = PodInfo("u-1", "ml", "train-0")
HOLDER = Holder(SUBJECT, None, START, "podlist", Evidence.POD_LIST_FILE, POD)
RESOURCE_PREFIX = "resource.opentelemetry.io/"
APP = "app.kubernetes.io/"


def container(holder: Holder, extra: Mapping[str, str] | None = None) -> dict[str, str | int]:
    return dict(container_attributes(holder.subject, holder.pod, "node-1", extra or {}))


def with_pod(**changes: object) -> Holder:
    return replace(HOLDER, pod=replace(POD, **changes))  # type: ignore[arg-type]


def test_attributes_of_the_resource_of_a_node() -> None:
    extra = {"service.name": "gpus", "k8s.cluster.name": "c", "deployment": "", "host.id": "h"}
    assert dict(node_attributes("node-1", extra)) == {
        "k8s.node.name": "node-1",
        "service.name": "gpus",
        "service.instance.id": "node-1",
        "service.version": VERSION,
        "k8s.cluster.name": "c",
        "host.id": "h",
    }
    assert "host.name" not in dict(node_attributes("node-1", {}))


def test_attributes_of_the_resource_of_a_container() -> None:
    holder = with_pod(
        owner_kind="Deployment",
        owner_name="train",
        labels=(("team", "nlp"), ("empty", "")),
        annotations=(("note", "hi"),),
    )
    assert container(holder) == {
        "service.namespace": "ml",
        "service.name": "train",
        "service.instance.id": "ml.train-0.main",
        "k8s.node.name": "node-1",
        "k8s.namespace.name": "ml",
        "k8s.pod.name": "train-0",
        "k8s.pod.uid": "u-1",
        "k8s.container.name": "main",
        "container.id": "c0ffee",
        "k8s.deployment.name": "train",
        "k8s.pod.label.team": "nlp",
        "k8s.pod.annotation.note": "hi",
    }


@pytest.mark.parametrize(
    ("holder", "expected"),
    [
        (HOLDER, ("ml", "train-0", "ml.train-0.main")),
        (replace(HOLDER, pod=None), ("ml", "train-0", "ml.train-0.main")),
        (with_pod(owner_name="train"), ("ml", "train", "ml.train-0.main")),
        (
            with_pod(owner_name="train", labels=((f"{APP}name", "llm"),)),
            ("ml", "llm", "ml.train-0.main"),
        ),
        (
            with_pod(labels=((f"{APP}instance", "llm-a"), (f"{APP}name", "llm"))),
            ("ml", "llm-a", "ml.train-0.main"),
        ),
        (
            with_pod(
                labels=((f"{APP}instance", "llm-a"),),
                annotations=(
                    (f"{RESOURCE_PREFIX}service.instance.id", "one"),
                    (f"{RESOURCE_PREFIX}service.name", "mine"),
                    (f"{RESOURCE_PREFIX}service.namespace", "shop"),
                ),
            ),
            ("shop", "mine", "one"),
        ),
        (
            replace(HOLDER, subject=PartialRef("ml", "train-0"), pod=None),
            ("ml", "train-0", "ml.train-0"),
        ),
        (
            replace(HOLDER, subject=PartialRef(container_id="c0ffee"), pod=None),
            (None, "unknown_service", "c0ffee"),
        ),
    ],
)
def test_service_name_namespace_and_instance_id_of_a_container(
    holder: Holder, expected: tuple[str | None, str, str]
) -> None:
    found = container(holder)
    names = ("service.namespace", "service.name", "service.instance.id")
    assert tuple(found.get(name) for name in names) == expected


def test_configured_attributes_do_not_change_the_identity_of_a_container() -> None:
    found = container(
        with_pod(
            annotations=(
                (f"{RESOURCE_PREFIX}k8s.pod.uid", "u-2"),
                (f"{RESOURCE_PREFIX}team", "nlp"),
            )
        ),
        {"service.instance.id": "one", "k8s.pod.uid": "u-3", "zone": "b"},
    )
    assert found["service.instance.id"] == "ml.train-0.main"
    assert found["k8s.pod.uid"] == "u-1"
    assert (found["team"], found["zone"]) == ("nlp", "b")


@pytest.mark.parametrize(
    "name",
    [
        "service.name",
        "service.namespace",
        "service.version",
        "service.instance.id",
        "k8s.namespace.name",
        "k8s.pod.name",
        "k8s.pod.uid",
        "k8s.pod.label.app",
        "k8s.container.name",
        "k8s.daemonset.name",
        "container.id",
        "container.image.name",
    ],
)
def test_injected_attributes_of_podgpus_pod_are_not_set_on_other_containers(name: str) -> None:
    """For example from `OTEL_RESOURCE_ATTRIBUTES`; also if little is known of the other pod."""
    holder = replace(HOLDER, subject=PartialRef("ml", "train-0"), pod=None)
    injected = {name: "podgpu's", "deployment.environment": "prod"}
    found = container(holder, injected)
    assert found.get(name) != "podgpu's"
    assert found["deployment.environment"] == "prod"
    assert dict(node_attributes("node-1", injected))[name] == "podgpu's"


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("Deployment", "k8s.deployment.name"),
        ("ReplicaSet", "k8s.replicaset.name"),
        ("StatefulSet", "k8s.statefulset.name"),
        ("DaemonSet", "k8s.daemonset.name"),
        ("CronJob", "k8s.cronjob.name"),
        ("Job", "k8s.job.name"),
        ("PyTorchJob", None),
    ],
)
def test_the_workload_has_the_attribute_of_its_kind(kind: str, name: str | None) -> None:
    found = container(with_pod(owner_kind=kind, owner_name="w"))
    assert [key for key, value in found.items() if value == "w" and key.startswith("k8s.")] == (
        [name] if name else []
    )


def scene(*held_claims: object, containers: bool = True) -> list[Point]:
    node = Node()
    node.has(gpu(0), gpu(1))
    pods(node, *(PodInfo(f"u-{name}", "ml", name) for name in ("a", "b")))
    held(node, *held_claims)
    node.seconds = 5
    node.reads(reading(gpu(0), "power_watts", 1.5), reading(gpu(1), "power_watts", 2.5))
    encoder = Encoder("node-1", FieldPlan(["power_watts"]), containers=containers)
    return points(encoder.encode(node.snapshot()))


UUID = gpu(0).uuid


@pytest.mark.parametrize(
    ("held_claims", "containers", "pod", "container_name"),
    [
        ([], True, None, None),
        ([claim("a", UUID)], True, "a", "main"),
        ([claim("a", UUID)], False, None, None),
        ([claim("a", UUID), claim("a", UUID, container="side")], True, "a", None),
        ([claim("a", UUID, share=0.5), claim("b", UUID, share=0.5)], True, None, None),
    ],
)
def test_a_reading_has_the_resource_of_the_only_holder_or_of_the_node(
    held_claims: list[object], containers: bool, pod: str | None, container_name: str | None
) -> None:
    first, second = sorted(
        named(scene(*held_claims, containers=containers), "hw.power"), key=lambda p: p.value or 0
    )
    assert (first.of("k8s.pod.name"), first.of("k8s.container.name")) == (pod, container_name)
    assert first.of("service.name") == (pod or "podgpu")
    assert second.of("service.name") == "podgpu"


def test_every_holder_has_its_source_evidence_and_age() -> None:
    found = scene(claim("a", UUID, share=0.25), claim("b", UUID))
    infos = named(found, "podgpu.device.holder.info")
    assert {
        (p.of("k8s.pod.name"), p.of("source"), p.of("evidence"), p.of("hw.id"), p.value)
        for p in infos
    } == {("a", "podlist", "pod_list_file", UUID, 1), ("b", "podlist", "pod_list_file", UUID, 1)}
    assert [p.value for p in named(found, "podgpu.device.holder.age")] == [5.0, 5.0]
    assert [p.value for p in named(found, "podgpu.device.holder.since_timestamp")] == [
        at(-60).wall_ns / 1e9  # the pods started then; the list reports no start
    ] * 2
    (share,) = named(found, "podgpu.device.holder.share")
    assert (share.of("k8s.pod.name"), share.value) == ("a", 0.25)


def test_no_two_resources_have_the_same_service_identity() -> None:
    found = scene(claim("a", UUID), claim("b", UUID), claim("b", gpu(1).uuid, container="x"))
    services = {
        point.resource: tuple(
            point.of(f"service.{part}") for part in ("namespace", "name", "instance.id")
        )
        for point in found
    }
    assert len(set(services.values())) == len(services) == 4
