"""Alerts about XID errors, by class."""

from collections.abc import Mapping

from pipeline.fields.xid_catalogue import XIDS as CATALOGUE
from tests.deploy.alerts.case import JOB, NODE, PODLESS, UUID, Case, device, gpu, series

SEEN = "podgpu_xid_last_seen_timestamp_seconds"
COUNT = "podgpu_xid_errors_total"
HELD = "podgpu_device_holder_info"
SINCE = "podgpu_device_holder_since_timestamp_seconds"
INFO = "podgpu_xid_info"
VICTIM = "podgpu_container_xid_errors_total"
TRAINING = {"namespace": "ml", "pod": "train-0", "container": "main"}
SEARCH = {"namespace": "search", "pod": "embed-0", "container": "encoder"}
BEGUN = "_x10 1x90"
"""The count of a code whose first error was in minute 10."""


def meaning(xid: str) -> Mapping[str, str]:
    """Return the series with the meaning of a code, and the action that NVIDIA advises."""
    known = CATALOGUE[int(xid)]
    labels = {"xid": xid, "meaning": known.meaning, "action": known.action}
    return {series(INFO, Hostname=NODE, **labels): "_x10 1x200"}


def victim(xid: str, container: Mapping[str, str] = TRAINING, **more: str) -> str:
    """Return the series of errors of a container that held or used the GPU then."""
    uid = {"pod_uid": f"uid-{container['pod']}"}
    return gpu(VICTIM, **{**container, **uid, **more}, xid=xid)


