"""The workloads of the demo's sample data: who used which GPU in the last four weeks, and how.

Pods that the recording contains have the names they have there, and use the devices that they use
there. All others have ended.
"""

from dataclasses import dataclass
from typing import Final

DAYS: Final = 28
"""Number of days before now that the sample data covers."""

EVERY_DAY: Final = range(7)
WEEKDAYS: Final = range(5)


@dataclass(frozen=True, slots=True)
class Span:
    """One run of a workload.

    Attributes:
        since: days before now at which it began.
        until: days before now at which it ended; 0 if it continues.
    """

    since: float
    until: float = 0


@dataclass(frozen=True, slots=True)
class Daily:
    """Runs at the same time of each day. Only runs that have ended count.

    Attributes:
        hour: hour of the day (UTC) at which a run begins, about.
        hours: length of a run in hours, about.
        days: days of the week, from 0 for Monday.
        until: days before now at which the last run has ended.
        since: days before now before which there is no run.
    """

    hour: float
    hours: float
    days: range = EVERY_DAY
    until: float = 0
    since: float = DAYS


@dataclass(frozen=True, slots=True)
class Workload:
    """Pods that do the same work.

    Attributes:
        name: namespace, pod and container. `{n}` is replaced by the number of the run.
        owner: kind and name of the workload that creates the pods; empty without one.
        places: the devices: index of a GPU, or index of a GPU and position of a MIG instance on it.
        runs: when its pods ran.
        busy: part of the time for which a pod keeps a device busy: at night, and at the busiest
            hour of a working day.
        watts: power that a pod adds to an idle GPU while it keeps the GPU busy.
        gib: memory of a pod on each device, in GiB.
        xids: XID errors by the number of the run, which is counted from 1: code and count.
        claimed: whether pods hold the device; else they only use it.
    """

    name: str
    owner: str
    places: tuple[int | tuple[int, int], ...]
    runs: Span | Daily
    busy: tuple[float, float]
    watts: int
    gib: float
    xids: tuple[tuple[int, int, int], ...] = ()
    claimed: bool = True


@dataclass(frozen=True, slots=True)
class Absence:
    """A time without usage samples.

    Attributes:
        since: days before now at which it began.
        minutes: its length.
        reason: `down` (podgpu did not run) or `blind` (no usage sample succeeded).
        gpus: indexes of the GPUs.
    """

    since: float
    minutes: float
    reason: str
    gpus: range


@dataclass(frozen=True, slots=True)
class Conflict:
    """Times in which it is unknown who held a GPU: two sources name different holders.

    Attributes:
        gpu: index of the GPU.
        runs: when.
    """

    gpu: int
    runs: Span | Daily


