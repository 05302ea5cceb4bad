"""What each sink shows of a job, and of a container without a pod, and which sinks leave it out."""

from pipeline.changes.descriptions import holding_sentence, xid_sentence
from pipeline.model import (
    NS,
    Attribution,
    ContainersReplaced,
    RunningContainer,
    XidError,
    XidVictim,
)
from pipeline.status_page.display_text import facts_text, holder_name
from pipeline.status_page.document_builder import status_of
from pipeline.status_page.html.page import body
from pipeline.topology.text_views import held_summary
from sinks.events.affected_pods import pod_errors
from sinks.jsonl.json_values import container_object
from sinks.otlp.encoding.attribute_sets import container_attributes
from sinks.podlist.entry_encoder import entries_of
from sinks.pods.held_devices import desired_annotations
from tests.pipeline.status_page.scenes import status_input
from tests.podgpu.cli.top.views import lines
from tests.support.nodes import START, Node, gpu, uuid_of
from tests.support.owners import container_id_of, job, podless_container
from tests.support.topology import topology_read
from tests.support.usage import holding

A = uuid_of(0)
JOB = job("4711", A, account="physics", partition="gpu", job_name="train")
CONTAINER = podless_container(
    "lab-web-1", A, image="cuda:13", compose_project="lab", compose_service="web"
)
PODMAN = podless_container("plain", A, runtime="podman")


def held_by(*owners: RunningContainer) -> Node:
    node = Node()
    node.has(gpu(0))
    node.say(ContainersReplaced(owners, 300 * NS), "owners", "docker")
    return node


def attribution(owner: RunningContainer) -> Attribution:
    return held_by(owner).snapshot().layout.attributions[A]


# -- OTLP


def attributes(owner: RunningContainer, **extra: str) -> dict[str, str | int]:
    [holder] = attribution(owner).holders
    return dict(container_attributes(holder.subject, holder.pod, "node-1", extra))


def test_otlp_a_container_has_the_attributes_of_the_conventions() -> None:
    assert attributes(CONTAINER) == {
        "service.namespace": "lab",
        "service.name": "web",
        "service.instance.id": f"docker://{container_id_of('lab-web-1')}",
        "host.name": "node-1",
        "container.id": container_id_of("lab-web-1"),
        "container.name": "lab-web-1",
        "container.runtime.name": "docker",
        "container.image.name": "cuda:13",
        "container.label.com.docker.compose.project": "lab",
        "container.label.com.docker.compose.service": "web",
    }
    assert attributes(PODMAN)["service.name"] == "plain"


def test_otlp_a_job_has_attributes_of_podgpu_because_there_is_no_convention() -> None:
    assert attributes(JOB) == {
        "service.namespace": "hpc",
        "service.name": "train",
        "service.instance.id": JOB.subject.uid,
        "host.name": "node-1",
        "podgpu.job.cluster": "hpc",
        "podgpu.job.id": "4711",
        "podgpu.job.account": "physics",
        "podgpu.job.name": "train",
        "podgpu.job.partition": "gpu",
        "podgpu.job.user": "alice",
    }


def test_otlp_configured_attributes_do_not_replace_those_of_an_owner() -> None:
    extra = {"podgpu.job.id": "x", "container.name": "x", "k8s.cluster.name": "prod"}
    expected = {"k8s.cluster.name": "prod"}
    assert attributes(JOB, **extra) == attributes(JOB) | expected
    assert attributes(CONTAINER, **extra) == attributes(CONTAINER) | expected


# -- JSON lines


def test_jsonl_an_owner_has_its_kind_uid_and_facts() -> None:
    assert container_object(JOB.subject, JOB.info) == {
        "kind": "job",
        "uid": JOB.subject.uid,
        "slurm_cluster": "hpc",
        "job": "4711",
        "account": "physics",
        "job_name": "train",
        "partition": "gpu",
        "user": "alice",
    }
    assert container_object(PODMAN.subject, None) == {
        "kind": "container",
        "uid": PODMAN.subject.uid,
        "runtime": "podman",
        "container": "plain",
    }


# -- texts for people


def test_texts_name_the_kind_of_an_owner() -> None:
    ended = holding("4711", A, namespace="hpc", container="", uid=JOB.subject.uid, end=START)
    assert holding_sentence(ended).startswith("job 4711 held ")
    error = XidError(1, A, 79, START, ())
    text = xid_sentence(error, CONTAINER.subject)
    assert text.endswith("affected container: container lab-web-1")


def test_topology_names_the_kind_of_an_owner() -> None:
    node = held_by(JOB)
    node.say(topology_read(gpu(0)))
    availability = node.snapshot().availability
    assert availability is not None
    assert held_summary(availability) == "GPU 0 by job 4711"


def test_the_status_page_names_the_kind_and_shows_the_facts() -> None:
    status = status_of(status_input(held_by(JOB)))
    [shown] = status.gpus or ()
    [holder] = shown.holders or ()
    assert holder_name(holder) == "job 4711"
    assert facts_text(holder) == "user alice, account physics, partition gpu"
    page = body(status, ())
    assert "<b>job 4711</b>" in page
    assert "user alice, account physics, partition gpu" in page


def test_top_names_the_kind_and_the_user_or_service() -> None:
    def shown(owner: RunningContainer) -> str:
        return "\n".join(lines(status_of(status_input(held_by(owner)))))

    assert "job 4711 (alice)" in shown(JOB)
    assert "container lab-web-1 (web)" in shown(CONTAINER)
    assert "container plain" in shown(PODMAN)


# -- sinks that are only about pods


def test_a_job_with_the_name_of_a_pod_gets_no_annotation() -> None:
    assert desired_annotations([attribution(JOB)], frozenset()) == {}


def test_a_pod_list_contains_no_job_and_no_container() -> None:
    assert entries_of([attribution(JOB), attribution(CONTAINER)], "uuid") == ()


def test_a_job_gets_no_event_and_is_not_counted_as_a_pod_without_a_name() -> None:
    victims = tuple(
        XidVictim(one.subject, one.info, A, holds=True, uses=False) for one in (JOB, CONTAINER)
    )
    assert pod_errors(XidError(1, A, 79, START, victims), lambda _: True) == ([], 0)