XIDS: Mapping[str, tuple[Case, ...]] = {
    "PodgpuXidHardware": (
        Case(
            "at minute 10, on a GPU whose pod ends because of it",
            {
                gpu(SEEN, "train-0", xid="79"): "_x10 600 stale",
                gpu(SEEN, xid="79"): "_x11 600x90",
                victim("79"): "_x10 1x5 stale",
                victim("79", SEARCH): "_x10 1x5 stale",
                **meaning("79"),
            },
            12,
            [device(xid="79")],
            f"XID 79 of GPU 0 of {NODE}, which requires a reset or more",
            f"Seen 2m 0s ago in {UUID}. {CATALOGUE[79].meaning}; NVIDIA advises: reboot node. "
            "Affected: search/embed-0 ml/train-0.",
            resolved=71,
        ),
        Case(
            "a pod, a job and a container held it",
            {
                gpu(SEEN, xid="79"): "_x10 600x90",
                victim("79"): BEGUN,
                gpu(VICTIM, **JOB, xid="79"): BEGUN,
                gpu(VICTIM, **PODLESS, xid="79"): BEGUN,
            },
            12,
            [device(xid="79")],
            f"XID 79 of GPU 0 of {NODE}, which requires a reset or more",
            f"Seen 2m 0s ago in {UUID}. Affected: container lab-web-1 job 4711 ml/train-0.",
        ),
        Case(
            "no pod held it",
            {gpu(SEEN, xid="48"): "_x10 600x90"},
            69,
            [device(xid="48")],
            f"XID 48 of GPU 0 of {NODE}, which requires a reset or more",
            f"Seen 59m 0s ago in {UUID}. No affected pod, job or container is known.",
        ),
        Case(
            "podgpu restarts, and no longer knows of it",
            {gpu(SEEN, xid="48"): "_x10 600x9 stale"},
            60,
            [device(xid="48")],
        ),
        Case(
            "two codes are two alerts",
            {
                gpu(SEEN, xid="48"): "_x10 600x90",
                gpu(SEEN, xid="95"): "_x12 720x90",
            },
            15,
            [device(xid="48"), device(xid="95")],
        ),
        Case("an hour later", {gpu(SEEN, xid="79"): "_x10 600x90"}, 71),
        Case(
            "another time, after an hour",
            {gpu(SEEN, xid="79"): "_x10 600x89 6000x9"},
            101,
            [device(xid="79")],
        ),
        Case("a count of 0 is no error", {gpu(COUNT, xid="79"): "0x90"}, 60),
        Case("a program's fault", {gpu(SEEN, xid="31"): "_x10 600x90"}, 15),
        Case(
            "a remapped row, for which NVIDIA's catalogue requires no action",
            {
                gpu(SEEN, xid="63"): "_x10 600x90",
            },
            15,
        ),
        Case("a longer number with those digits", {gpu(SEEN, xid="479"): "_x10 600x90"}, 15),
    ),
    "PodgpuXidMemory": (
        Case(
            "a contained error",
            {
                gpu(SEEN, "train-0", xid="94"): "_x10 600x90",
                victim("94"): BEGUN,
                **meaning("94"),
            },
            15,
            [device(xid="94")],
            f"XID 94 of GPU 0 of {NODE}, memory wears out",
            f"Seen 5m 0s ago in {UUID}, which continues to work. {CATALOGUE[94].meaning}; NVIDIA "
            "advises: restart app. Affected: ml/train-0.",
            resolved=71,
        ),
        Case("within the hour", {gpu(SEEN, xid="94"): "_x10 600x90"}, 69, [device(xid="94")]),
        Case("an hour later", {gpu(SEEN, xid="94"): "_x10 600x90"}, 71),
        Case("an uncontained error causes another alert", {gpu(SEEN, xid="95"): "_x10 600x90"}, 15),
    ),
    "PodgpuXidFabric": (
        Case(
            "an NVLink error",
            {
                gpu(SEEN, "train-0", xid="74"): "_x10 600x90",
                victim("74"): BEGUN,
                **meaning("74"),
            },
            15,
            [device(xid="74")],
            f"XID 74 of GPU 0 of {NODE}, an error of its links",
            f"Seen 5m 0s ago in {UUID}. {CATALOGUE[74].meaning}; NVIDIA advises: follow procedure. "
            "Affected: ml/train-0.",
            resolved=71,
        ),
        Case("Blackwell's codes", {gpu(SEEN, xid="149"): "_x10 600x90"}, 15, [device(xid="149")]),
        Case("within the hour", {gpu(SEEN, xid="74"): "_x10 600x90"}, 69, [device(xid="74")]),
        Case("an hour later", {gpu(SEEN, xid="74"): "_x10 600x90"}, 71),
    ),
    "PodgpuXidApplication": (
        Case(
            "on a GPU that one pod holds",
            {
                gpu(SEEN, "train-0", xid="31"): "_x10 600x90",
                gpu(SINCE, "train-0"): "60x99",
                victim("31"): BEGUN,
                **meaning("31"),
            },
            15,
            [device(xid="31", **TRAINING)],
            f"XID 31 of GPU 0 of {NODE}, mostly caused by a program",
            f"Seen 5m 0s ago in {UUID}. {CATALOGUE[31].meaning}; NVIDIA advises: restart app. "
            "Container ml/train-0/main held or used it then.",
            resolved=20,
        ),
        Case(
            "on a GPU that two teams share: an alert for each",
            {
                gpu(SEEN, xid="31"): "_x10 600x90",
                victim("31"): BEGUN,
                victim("31", SEARCH): BEGUN,
            },
            15,
            [device(xid="31", **TRAINING), device(xid="31", **SEARCH)],
            resolved=20,
        ),
        Case(
            "on a MIG instance",
            {
                gpu(SEEN, xid="31"): "_x10 600x90",
                victim("31", GPU_I_ID="2", GPU_CI_ID="0"): BEGUN,
            },
            15,
            [device(xid="31", **TRAINING)],
        ),
        Case(
            "a container that had this error before, and one that has it now",
            {
                gpu(SEEN, xid="31"): "_x25 1500x14 2400x60",
                victim("31"): "_x25 1x90",
                victim("31", SEARCH): "_x40 1x60",
            },
            42,
            [device(xid="31", **SEARCH)],
        ),
        Case(
            "the pod has ended because of it, and five minutes later its series",
            {
                gpu(SEEN, "train-0", xid="13"): "_x10 600x2 stale",
                gpu(SEEN, xid="13"): "_x13 600x90",
                victim("13"): "_x10 1x5 stale",
            },
            19,
            [device(xid="13", **TRAINING)],
            resolved=20,
        ),
        Case(
            "a pod that is created again under its name has the error again and again",
            {
                gpu(SEEN, xid="31"): "_x10 600x3 840x3 1080x3 1320x3 1560x3 1800x60",
                **{
                    victim("31", pod_uid=str(run)): f"_x{10 + 4 * run} 1x7 stale"
                    for run in range(6)
                },
            },
            30,
            [device(xid="31", **TRAINING)],
        ),
        Case(
            "podgpu has restarted, and its ledger has the earlier errors",
            {
                gpu(SEEN, "train-0", xid="31"): "_x30 1800x60",
                victim("31"): "4x9 stale _x10 4x9 5x60",
            },
            33,
            [device(xid="31", **TRAINING)],
            resolved=41,
        ),
        Case(
            "podgpu has restarted, and knows of earlier errors only",
            {victim("31"): "4x9 stale _x10 4x60"},
            25,
        ),
        Case(
            "usage accounts are off, and one pod holds the GPU",
            {
                gpu(SEEN, "train-0", xid="31"): "_x10 600x90",
                gpu(SINCE, "train-0"): "60x99",
                gpu(HELD, "train-0"): "1x99",
            },
            15,
            [device(xid="31", **TRAINING)],
            resolved=20,
        ),
        Case(
            "a job",
            {
                gpu(SEEN, hpc_job="4711", user="alice", xid="31"): "_x10 600x90",
                gpu(VICTIM, **JOB, xid="31"): BEGUN,
            },
            12,
            [device(xid="31", hpc_job="4711")],
            f"XID 31 of GPU 0 of {NODE}, mostly caused by a program",
            f"Seen 2m 0s ago in {UUID}. Job 4711 held or used it then.",
        ),
        Case(
            "each of two jobs and a container that share the GPU",
            {
                gpu(SEEN, xid="31"): "_x10 600x90",
                gpu(VICTIM, **JOB, xid="31"): BEGUN,
                gpu(VICTIM, hpc_job="4712", owner_uid="slurm://hpc/4712/1", xid="31"): BEGUN,
                gpu(VICTIM, **PODLESS, xid="31"): BEGUN,
            },
            12,
            [
                device(xid="31", hpc_job="4711"),
                device(xid="31", hpc_job="4712"),
                device(xid="31", container="lab-web-1"),
            ],
        ),
        Case(
            "usage accounts are off; a container without a pod",
            {gpu(SEEN, container="lab-web-1", image="cuda", xid="31"): "_x10 600x90"},
            12,
            [device(xid="31", container="lab-web-1")],
            f"XID 31 of GPU 0 of {NODE}, mostly caused by a program",
            f"Seen 2m 0s ago in {UUID}. Container lab-web-1 held or used it then.",
        ),
        Case(
            "usage accounts are off; the job has ended because of it",
            {gpu(SEEN, xid="13"): "_x10 600x90", gpu(HELD, **JOB): "1x9"},
            12,
            [device(xid="13")],
            f"XID 13 of GPU 0 of {NODE}, mostly caused by a program",
            f"Seen 2m 0s ago in {UUID}. Held within ten minutes by job 4711.",
        ),
        Case(
            "usage accounts are off; before the next job held the GPU",
            {
                gpu(SEEN, hpc_job="4711", xid="13"): "_x10 600 stale",
                gpu(SEEN, hpc_job="4712", xid="13"): "_x11 600x90",
                gpu(SINCE, hpc_job="4712", owner_uid="slurm://hpc/4712/1"): "_x11 660x90",
            },
            13,
        ),
        Case(
            "usage accounts are off; the pod has ended because of it, and no pod followed",
            {
                gpu(SEEN, xid="13"): "_x10 600x90",
                gpu(HELD, "train-0"): "1x9",
            },
            12,
            [device(xid="13")],
            f"XID 13 of GPU 0 of {NODE}, mostly caused by a program",
            f"Seen 2m 0s ago in {UUID}. Held within ten minutes by ml/train-0.",
        ),
        Case(
            "usage accounts are off; before the next pod held the GPU",
            {
                gpu(SEEN, "train-0", xid="13"): "_x10 600 stale",
                gpu(SEEN, "train-1", xid="13"): "_x11 600x90",
                gpu(SINCE, "train-1"): "_x11 660x90",
            },
            13,
        ),
        Case(
            "usage accounts are off; an error since the next pod holds the GPU",
            {
                gpu(SEEN, "train-1", xid="13"): "_x11 600x90",
                gpu(SEEN, "train-1", xid="31"): "_x11 720x90",
                gpu(SINCE, "train-1"): "_x11 660x90",
            },
            13,
            [device(xid="31", **{**TRAINING, "pod": "train-1"})],
        ),
        Case(
            "no affected container is known, on a GPU whose MIG instances one pod holds",
            {
                gpu(SEEN, xid="31"): "_x10 600x90",
                gpu(SINCE, "train-0", GPU_I_ID="1", GPU_CI_ID="0"): "60x99",
                gpu(SINCE, "train-0", GPU_I_ID="2", GPU_CI_ID="0"): "60x99",
            },
            15,
            [device(xid="31")],
        ),
        Case(
            "a container of which only the uid is known",
            {
                gpu(SEEN, xid="31"): "_x10 600x90",
                gpu(VICTIM, pod_uid="u1", xid="31"): BEGUN,
            },
            15,
            [device(xid="31")],
        ),
        Case("within ten minutes", {gpu(SEEN, xid="31"): "_x10 600x90"}, 19, [device(xid="31")]),
        Case("ten minutes later", {gpu(SEEN, "train-0", xid="31"): "_x10 600x90"}, 21),
        Case(
            "hardware",
            {gpu(SEEN, "train-0", xid="79"): "_x10 600x90", victim("79"): BEGUN},
            15,
        ),
        Case(
            "a consequence of another error",
            {gpu(SEEN, "train-0", xid="45"): "_x10 600x90", victim("45"): BEGUN},
            15,
        ),
    ),
}
