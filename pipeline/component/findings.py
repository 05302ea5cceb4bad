"""What a check found."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final


class Verdict(Enum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"
    """podgpu works, and somebody will miss something."""

    FAILURE = "failure"
    """Something that is configured doesn't work."""

    SKIPPED = "skipped"
    """It can't be told, or nobody needs it."""


_STATUS: Final = {Verdict.WARNING: 1, Verdict.FAILURE: 2}


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor's.

    Attributes:
        check: id of the check, a key of `CHECKS`.
        verdict: how bad it is.
        subject: the place: a file, a socket, an address, a call.
        observed: what was there.
        fix: what to do about it; empty where there is nothing to mend.
        component: whom it concerns, such as `source kubelet`; empty for what concerns all.
    """

    check: str
    verdict: Verdict
    subject: str
    observed: str
    fix: str = ""
    component: str = ""


def exit_status(findings: Iterable[Finding]) -> int:
    """Return 0 if all is well, 1 for warnings, 2 for failures."""
    return max((_STATUS.get(finding.verdict, 0) for finding in findings), default=0)


def count_by_verdict(findings: Iterable[Finding]) -> dict[Verdict, int]:
    """Return how often each verdict was given, the worst first; none that wasn't."""
    found = Counter(finding.verdict for finding in findings)
    order = (Verdict.FAILURE, Verdict.WARNING, Verdict.OK, Verdict.SKIPPED)
    return {verdict: found[verdict] for verdict in order if found[verdict]}


def span(seconds: float) -> str:
    """Return a length of time for people."""
    for size, word in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f} {word}"
    return f"{seconds:.0f} s"