WORKLOADS: Final = (
    # Training on two GPUs: one run after the other.
    Workload(
        "research/llama-warmup-0/trainer", "Job/llama-warmup", (0,), Span(27.8, 24.1),
        (0.82, 0.82), 430, 71,
    ),
    Workload(
        "research/llama-base-0/trainer", "Job/llama-base", (0, 1), Span(23.9, 10.3),
        (0.94, 0.94), 540, 118, xids=((1, 94, 1),),
    ),
    Workload(
        "research/llama-sweep-0/trainer", "Job/llama-sweep", (0, 1), Span(9.2, 2.9),
        (0.71, 0.71), 460, 96,
    ),
    Workload(
        "research/llama-train-0/trainer", "Job/llama-train", (0, 1), Span(2.37),
        (0.96, 0.96), 560, 121,
    ),
    # Services and a notebook share a GPU.
    Workload(
        "chat/assistant-0/server", "StatefulSet/assistant", (2,), Span(DAYS),
        (0.12, 0.52), 380, 58,
    ),
    Workload(
        "search/embeddings-0/encoder", "StatefulSet/embeddings", (2,), Span(12.6),
        (0.04, 0.21), 290, 8,
    ),
    Workload(
        "notebooks/scratch-{n}/jupyter", "", (2,), Daily(8.4, 9.3, WEEKDAYS, until=0.3),
        (0.01, 0.03), 190, 17,
    ),
    Workload("notebooks/scratch-0/jupyter", "", (2,), Span(0.24), (0.0, 0.0), 190, 17),
    # Cameras: two services, and a shell without a claim.
    Workload(
        "vision/detector-train-0/trainer", "Job/detector-train", (3,), Span(27.2, 19.4),
        (0.88, 0.88), 410, 64,
    ),
    Workload(
        "vision/detector-0/detector", "StatefulSet/detector", (3,), Span(18.8),
        (0.22, 0.46), 300, 23,
    ),
    Workload(
        "vision/tracker-0/tracker", "StatefulSet/tracker", (3,), Span(18.8),
        (0.1, 0.29), 240, 11,
    ),
    Workload("ops/debug-shell/shell", "", (3,), Span(0.06), (0.04, 0.05), 150, 1.5, claimed=False),
    # MIG instances; one has been free since the last canary.
    Workload(
        "notebooks/lab-{n}/jupyter", "", ((4, 0),), Daily(7.8, 9.9, WEEKDAYS, until=3.3),
        (0.03, 0.24), 140, 9,
    ),
    Workload("notebooks/lab-0/jupyter", "", ((4, 0),), Span(3.2), (0.02, 0.27), 140, 9),
    Workload(
        "serving/small-0/server", "StatefulSet/small", ((4, 1),), Span(DAYS),
        (0.17, 0.64), 120, 7,
    ),
    Workload(
        "serving/canary-{n}/server", "Job/canary", ((4, 2),), Daily(10, 2.6, range(1, 4)),
        (0.3, 0.4), 90, 6,
    ),
    # Fine-tuning and evaluation share a GPU, which has had faults.
    Workload(
        "research/finetune-{n}/trainer", "Job/finetune", (5,), Daily(17.5, 14.5, until=1),
        (0.63, 0.63), 420, 37, xids=((9, 31, 1), (17, 79, 1), (20, 31, 2)),
    ),
    Workload(
        "research/eval-{n}/eval", "Job/eval", (5,), Daily(23, 3.4, until=1),
        (0.27, 0.27), 330, 14, xids=((17, 79, 1),),
    ),
    Workload(
        "research/finetune-0/trainer", "Job/finetune", (5,), Span(0.88), (0.62, 0.62), 420, 37,
        xids=((1, 31, 1),),
    ),
    Workload("research/eval-0/eval", "Job/eval", (5,), Span(0.41), (0.26, 0.26), 330, 14),
    # Batch jobs at night, and on working days.
    Workload(
        "batch/render-{n}/render", "CronJob/render", (6,), Daily(21.7, 7.2),
        (0.9, 0.9), 450, 41,
    ),
    Workload(
        "batch/encode-{n}/encode", "CronJob/encode", (6,), Daily(9.2, 5.3, WEEKDAYS, until=0.1),
        (0.36, 0.36), 220, 6,
    ),
    # A GPU that is mostly free: a test each night, and pods of 300 ms.
    Workload(
        "batch/nightly-test-{n}/test", "CronJob/nightly-test", (7,), Daily(2.1, 1.6),
        (0.55, 0.55), 380, 29,
    ),
    *(
        Workload(
            "batch/short-{n}/task", "CronJob/short", (7,), Daily(hour, 0.3 / 3600),
            (0.7, 0.7), 200, 2,
        )
        for hour in (6.25, 12.25, 18.25)
    ),
)  # fmt: skip
"""All workloads. The sum of the busy parts of pods that share a GPU is below 1."""

ABSENCES: Final = (
    Absence(17.31, 9, "down", range(8)),
    Absence(11.06, 4, "blind", range(5, 6)),
)
"""All times without usage samples."""

CONFLICTS: Final = (
    Conflict(6, Daily(15.6, 0.7, range(0, 5, 2), until=1)),
    Conflict(6, Span(0.02)),
)
"""All times with unknown holders."""

IDLE_WATTS: Final = 92
"""Power of an idle GPU."""
