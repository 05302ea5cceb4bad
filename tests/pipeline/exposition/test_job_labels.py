"""The label `hpc_job` on the page: a series for each job of a device."""

from pipeline.exposition.naming import PageNaming
from pipeline.exposition.options import PageOptions
from pipeline.fields import FieldPlan
from pipeline.model import DeviceJobs, JobsReplaced
from tests.pipeline.exposition.pages import of, parsed, rendered
from tests.support.nodes import Node, claims, gpu, kubelet_claim, mig, reading, uuid_of

POWER = "DCGM_FI_DEV_POWER_USAGE"
OWN = "podgpu_gpu_up"


def node(*jobs: DeviceJobs) -> Node:
    made = Node()
    made.has(gpu(0), gpu(1))
    made.reads(*(reading(gpu(at), "power_watts", 10 * at + 5) for at in range(2)))
    made.reads(*(reading(gpu(at), "gpu_up", 1) for at in range(2)))
    made.say(JobsReplaced(jobs, 300 * 10**9), "jobs", "jobfiles")
    return made


def jobs_of(made: Node, name: str = POWER) -> list[tuple[str, str | None, float]]:
    """Return GPU, job and value of each series; the job is None if there is no label."""
    series = parsed(rendered(made.snapshot()))
    return [(labels["gpu"], labels.get("hpc_job"), value) for labels, value in of(series, name)]


def test_a_reading_has_a_series_for_each_job_of_its_device() -> None:
    made = node(DeviceJobs(0, None, ("12", "9_3")))
    assert jobs_of(made) == [("0", "12", 5), ("0", "9_3", 5), ("1", None, 15)]


def test_readings_without_a_job_have_no_label() -> None:
    assert jobs_of(node()) == [("0", None, 5), ("1", None, 15)]
    assert b"hpc_job" not in rendered(node().snapshot())


def test_an_empty_line_is_a_job_without_a_name() -> None:
    assert jobs_of(node(DeviceJobs(1, None, ("", "7")))) == [
        ("0", None, 5),
        ("1", "", 15),
        ("1", "7", 15),
    ]


def test_podgpus_own_readings_are_not_copied() -> None:
    made = node(DeviceJobs(0, None, ("12", "13")), DeviceJobs(1, None, ("14",)))
    assert jobs_of(made, OWN) == [("0", None, 1), ("1", "14", 1)]


def test_pods_and_jobs_are_shown_together() -> None:
    made = node(DeviceJobs(0, None, ("12", "13")))
    made.say(claims(kubelet_claim("a", uuid_of(0))), "kubelet", "podresources")
    shown = of(parsed(rendered(made.snapshot())), POWER)
    assert [(labels["pod"], labels.get("hpc_job")) for labels, _ in shown] == [
        ("a", "12"),
        ("a", "13"),
        ("", None),
    ]


def test_each_copy_of_a_shared_gpu_has_a_copy_for_each_job() -> None:
    made = node(DeviceJobs(0, None, ("12", "13")))
    ids = (f"{uuid_of(0)}::0", f"{uuid_of(0)}::1")
    made.say(
        claims(kubelet_claim("a", ids[0]), kubelet_claim("b", ids[1])), "kubelet", "podresources"
    )
    shown = of(parsed(rendered(made.snapshot(), sharing="copies")), POWER)
    assert [(labels["pod"], labels.get("hpc_job")) for labels, _ in shown] == [
        ("a", "12"),
        ("b", "12"),
        ("a", "13"),
        ("b", "13"),
        ("", None),
    ]


def test_what_processes_use_is_at_the_series_of_each_job() -> None:
    """Without usage, what each holder uses is unknown; the value of the device is not."""
    made = node(DeviceJobs(0, None, ("12", "13")))
    made.reads(*(reading(gpu(at), "memory_used_bytes", (at + 1) << 20) for at in range(2)))
    made.say(claims(kubelet_claim("a", f"{uuid_of(0)}::0")), "kubelet", "podresources")
    shown = of(parsed(rendered(made.snapshot(), sharing="copies")), "DCGM_FI_DEV_FB_USED")
    assert [(labels["pod"], labels.get("hpc_job"), value) for labels, value in shown] == [
        ("", "12", 1),
        ("", "13", 1),
        ("", None, 2),
    ]


def test_a_mig_instance_has_the_jobs_of_its_own_file() -> None:
    made = Node()
    instances = [mig(gpu(0), gi) for gi in (7, 9, 11)]
    made.has(gpu(0), *instances)
    made.reads(reading(gpu(0), "power_watts", 5))
    made.reads(*(reading(one, "memory_used_bytes", 1 << 20) for one in instances))
    files = DeviceJobs(0, None, ("1",)), DeviceJobs(0, 7, ("2",)), DeviceJobs(0, 9, ("3", "4"))
    made.say(JobsReplaced(files, 300 * 10**9), "jobs", "jobfiles")
    series = parsed(rendered(made.snapshot(), mig_readings="both"))

    def shown(name: str) -> list[tuple[str | None, str | None]]:
        return [(labels.get("GPU_I_ID"), labels.get("hpc_job")) for labels, _ in of(series, name)]

    of_instances = [("7", "2"), ("9", "3"), ("9", "4"), ("11", None)]
    assert shown(POWER) == [(None, "1"), *of_instances]
    assert shown("DCGM_FI_DEV_FB_USED") == of_instances


def test_ids_that_look_the_same_on_the_page_have_one_series() -> None:
    assert len(jobs_of(node(DeviceJobs(0, None, ("\x00", "\x01"))))) == 2


def test_a_pod_label_with_this_name_has_another_name() -> None:
    naming = PageNaming(PageOptions(pod_label_prefix=""), FieldPlan(), "n")
    assert naming.unused_label_name("hpc_job") == "pod_label_hpc_job"
