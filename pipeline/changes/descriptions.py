"""Ids, texts and figures of ended holdings and XID errors, for all output formats."""

from collections.abc import Iterator
from typing import Final

from pipeline.fields.xid_catalogue import XIDS
from pipeline.model import NS, Holding, Instant, PartialRef, XidError, owner_text, split_error_ns

PROGRAMS: Final = frozenset(code for code, known in XIDS.items() if known.alert == "application")
"""XID codes that mostly mean a fault of a program, as in the alert `PodgpuXidApplication`."""


def figures(holding: Holding) -> Iterator[tuple[str, int]]:
    """Yield the known figures of a holding as name and integer.

    `counted_nanoseconds` and `gap_nanoseconds` of an ended holding sum to its length.
    """
    known = (
        ("counted_nanoseconds", holding.counted_ns),
        ("gap_nanoseconds", holding.gap_ns),
        ("held_nanoseconds", holding.held_ns),
        ("busy_nanoseconds", holding.busy_ns),
        ("busy_error_nanoseconds", split_error_ns(holding.contested_ns, holding.switching_ns)),
        ("contested_busy_nanoseconds", holding.contested_ns),
        ("switching_nanoseconds", holding.switching_ns),
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
    """Return an id of a holding: device, pod, container and the holding's own id.

    The id stays the same after a restart of podgpu, if the holding continues.
    """
    subject = holding.subject
    pod = subject.uid or f"{subject.namespace}/{subject.pod}"
    return f"{holding.device}/{pod}/{subject.container}/{holding.id}"


def error_id(error: XidError) -> str:
    """Return an id of an XID error: device, code and time.

    If the MIG instance becomes known later, `ChangeTracker` keeps the first id.
    """
    return f"{error.device}/{error.code}/{error.at.wall_ns}"


def meaning(code: int) -> str:
    """Return a short description of an XID code; empty if the code is unknown."""
    return XIDS[code].meaning if code in XIDS else ""


def action(code: int) -> str:
    """Return the word for the action that NVIDIA advises; empty if the code is unknown."""
    return XIDS[code].action if code in XIDS else ""


def advice(code: int) -> str:
    """Return the action that NVIDIA advises as a sentence; empty if the code is unknown."""
    return XIDS[code].advice if code in XIDS else ""


def holding_sentence(holding: Holding) -> str:
    """Return a sentence that describes an ended holding."""
    verb = "held" if holding.source else "used"
    seconds = _seconds(holding.start, holding.end or holding.start)
    return f"{container_name(holding.subject)} {verb} {holding.device} for {seconds}"


def xid_sentence(error: XidError, victim: PartialRef | None = None) -> str:
    """Return a sentence that describes an XID error.

    Args:
        error: the error.
        victim: an affected container; None if there is none.
    """
    text = f"XID {error.code} on {error.device}"
    if description := meaning(error.code):
        text += f": {description}"
    return text if victim is None else f"{text}; affected container: {container_name(victim)}"


def container_name(subject: PartialRef) -> str:
    """Return the name of a container or job, as far as it is known."""
    if subject.kind != "pod":
        return owner_text(subject.namespace, subject.pod, subject.uid)
    parts = (subject.namespace, subject.pod, subject.container)
    return "/".join(part for part in parts if part) or subject.uid or "a container"


def _seconds(start: Instant, end: Instant) -> str:
    milliseconds = max(end.mono_ns - start.mono_ns, 0) * 1000 // NS
    return f"{milliseconds // 1000}.{milliseconds % 1000:03d} s"
