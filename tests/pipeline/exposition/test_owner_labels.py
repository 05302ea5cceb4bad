"""Labels of jobs, and of containers without pods. The golden file shows a whole page of them."""

from typing import Any

import pytest

from pipeline.exposition.options import LabelForm
from pipeline.model import (
    NS,
    ContainersReplaced,
    DeviceJobs,
    JobsReplaced,
    RunningContainer,
    Snapshot,
)
from tests.pipeline.exposition.pages import SCENES, of, parsed, rendered
from tests.support.nodes import Node, gpu, reading, uuid_of
from tests.support.owners import job, podless_container

POWER = "DCGM_FI_DEV_POWER_USAGE"
A = uuid_of(0)


def snapshot(*owners: RunningContainer, jobs: JobsReplaced | None = None) -> Snapshot:
    node = Node()
    device = gpu(0)
    node.has(device)
    node.say(ContainersReplaced(owners, 300 * NS), "owners", "docker")
    if jobs is not None:
        node.say(jobs, "jobfiles", "jobfiles")
    node.reads(reading(device, "power_watts", 100.0))
    return node.snapshot()


def only(found: Snapshot, name: str = POWER, **options: Any) -> dict[str, str]:
    [(labels, _)] = of(parsed(rendered(found, **options)), name)
    return labels


@pytest.mark.parametrize(
    ("form", "container"),
    [("dcgm", "container"), ("dcgm-hostname", "container"), ("dcgm-old", "container_name")],
)
def test_a_container_has_its_name_in_the_label_of_a_container(
    form: LabelForm, container: str
) -> None:
    found = snapshot(podless_container("web", A))
    assert only(found, labels=form)[container] == "web"
    assert only(found, "podgpu_device_holder_info", labels=form)[container] == "web"
    assert only(found, "podgpu_podless_container_info", labels=form)[container] == "web"


@pytest.mark.parametrize("owner", [podless_container("web", A), job("7", A)])
def test_without_the_option_containers_a_reading_names_no_owner(owner: RunningContainer) -> None:
    labels = only(snapshot(owner), containers=False)
    assert labels.keys() == only(snapshot(), containers=False).keys()


@pytest.mark.parametrize("owner", [podless_container("web", A), job("7", A)])
def test_the_uid_of_an_owner_is_no_pod_uid(owner: RunningContainer) -> None:
    labels = only(snapshot(owner), inline=("pod_uid", "labels"))
    assert "pod_uid" not in labels
    assert labels["owner_uid"].startswith(("docker://", "slurm://"))
    holder = only(snapshot(owner), "podgpu_device_holder_info")
    assert (holder["pod_uid"], holder["owner_uid"]) == ("", labels["owner_uid"])


def test_two_jobs_that_share_a_gpu_have_a_copy_each_if_configured() -> None:
    found = snapshot(job("7", A, share=0.5), job("8", A, share=0.5, user="bob"))
    assert "hpc_job" not in only(found)
    copies = of(parsed(rendered(found, sharing="copies")), POWER)
    assert [(labels["hpc_job"], labels["user"]) for labels, _ in copies] == [
        ("7", "alice"),
        ("8", "bob"),
    ]


def test_a_job_that_two_sources_report_has_one_label() -> None:
    jobs = JobsReplaced((DeviceJobs(0, None, ("7",)),), 300 * NS)
    assert only(snapshot(job("7", A), jobs=jobs))["hpc_job"] == "7"
    assert only(snapshot(podless_container("a", A), jobs=jobs))["hpc_job"] == "7"


def test_usage_and_description_of_an_owner_can_be_joined() -> None:
    page = parsed(rendered(SCENES["jobs-and-containers"]()))
    described = {
        labels["owner_uid"]
        for name in ("podgpu_job_info", "podgpu_podless_container_info")
        for labels, _ in of(page, name)
    }
    used = {labels["owner_uid"] for labels, _ in of(page, "podgpu_container_held_seconds_total")}
    assert used
    assert used < described


def test_hostile_names_stay_values() -> None:
    evil = 'x"} 1\nevil 2\n'
    found = snapshot(podless_container(evil, A, image=evil, compose_project=evil))
    assert only(found)["image"] == evil
    assert [name for name, _ in parsed(rendered(found)) if name.startswith("evil")] == []


def test_a_page_of_pods_has_none_of_the_labels() -> None:
    for name, scene in SCENES.items():
        if name != "jobs-and-containers":
            page = rendered(scene(), inline=("pod_uid", "labels"))
            assert b"owner_uid" not in page
            assert b"hpc_job" not in page
