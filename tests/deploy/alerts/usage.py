"""Alerts about GPUs that are held and idle, busy without a holder, or claimed by several pods."""

from collections.abc import Mapping

from tests.deploy.alerts.case import (
    JOB,
    NODE,
    PODLESS,
    UUID,
    Case,
    device,
    gpu,
    instance,
    series,
)

UTIL, ENCODER = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_ENC_UTIL"
ENGINE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
HELD, INFO = "podgpu_device_holder_info", "podgpu_device_info"
CONFLICTS = "podgpu_attribution_conflicts"
ATTRIBUTED = series("podgpu_attribution_age_seconds", source="kubelet", kind="podresources")
ROW = {"namespace": "ml", "pod": "train-0", "container": "main"}
SLICE = {"GPU_I_ID": "2", "GPU_CI_ID": "0"}

USAGE: Mapping[str, tuple[Case, ...]] = {
    "PodgpuAllocatedIdle": (
        Case(
            "held for over an hour, busy for 4 %",
            {gpu(UTIL, "train-0"): "4x99 100x60", gpu(HELD, "train-0"): "1x160"},
            70,
            [device(**ROW)],
            f"ml/train-0 holds GPU 0 of {NODE} and does not use it",
            f"{UUID} has been held for an hour and was busy for 4.0 % of it.",
            resolved=108,
        ),
        Case(
            "a MIG instance",
            {instance(ENGINE, "train-0"): "0.01x99", instance(HELD, "train-0"): "1x99"},
            70,
            [device(**ROW, **SLICE, GPU_I_PROFILE="1g.10gb")],
            f"ml/train-0 holds GPU 0 of {NODE} and does not use it",
            f"{UUID} (MIG 1g.10gb, GPU instance 2) has been held for an hour and was busy for "
            "1.0 % of it.",
        ),
        Case(
            "a shared GPU that neither of two pods uses",
            {
                gpu(UTIL): "0x99",
                gpu(HELD, "train-0"): "1x99",
                gpu(HELD, "train-1"): "1x99",
            },
            70,
            [device(**ROW), device(**{**ROW, "pod": "train-1"})],
        ),
        Case(
            "a job",
            {gpu(UTIL, hpc_job="4711", user="alice"): "4x99", gpu(HELD, **JOB): "1x99"},
            70,
            [device(**JOB)],
            f"Job 4711 holds GPU 0 of {NODE} and does not use it",
            f"{UUID} has been held for an hour and was busy for 4.0 % of it.",
        ),
        Case(
            "a container without a pod",
            {gpu(UTIL, container="lab-web-1", image="cuda"): "4x99", gpu(HELD, **PODLESS): "1x99"},
            70,
            [device(**PODLESS)],
            f"Container lab-web-1 holds GPU 0 of {NODE} and does not use it",
            f"{UUID} has been held for an hour and was busy for 4.0 % of it.",
        ),
        Case(
            "a GPU that two jobs and a container share",
            {
                gpu(UTIL): "0x99",
                gpu(HELD, **JOB): "1x99",
                gpu(HELD, hpc_job="4712", owner_uid="slurm://hpc/4712/1"): "1x99",
                gpu(HELD, **PODLESS): "1x99",
            },
            70,
            [
                device(**JOB),
                device(hpc_job="4712", owner_uid="slurm://hpc/4712/1"),
                device(**PODLESS),
            ],
        ),
        Case(
            "a job that was requeued half an hour ago",
            {
                gpu(UTIL): "0x99",
                gpu(HELD, **JOB): "1x40 stale",
                gpu(HELD, **{**JOB, "owner_uid": "slurm://hpc/4711/2"}): "_x41 1x60",
            },
            70,
        ),
        Case(
            "podgpu was restarted at another address",
            {
                gpu(UTIL, "train-0"): "0x40",
                gpu(HELD, "train-0"): "1x40",
                gpu(UTIL, "train-0", instance="10.0.0.2:9400"): "_x40 0x60",
                gpu(HELD, "train-0", instance="10.0.0.2:9400"): "_x40 1x60",
            },
            70,
            [device(**ROW)],
        ),
        Case(
            "an hour after it was in use",
            {gpu(UTIL, "train-0"): "100x30 0x99", gpu(HELD, "train-0"): "1x140"},
            100,
            [device(**ROW)],
        ),
        Case(
            "for less than an hour since its first scrape",
            {gpu(UTIL, "train-0"): "4x99", gpu(HELD, "train-0"): "1x99"},
            57,
        ),
        Case("busy for 5 %", {gpu(UTIL, "train-0"): "5x99", gpu(HELD, "train-0"): "1x99"}, 70),
        Case(
            "busy for four minutes of the hour",
            {
                gpu(UTIL, "train-0"): "0x30 100x3 0x99",
                gpu(HELD, "train-0"): "1x140",
            },
            70,
        ),
        Case(
            "held for less than an hour",
            {
                gpu(UTIL, "train-0"): "_x50 0x99",
                gpu(UTIL): "0x49",
                gpu(HELD, "train-0"): "_x50 1x99",
            },
            100,
        ),
        Case("free", {gpu(UTIL): "0x99"}, 70),
        Case("its utilisation is unknown", {gpu(HELD, "train-0"): "1x99"}, 70),
        Case(
            "its utilisation is unknown for ten minutes of the hour",
            {
                gpu(UTIL, "train-0"): "0x39 stale _x10 0x50",
                gpu(HELD, "train-0"): "1x99",
            },
            70,
        ),
        Case(
            "lost while it was held",
            {
                gpu(UTIL, "train-0"): "0x60 stale",
                gpu(HELD, "train-0"): "1x99",
            },
            80,
        ),
        Case(
            "it encodes video",
            {
                gpu(UTIL, "train-0"): "0x99",
                gpu(ENCODER, "train-0"): "40x99",
                gpu(HELD, "train-0"): "1x99",
            },
            70,
        ),
        Case(
            "only the load of its encoders is known",
            {
                gpu(ENCODER, "train-0"): "0x99",
                gpu(HELD, "train-0"): "1x99",
            },
            70,
        ),
    ),
    "PodgpuBusyUnattributed": (
        Case(
            "no pod holds it",
            {gpu(UTIL): "50x99 0x20", gpu(INFO): "1x120", ATTRIBUTED: "5x120"},
            25,
            [device()],
            f"A GPU of {NODE} is in use, but no pod, job or container holds it",
            f"{UUID} was busy for 50.0 % of ten minutes, and no pod, job or container holds it.",
            resolved=112,
        ),
        Case(
            "a MIG instance, while another one of the GPU is held",
            {
                instance(ENGINE): "0.5x99",
                instance(ENGINE, "train-0", "3"): "0.5x99",
                instance(HELD, "train-0", "3"): "1x99",
                gpu(INFO): "1x99",
                instance(INFO): "1x99",
                instance(INFO, number="3"): "1x99",
                ATTRIBUTED: "5x99",
            },
            25,
            [device(**SLICE)],
        ),
        Case(
            "pods are known, but not their devices",
            {
                gpu(UTIL): "50x99",
                gpu(INFO): "1x99",
                series("podgpu_attribution_age_seconds", source="pods", kind="pods"): "5x99",
            },
            25,
        ),
        Case(
            "held",
            {
                gpu(UTIL, "train-0"): "50x99",
                gpu(HELD, "train-0"): "1x99",
                gpu(INFO): "1x99",
                ATTRIBUTED: "5x99",
            },
            25,
        ),
        Case(
            "held until five minutes ago",
            {
                gpu(UTIL): "50x99",
                gpu(HELD, "train-0"): "1x20 stale",
                gpu(INFO): "1x99",
                ATTRIBUTED: "5x99",
            },
            25,
        ),
        Case("no source reports holders", {gpu(UTIL): "50x99", gpu(INFO): "1x99"}, 25),
        Case(
            "the source of the holders is stale",
            {
                gpu(UTIL): "50x99",
                gpu(INFO): "1x99",
                ATTRIBUTED: "300x99",
            },
            25,
        ),
        Case(
            "for 5 %, and holders were reported four minutes ago",
            {gpu(UTIL): "5x99", gpu(INFO): "1x99", ATTRIBUTED: "250x99"},
            25,
            [device()],
        ),
        Case("for 4 %", {gpu(UTIL): "4x99", gpu(INFO): "1x99", ATTRIBUTED: "5x99"}, 25),
        Case(
            "for less than ten minutes",
            {gpu(UTIL): "0x9 50x99", gpu(INFO): "1x199", ATTRIBUTED: "5x199"},
            19,
        ),
        Case("idle", {gpu(UTIL): "1x99", gpu(INFO): "1x99", ATTRIBUTED: "5x99"}, 25),
        Case("its utilisation is unknown", {gpu(INFO): "1x99", ATTRIBUTED: "5x99"}, 25),
    ),
    "PodgpuAttributionConflict": (
        Case(
            "two pods",
            {gpu(CONFLICTS): "2x29 0x9", gpu(HELD, "old"): "1x29", gpu(HELD, "new"): "1x39"},
            15,
            [device()],
            f"2 pods, jobs or containers have conflicting claims on GPU 0 of {NODE}",
            f"{UUID}: it is unknown which of them holds it. Claimed by ml/new ml/old.",
            resolved=31,
        ),
        Case(
            "a pod, two jobs and a container",
            {
                gpu(CONFLICTS): "4x29",
                gpu(HELD, "new"): "1x39",
                gpu(HELD, hpc_job="4712", owner_uid="slurm://hpc/4712/1"): "1x29",
                gpu(HELD, **JOB): "1x29",
                gpu(HELD, **PODLESS): "1x29",
            },
            15,
            [device()],
            f"4 pods, jobs or containers have conflicting claims on GPU 0 of {NODE}",
            f"{UUID}: it is unknown which of them holds it. Claimed by container lab-web-1 "
            "job 4711 job 4712 ml/new.",
        ),
        Case("on a MIG instance", {instance(CONFLICTS): "2x29"}, 15, [device(**SLICE)]),
        Case("for less than ten minutes", {gpu(CONFLICTS): "0x9 2x19"}, 18),
        Case("none", {gpu(CONFLICTS): "0x29"}, 15),
    ),
}
