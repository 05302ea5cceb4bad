"""What is said of a holding that ended and of an XID error, whatever the form."""

from collections.abc import Iterator
from typing import Final

from pipeline.exposition.xid_codes import XIDS
from pipeline.model import NS, Holding, Instant, PartialRef, XidError

PROGRAMS: Final = frozenset(
    [
        *(8, 11, 13, 25, 31, 32, 39, 40, 41, 43, 60, 68, 69, 70, 71, 72, 75, 76, 77, 80),
        *range(82, 87),
        *(88, 89),
        *range(96, 106),
        *range(126, 136),
        139,
    ]
)
"""Codes that are mostly a program's fault: those of the alert `PodgpuXidApplication`."""


def figures(holding: Holding) -> Iterator[tuple[str, int]]:
    """Yield the figures of a holding, by name and in whole units; without those that are unknown.

    `counted_nanoseconds` and `gap_nanoseconds` come to the time from its start to its end.
    """
    known = (
        ("counted_nanoseconds", holding.counted_ns),
        ("gap_nanoseconds", holding.gap_ns),
        ("held_nanoseconds", holding.held_ns),
        ("busy_nanoseconds", holding.busy_ns),
        ("busy_mean_ppm", holding.busy_mean_ppm),
        ("busy_peak_ppm", holding.busy_peak_ppm),
        ("energy_millijoules", holding.energy_mj),
        ("memory_mean_bytes", holding.memory_mean_bytes),
        ("memory_peak_bytes", holding.memory_peak_bytes),
    )
    for name, value in known:
        if value is not None:
            yield name, value


def holding_id(holding: Holding) -> str:
    """Return what names a holding: the device, the container, and the holding's own id.

    It outlives a restart of podgpu, as far as the holding does.
    """
    subject = holding.subject
    pod = subject.uid or f"{subject.namespace}/{subject.pod}"
    return f"{holding.device}/{pod}/{subject.container}/{holding.id}"


def error_id(error: XidError) -> str:
    """Return what names an XID error: the device, the code, and when it happened.

    On which MIG instance it was may be known later: who tells of it again keeps the first name.
    """
    return f"{error.device}/{error.code}/{error.at.wall_ns}"


def meaning(code: int) -> str:
    """Return what an XID code means, in a few words; empty where that isn't known."""
    return XIDS.get(code, "")


def holding_sentence(holding: Holding) -> str:
    """Return a sentence about a holding that ended."""
    had = "held" if holding.source else "used"
    seconds = _seconds(holding.start, holding.end or holding.start)
    return f"{container_name(holding.subject)} {had} {holding.device} for {seconds}"


def xid_sentence(error: XidError, victim: PartialRef | None = None) -> str:
    """Return a sentence about an XID error.

    Args:
        error: the error.
        victim: the container that is told of; None where there is none.
    """
    told = f"XID {error.code} on {error.device}"
    if about := meaning(error.code):
        told += f": {about}"
    return told if victim is None else f"{told}; {container_name(victim)} was there"


def container_name(subject: PartialRef) -> str:
    """Return a container's name, as far as it is known."""
    parts = (subject.namespace, subject.pod, subject.container)
    return "/".join(part for part in parts if part) or subject.uid or "a container"


def _seconds(start: Instant, end: Instant) -> str:
    milliseconds = max(end.mono_ns - start.mono_ns, 0) * 1000 // NS
    return f"{milliseconds // 1000}.{milliseconds % 1000:03d} s"
