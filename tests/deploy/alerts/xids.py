"""Alerts about XID errors, by class."""

from collections.abc import Mapping

from tests.deploy.alerts.case import NODE, UUID, Case, device, gpu

SEEN = "podgpu_xid_last_seen_timestamp_seconds"
COUNT = "podgpu_xid_errors_total"
HELD = "podgpu_device_holder_info"
SINCE = "podgpu_device_holder_since_timestamp_seconds"
TRAINING = {"namespace": "ml", "pod": "train-0", "container": "main"}

XIDS: Mapping[str, tuple[Case, ...]] = {
    "PodgpuXidHardware": (
        Case(
            "at minute 10, on a GPU whose pod ends because of it",
            {
                gpu(SEEN, "train-0", xid="79"): "_x10 600 stale",
                gpu(SEEN, xid="79"): "_x11 600x90",
                gpu(HELD, "train-0"): "1x10",
            },
            12,
            [device(xid="79")],
            f"XID 79 of GPU 0 of {NODE}, which requires a reset or more",
            f"Seen 2m 0s ago in {UUID}. Held within the hour by ml/train-0.",
        ),
        Case("no pod held it", {gpu(SEEN, xid="48"): "_x10 600x90"}, 69, [device(xid="48")]),
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
            {gpu(SEEN, "train-0", xid="94"): "_x10 600x90"},
            15,
            [device(xid="94")],
            f"XID 94 of GPU 0 of {NODE}, memory wears out",
            f"Seen 5m 0s ago in {UUID}, which continues to work. No holder is known.",
        ),
        Case("within the hour", {gpu(SEEN, xid="94"): "_x10 600x90"}, 69, [device(xid="94")]),
        Case("an hour later", {gpu(SEEN, xid="94"): "_x10 600x90"}, 71),
        Case("an uncontained error causes another alert", {gpu(SEEN, xid="95"): "_x10 600x90"}, 15),
    ),
    "PodgpuXidFabric": (
        Case(
            "an NVLink error",
            {gpu(SEEN, "train-0", xid="74"): "_x10 600x90", gpu(HELD, "train-0"): "1x99"},
            15,
            [device(xid="74")],
            f"XID 74 of GPU 0 of {NODE}, an error of its links",
            f"Seen 5m 0s ago in {UUID}. Held within the hour by ml/train-0.",
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
                gpu(HELD, "train-0"): "1x99",
            },
            15,
            [device(xid="31", **TRAINING)],
            f"XID 31 of GPU 0 of {NODE}, mostly caused by a program",
            f"Seen 5m 0s ago in {UUID}. Held within ten minutes by ml/train-0.",
        ),
        Case(
            "the pod has ended because of it, and no pod followed",
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
            "before the next pod held the GPU",
            {
                gpu(SEEN, "train-0", xid="13"): "_x10 600 stale",
                gpu(SEEN, "train-1", xid="13"): "_x11 600x90",
                gpu(SINCE, "train-1"): "_x11 660x90",
            },
            13,
        ),
        Case(
            "an error since the next pod holds the GPU",
            {
                gpu(SEEN, "train-1", xid="13"): "_x11 600x90",
                gpu(SEEN, "train-1", xid="31"): "_x11 720x90",
                gpu(SINCE, "train-1"): "_x11 660x90",
            },
            13,
            [device(xid="31", **{**TRAINING, "pod": "train-1"})],
        ),
        Case(
            "on a GPU that is shared",
            {
                gpu(SEEN, xid="31"): "_x10 600x90",
                gpu(SINCE, "train-0"): "60x99",
                gpu(SINCE, "train-1"): "60x99",
            },
            15,
            [device(xid="31")],
        ),
        Case(
            "on a GPU whose MIG instances one pod holds",
            {
                gpu(SEEN, xid="31"): "_x10 600x90",
                gpu(SINCE, "train-0", GPU_I_ID="1", GPU_CI_ID="0"): "60x99",
                gpu(SINCE, "train-0", GPU_I_ID="2", GPU_CI_ID="0"): "60x99",
            },
            15,
            [device(xid="31")],
        ),
        Case("within ten minutes", {gpu(SEEN, xid="31"): "_x10 600x90"}, 19, [device(xid="31")]),
        Case("ten minutes later", {gpu(SEEN, "train-0", xid="31"): "_x10 600x90"}, 21),
        Case("hardware", {gpu(SEEN, "train-0", xid="79"): "_x10 600x90"}, 15),
        Case("a consequence of another error", {gpu(SEEN, "train-0", xid="45"): "_x10 600x90"}, 15),
    ),
}
