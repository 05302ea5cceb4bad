"""The workloads of the demo's sample data: who used which GPU in the last four weeks, and how.

Pods that the recording contains have the names they have there, and use the devices that they use
there. All others have ended.
"""

from dataclasses import dataclass
from typing import Final, TypeAlias

DAYS: Final = 28
"""Number of days before now that the sample data covers."""

EVERY_DAY: Final = range(7)
WEEKDAYS: Final = range(5)


@dataclass(frozen=True, slots=True)
class Present:
    """The run of a pod of the recording. It continues, and began when the recording says.

    Attributes:
        since: days before now at which it began, if the recording does not say it.
    """

    since: float


@dataclass(frozen=True, slots=True)
class Span:
    """One run of a workload, which has ended.

    Attributes:
        since: days before now at which it began.
        until: days before now at which it ended.
        before: namespace and name of a pod of the recording; the run ended before that pod began.
    """

    since: float
    until: float = 0
    before: str = ""


@dataclass(frozen=True, slots=True)
class Daily:
    """Runs at the same time of each day, which have ended.

    Attributes:
        hour: hour of the day (UTC) at which a run begins, about.
        hours: length of a run in hours, about.
        days: days of the week, from 0 for Monday.
        before: as of a span.
    """

    hour: float
    hours: float
    days: range = EVERY_DAY
    before: str = ""


