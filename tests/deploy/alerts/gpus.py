"""Alerts about GPUs that do not respond or have disappeared, and about their memory."""

from collections.abc import Mapping

from tests.deploy.alerts.case import NODE, UUID, Case, device, gpu, instance, series

UP = "podgpu_gpu_up"
HELD = "podgpu_device_holder_info"
OTHER = {"uuid": "GPU-bbbb", "index": "1"}
PRESENT = series("podgpu_gpus", state="present")
EXPECTED = series("podgpu_gpus", state="expected")
NVML = series("podgpu_source_up", source="gpus", kind="nvml")
WITHOUT_NODE = {"node": ""}
DESCRIPTION = (
    "GPUs were present within the last day and none is present now, or the driver does not respond."
)
VOLATILE, AGGREGATE = "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL"
RECOVERY = f"The driver requests a recovery action for GPU 0 of {NODE}"
FAILED, PENDING = "DCGM_FI_DEV_ROW_REMAP_FAILURE", "DCGM_FI_DEV_ROW_REMAP_PENDING"

GPUS: Mapping[str, tuple[Case, ...]] = {
    "PodgpuGpuDown": (
        Case(
            "a GPU that two pods hold is lost",
            {
                gpu(UP): "1x9 0x9 1x9",
                gpu(UP, **OTHER): "1x29",
                gpu(HELD, "train-0"): "1x19",
                gpu(HELD, "train-1"): "1x19",
            },
            13,
            [device()],
            f"GPU 0 of {NODE} does not respond",
            f"{UUID} is lost or hangs, or its driver does not respond. "
            "Held by ml/train-0 ml/train-1.",
            resolved=21,
        ),
        Case(
            "no holder is known",
            {gpu(UP): "0x9", gpu(UP, **OTHER): "1x9"},
            5,
            [device()],
            f"GPU 0 of {NODE} does not respond",
            f"{UUID} is lost or hangs, or its driver does not respond. No holder is known.",
        ),
        Case(
            "lost for a minute in each four",
            {gpu(UP): "1 1 1 0 " * 5 + "1x20", gpu(UP, **OTHER): "1x45"},
            18,
            [device()],
            f"GPU 0 of {NODE} is lost again and again",
            f"{UUID} is lost or hangs, or its driver does not respond. No holder is known.",
            resolved=35,
        ),
        Case(
            "lost twice for a minute",
            {gpu(UP): "1x9 0 1x5 0 1x20", gpu(UP, **OTHER): "1x45"},
            20,
        ),
        Case("for less than two minutes", {gpu(UP): "1x9 0x9", gpu(UP, **OTHER): "1x19"}, 11),
        Case(
            "the end of its pod does not restart the waiting time",
            {
                gpu(UP, "train-0"): "0 0 _x9",
                gpu(UP): "_ _ 0x9",
                gpu(UP, **OTHER): "1x19",
            },
            3,
            [device()],
        ),
        Case(
            "another podgpu of the node reports it as up",
            {
                gpu(UP): "0x9",
                gpu(UP, instance="10.0.0.2:9400"): "1x9",
                gpu(UP, **OTHER): "1x9",
            },
            8,
        ),
        Case("it responds again", {gpu(UP): "0x9 1x9", gpu(UP, **OTHER): "1x19"}, 12),
        Case("its series has ended", {gpu(UP): "0x5 stale", gpu(UP, **OTHER): "1x9"}, 8),
        Case(
            "the driver of all GPUs does not respond",
            {gpu(UP): "1x9 0x20", gpu(UP, **OTHER): "1x9 0x20"},
            25,
        ),
        Case(
            "the driver of all GPUs does not respond, and another node's does",
            {gpu(UP): "1x9 0x20", gpu(UP, uuid="GPU-cccc", Hostname="node-2"): "1x30"},
            25,
        ),
        Case("it has no series", {gpu(UP, **OTHER): "1x9"}, 8),
    ),
    "PodgpuNodeWithoutGpu": (
        Case(
            "the driver does not respond",
            {PRESENT: "4x4 0x19 4x9", EXPECTED: "4x40"},
            16,
            [{"job": "podgpu", "node": NODE}],
            f"No GPU of {NODE} responds",
            DESCRIPTION,
            resolved=26,
        ),
        Case(
            "the scrape adds no node label",
            {
                series("podgpu_gpus", **WITHOUT_NODE, state="present"): "0x19",
                series("podgpu_gpus", **WITHOUT_NODE, state="expected"): "4x19",
            },
            12,
            [{"job": "podgpu", "instance": "10.0.0.1:9400"}],
            "No GPU of 10.0.0.1:9400 responds",
            DESCRIPTION,
        ),
        Case(
            "the only GPU is not listed after a reboot, and podgpu has another address",
            {
                PRESENT: "1x20 stale",
                EXPECTED: "1x20 stale",
                series("podgpu_gpus", state="present", instance="10.0.0.2:9400"): "_x25 0x999",
                series("podgpu_gpus", state="expected", instance="10.0.0.2:9400"): "_x25 0x999",
            },
            900,
            [{"job": "podgpu", "node": NODE}],
        ),
        Case(
            "the driver does not start after a reboot",
            {
                PRESENT: "8x20 stale",
                EXPECTED: "8x20 stale",
                NVML: "1x20 0x999",
            },
            900,
            [{"job": "podgpu", "node": NODE}],
        ),
        Case(
            "there never was a driver, and the scrape adds no node label",
            {series("podgpu_source_up", **WITHOUT_NODE, source="gpus", kind="nvml"): "0x19"},
            12,
            [{"job": "podgpu", "instance": "10.0.0.1:9400"}],
        ),
        Case(
            "the driver does not respond, and its source is down",
            {PRESENT: "4x4 0x19", EXPECTED: "4x23", NVML: "1x4 0x19"},
            16,
            [{"job": "podgpu", "node": NODE}],
        ),
        Case(
            "the driver responds to one of two podgpus, as during an update",
            {
                PRESENT: "0x30",
                EXPECTED: "4x30",
                NVML: "0x30",
                series("podgpu_gpus", state="present", instance="10.0.0.2:9400"): "4x30",
                series("podgpu_gpus", state="expected", instance="10.0.0.2:9400"): "4x30",
            },
            20,
        ),
        Case(
            "another source reports GPUs that respond",
            {PRESENT: "4x30", EXPECTED: "4x30", NVML: "0x30"},
            20,
        ),
        Case(
            "a driver upgrade of four minutes",
            {PRESENT: "4x9 0x4 4x30", EXPECTED: "4x50"},
            20,
        ),
        Case(
            "another source is down",
            {series("podgpu_source_up", source="k", kind="dcgm"): "0x30"},
            20,
        ),
        Case("one of four responds", {PRESENT: "1x19", EXPECTED: "4x19"}, 16),
        Case("for less than ten minutes", {PRESENT: "4x4 0x19", EXPECTED: "4x23"}, 14),
        Case("a node without GPUs", {PRESENT: "0x19", EXPECTED: "0x19"}, 16),
        Case("it is unknown whether they respond", {EXPECTED: "4x19"}, 16),
        Case("more than a day ago", {PRESENT: "1x20 0x1600", EXPECTED: "1x20 0x1600"}, 1500),
    ),
    "PodgpuGpuVanished": (
        Case(
            "not listed after a restart, until a power cycle",
            {gpu(UP, "train-0"): "1x100", gpu(UP): "_x150 1x50", gpu(UP, **OTHER): "1x200"},
            125,
            [device()],
            f"GPU 0 of {NODE} has disappeared",
            f"{UUID} was present within the last day, and the driver no longer lists it, but lists "
            "others of that node.",
            resolved=152,
        ),
        Case("five hours later", {gpu(UP): "1x100", gpu(UP, **OTHER): "1x400"}, 400, [device()]),
        Case(
            "most of a day later", {gpu(UP): "1x300", gpu(UP, **OTHER): "1x1600"}, 1500, [device()]
        ),
        Case("a day later", {gpu(UP): "1x100", gpu(UP, **OTHER): "1x1700"}, 1600),
        Case("for less than ten minutes", {gpu(UP): "1x100", gpu(UP, **OTHER): "1x200"}, 114),
        Case(
            "it does not respond, but is listed",
            {gpu(UP): "1x100 0x99", gpu(UP, **OTHER): "1x200"},
            150,
        ),
        Case(
            "another pod holds it",
            {
                gpu(UP, "train-0"): "1x100",
                gpu(UP, "train-1"): "_x101 1x99",
                gpu(UP, **OTHER): "1x200",
            },
            150,
        ),
        Case(
            "podgpu restarts at another address",
            {
                gpu(UP): "1x100",
                gpu(UP, instance="10.0.0.2:9400"): "_x101 1x99",
            },
            150,
        ),
        Case(
            "another card has replaced it",
            {
                gpu(UP): "1x100",
                gpu(UP, uuid="GPU-cccc"): "_x105 1x99",
                gpu(UP, **OTHER): "1x200",
            },
            150,
        ),
        Case(
            "another machine with fewer GPUs has the node name now",
            {
                gpu(UP): "1x100",
                gpu(UP, **OTHER): "1x100",
                gpu(UP, uuid="GPU-cccc"): "_x110 1x99",
            },
            150,
        ),
        Case(
            "another machine has the node name now, and one of its cards disappears",
            {
                gpu(UP): "1x100",
                gpu(UP, **OTHER): "1x100",
                gpu(UP, uuid="GPU-cccc"): "_x105 1x999",
                gpu(UP, uuid="GPU-dddd", index="1"): "_x105 1x200",
            },
            350,
            [device(UUID="GPU-dddd", gpu="1")],
        ),
        Case(
            "its index has changed, and then it disappears",
            {
                gpu(UP): "1x100",
                gpu(UP, index="2"): "_x101 1x300",
                gpu(UP, **OTHER): "1x900",
            },
            440,
            [device(gpu="2")],
        ),
        Case("the node is not scraped", {gpu(UP): "1x100", gpu(UP, **OTHER): "1x100"}, 150),
    ),
    "PodgpuGpuRecoveryNeeded": (
        Case(
            "the driver requests a reset",
            {
                gpu("podgpu_recovery_action", "train-0"): "0x4 1x9 0x9",
                gpu(HELD, "train-0"): "1x29",
            },
            8,
            [device()],
            RECOVERY,
            f"{UUID} needs a reset. Held by ml/train-0.",
            resolved=16,
        ),
        *(
            Case(
                f"action {action}",
                {gpu("podgpu_recovery_action"): f"{action}x9"},
                8,
                [device()],
                RECOVERY,
                f"{UUID} needs {needed}. No holder is known.",
            )
            for action, needed in (
                (2, "a reboot of the node"),
                (3, "a drain of the GPUs connected to it"),
                (4, "a drain of the GPUs connected to it, and a reset"),
                (9, "recovery action 9, see the driver's documents"),
            )
        ),
        Case("for less than two minutes", {gpu("podgpu_recovery_action"): "0x4 1x9"}, 6),
        Case("the driver requests nothing", {gpu("podgpu_recovery_action"): "0x9"}, 8),
        Case("the driver requests nothing any more", {gpu("podgpu_recovery_action"): "2x4 0x9"}, 8),
    ),
    "PodgpuEccUncorrected": (
        Case(
            "one error, after which its pod ends",
            {
                gpu(VOLATILE, "train-0"): "3x20",
                gpu(VOLATILE): "_x21 4x20",
                gpu(HELD, "train-0"): "1x20",
            },
            22,
            [device()],
            f"Uncorrected memory errors in GPU 0 of {NODE}",
            f"1 within 15 minutes, in {UUID}. Held at that time by ml/train-0.",
            resolved=38,
        ),
        Case("only the aggregate count", {gpu(AGGREGATE): "7x20 9x20"}, 25, [device()]),
        Case(
            "the volatile count was reset with the driver",
            {
                gpu(VOLATILE): "3x20 1x20",
                gpu(AGGREGATE): "7x20 8x20",
            },
            25,
            [device()],
        ),
        Case("a quarter of an hour ago", {gpu(VOLATILE): "3x20 4x40"}, 37),
        Case("old errors", {gpu(VOLATILE): "3x40", gpu(AGGREGATE): "7x40"}, 30),
        Case("the driver is reloaded", {gpu(VOLATILE): "3x20 0x20"}, 25),
        Case("a new GPU with earlier errors", {gpu(VOLATILE): "_x20 3x20"}, 25),
        Case("ECC is off", {gpu(UP): "1x40"}, 30),
    ),
    "PodgpuRowRemapFailed": (
        Case(
            "a failure",
            {gpu(FAILED): "0x4 1x9 0x9"},
            8,
            [device()],
            f"GPU 0 of {NODE} has no spare memory rows left",
            f"A remapping of a broken row has failed in {UUID}.",
            resolved=16,
        ),
        Case("for less than a minute", {gpu(FAILED): "0x4 1x9"}, 5),
        Case("none", {gpu(FAILED): "0x9"}, 8),
        Case("a card without remapping", {gpu(UP): "1x9"}, 8),
    ),
    "PodgpuRowRemapPending": (
        Case(
            "pending, while pods come and go",
            {
                gpu(PENDING, "train-0"): "1x6",
                gpu(PENDING): "_x7 1x9 0x9",
                gpu(HELD, "train-1"): "1x20",
            },
            9,
            [device()],
            f"GPU 0 of {NODE} waits for a reset to replace broken memory rows",
            f"A remapping is pending in {UUID}. Until the reset, the broken row is not used. "
            "Held by ml/train-1.",
            resolved=18,
        ),
        Case("for less than five minutes", {gpu(PENDING): "0x4 1x9"}, 9),
        Case("after the reset", {gpu(PENDING): "1x9 0x9"}, 11),
        Case("a MIG instance has no such reading", {instance("DCGM_FI_DEV_FB_USED"): "1x9"}, 8),
    ),
}
