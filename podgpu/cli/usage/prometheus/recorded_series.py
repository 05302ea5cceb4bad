"""The PromQL of recorded usage: names, labels, and the exact growth of a counter.

`deploy/dashboards/recording.py` writes the recording rules with it, and `podgpu usage --prometheus`
reads what they have recorded. Where nothing was recorded, it asks the server for the same growth.
"""

from typing import Final

DEVICE: Final = "UUID, GPU_I_ID, GPU_CI_ID"
OF_DEVICE: Final = f"Hostname, gpu, GPU_I_PROFILE, {DEVICE}"
CONTAINER: Final = "namespace, pod, container, pod_uid, hpc_job, owner_uid"
"""Identity of a container of a pod, a job of Slurm, or a container without a pod."""
OF_CONTAINER: Final = f"{CONTAINER}, {OF_DEVICE}"
OF_NAMESPACE: Final = f"namespace, {OF_DEVICE}"

STEP: Final = "5m"
STEP_SECONDS: Final = 300
HOUR_STEPS: Final = 3600 // STEP_SECONDS
DAY_STEPS: Final = 24 * HOUR_STEPS

LATE_MS: Final = 30_000
"""By this time, samples with a timestamp before a window are stored."""

LONGEST_GAP: Final = "1h"
ACCOUNTED: Final = "podgpu_device_accounted_seconds_total"

OF_CONTAINERS: Final = ("held_seconds", "busy_seconds", "energy_joules")
OF_DEVICES: Final = (
    *("accounted_seconds", "free_seconds", "unknown_held_seconds", "busy_seconds"),
    *("unattributed_busy_seconds", "unattributed_energy_joules"),
)

UNMEASURED: Final = "unmeasured_seconds"
"""Held time of containers whose busy time is unknown."""

STEPS: Final = "podgpu:recorded_steps:count"
"""1 for each evaluation of the rules."""

HOUR: Final = "sum1h"
DAY: Final = "sum1d"


def container_rule(quantity: str) -> str:
    """Return the name of the rule for a quantity of containers, such as `held_seconds`."""
    return f"podgpu:container_{quantity}:increase{STEP}"


def device_rule(quantity: str, period: str = f"increase{STEP}") -> str:
    """Return the name of the rule for a quantity of devices, such as `free_seconds`.

    Args:
        quantity: one of `OF_DEVICES`.
        period: what the rule sums: five minutes, or `HOUR` or `DAY`.
    """
    return f"podgpu:device_{quantity}:{period}"


def namespace_rule(quantity: str, period: str) -> str:
    """Return the name of the rule for a quantity of namespaces on devices.

    Args:
        quantity: one of `OF_CONTAINERS`, or `UNMEASURED`.
        period: `HOUR` or `DAY`.
    """
    return f"podgpu:namespace_{quantity}:{period}"


def steps_rule(period: str) -> str:
    """Return the name of the rule that counts the evaluations in an hour or a day."""
    return f"podgpu:recorded_steps:{period}"


def milliseconds(duration_ms: int) -> str:
    """Return a duration in PromQL, with the largest units: `5m30s`, `-12s`, `0s`."""
    rest, words = abs(duration_ms), ""
    for unit, size in (("m", 60_000), ("s", 1000), ("ms", 1)):
        count, rest = divmod(rest, size)
        words += f"{count}{unit}" if count else ""
    return ("-" if duration_ms < 0 else "") + (words or "0s")


def last(metric: str, labels: str, window: str, offset: str) -> str:
    """Return the last value of each series in a window; two podgpus on a node count once."""
    return f"max by ({labels}) (last_over_time({metric}[{window}] offset {offset}))"


def growth(metric: str, labels: str, guard: str, late_ms: int = LATE_MS) -> str:
    """Return the growth of a counter in five minutes.

    If the counter was reset, it is what the counter has counted since. If there is no earlier
    value, the whole value counts if `guard` has an earlier one: then the series is new. Otherwise
    it is unknown when the value was counted, so only the growth since the first sample counts.

    The value before is that of the five minutes before, if there is one. A longer window would
    contain the last value of a podgpu with another address that has ended.

    Args:
        metric: the counter.
        labels: the labels of the result.
        guard: a counter of the same devices.
        late_ms: how long before the time of evaluation the five minutes end, in milliseconds.
    """
    end, start = milliseconds(late_ms), milliseconds(late_ms + STEP_SECONDS * 1000)
    now = last(metric, labels, STEP, end)
    before = last(metric, labels, STEP, start)
    earlier = last(metric, labels, LONGEST_GAP, start)
    # The first value of a counter that was not reset is its smallest one.
    first = f"max by ({labels}) (min_over_time({metric}[{STEP}] offset {end}))"
    return (
        f"{now}\n  - (\n    {before}\n    or {earlier}\n  ) >= 0\n"
        f"or (\n  {now}\n  and on ({DEVICE}) last_over_time({guard}[{LONGEST_GAP}]"
        f" offset {start})\n)\nor {now} - {first}"
    )


def container_growth(quantity: str, late_ms: int = LATE_MS) -> str:
    """Return the growth of a quantity of containers, as `container_rule` records it."""
    return growth(f"podgpu_container_{quantity}_total", OF_CONTAINER, ACCOUNTED, late_ms)


def device_growth(quantity: str, late_ms: int = LATE_MS) -> str:
    """Return the growth of a quantity of devices, as `device_rule` records it."""
    counter = f"podgpu_device_{quantity}_total"
    return growth(counter, OF_DEVICE, counter, late_ms)