Runs: TypeAlias = Present | Span | Daily


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
    runs: Runs
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
    runs: Runs


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
        "research/llama-sweep-0/trainer", "Job/llama-sweep", (0, 1),
        Span(9.2, before="research/llama-train-0"), (0.71, 0.71), 460, 96,
    ),
    Workload(
        "research/llama-train-0/trainer", "StatefulSet/llama-train", (0, 1), Present(2.37),
        (0.96, 0.96), 530, 2,
    ),
    # Services and a notebook share a GPU.
    Workload(
        "chat/assistant-1/server", "StatefulSet/assistant", (2,),
        Span(DAYS, before="chat/assistant-0"), (0.12, 0.52), 380, 58,
    ),
    Workload(
        "chat/assistant-0/server", "StatefulSet/assistant", (2,), Present(6), (0.12, 0.52), 380, 58,
    ),
    Workload(
        "search/embeddings-1/encoder", "StatefulSet/embeddings", (2,),
        Span(12.6, before="search/embeddings-0"), (0.04, 0.21), 290, 8,
    ),
    Workload(
        "search/embeddings-0/encoder", "StatefulSet/embeddings", (2,), Present(4),
        (0.04, 0.21), 290, 8,
    ),
    Workload(
        "notebooks/scratch-{n}/jupyter", "StatefulSet/scratch", (2,),
        Daily(8.4, 9.3, WEEKDAYS, before="notebooks/scratch-0"), (0.01, 0.03), 190, 17,
    ),
    Workload(
        "notebooks/scratch-0/jupyter", "StatefulSet/scratch", (2,), Present(0.24),
        (0.0, 0.0), 190, 17,
    ),
    # Cameras: two services, and a shell without a claim.
    Workload(
        "vision/detector-train-0/trainer", "Job/detector-train", (3,), Span(27.2, 19.4),
        (0.88, 0.88), 410, 64,
    ),
    Workload(
        "vision/detector-1/detector", "StatefulSet/detector", (3,),
        Span(18.8, before="vision/detector-0"), (0.22, 0.46), 300, 23,
    ),
    Workload(
        "vision/detector-0/detector", "StatefulSet/detector", (3,), Present(5),
        (0.22, 0.46), 300, 23,
    ),
    Workload(
        "vision/tracker-1/tracker", "StatefulSet/tracker", (3,),
        Span(18.8, before="vision/tracker-0"), (0.1, 0.29), 240, 11,
    ),
    Workload(
        "vision/tracker-0/tracker", "StatefulSet/tracker", (3,), Present(5), (0.1, 0.29), 240, 11,
    ),
    Workload(
        "ops/debug-shell/shell", "", (3,), Present(0.06), (0.04, 0.05), 150, 1.5, claimed=False,
    ),
    # MIG instances; one has been free since the last canary.
    Workload(
        "notebooks/lab-{n}/jupyter", "StatefulSet/lab", ((4, 0),),
        Daily(7.8, 9.9, WEEKDAYS, before="notebooks/lab-0"), (0.03, 0.24), 140, 21,
    ),
    Workload(
        "notebooks/lab-0/jupyter", "StatefulSet/lab", ((4, 0),), Present(3.2),
        (0.02, 0.27), 140, 21,
    ),
    Workload(
        "serving/small-1/server", "StatefulSet/small", ((4, 1),),
        Span(DAYS, before="serving/small-0"), (0.17, 0.64), 120, 11,
    ),
    Workload(
        "serving/small-0/server", "StatefulSet/small", ((4, 1),), Present(7),
        (0.17, 0.64), 120, 11,
    ),
    Workload(
        "serving/canary-{n}/server", "Job/canary", ((4, 2),), Daily(10, 2.6, range(1, 4)),
        (0.3, 0.4), 90, 6,
    ),
    # Fine-tuning and evaluation share a GPU, which has had faults.
    Workload(
        "research/finetune-{n}/trainer", "StatefulSet/finetune", (5,),
        Daily(17.5, 14.5, before="research/finetune-0"), (0.63, 0.63), 420, 37,
        xids=((9, 31, 1), (17, 79, 1), (20, 31, 2)),
    ),
    Workload(
        "research/eval-{n}/eval", "StatefulSet/eval", (5,),
        Daily(23, 3.4, before="research/eval-0"), (0.27, 0.27), 330, 14, xids=((17, 79, 1),),
    ),
    Workload(
        "research/finetune-0/trainer", "StatefulSet/finetune", (5,), Present(0.88),
        (0.62, 0.62), 420, 37,
        xids=((1, 31, 1),),
    ),
    Workload(
        "research/eval-0/eval", "StatefulSet/eval", (5,), Present(0.41), (0.26, 0.26), 330, 14,
    ),
    # Batch jobs at night, and on working days. Two sources disagree about the present holder: one
    # of the two pods only uses the GPU.
    Workload(
        "batch/render-{n}/render", "Job/render", (6,),
        Daily(21.7, 7.2, before="batch/encode-0"), (0.9, 0.9), 450, 41,
    ),
    Workload(
        "batch/encode-{n}/encode", "Job/encode", (6,),
        Daily(9.2, 5.3, WEEKDAYS, before="batch/encode-0"), (0.36, 0.36), 220, 6,
    ),
    Workload("batch/render-0/render", "Job/render", (6,), Present(0.5), (0.56, 0.56), 450, 14),
    Workload(
        "batch/encode-0/encode", "Job/encode", (6,), Present(0.6), (0.2, 0.2), 220, 5,
        claimed=False,
    ),
    # A GPU that is mostly free: a test each night, and pods of 300 ms.
    Workload(
        "batch/nightly-test-{n}/test", "CronJob/nightly-test", (7,), Daily(2.1, 1.6),
        (0.55, 0.55), 380, 29,
    ),
    *(
        Workload(
            f"batch/short-{time}-{{n}}/task", "CronJob/short", (7,), Daily(hour, 0.3 / 3600),
            (0.7, 0.7), 200, 2,
        )
        for time, hour in (("morning", 6.25), ("noon", 12.25), ("evening", 18.25))
    ),
)  # fmt: skip
"""All workloads. The sum of the busy parts of pods that share a GPU is below 1."""

ABSENCES: Final = (
    Absence(17.31, 9, "down", range(8)),
    Absence(11.06, 4, "blind", range(5, 6)),
)
"""All times without usage samples."""

CONFLICTS: Final = (Conflict(6, Daily(15.6, 0.7, range(0, 5, 2), before="batch/encode-0")),)
"""All times with unknown holders."""

IDLE_WATTS: Final = 92
"""Power of an idle GPU."""
