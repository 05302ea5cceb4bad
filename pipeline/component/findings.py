"""Checks of `podgpu doctor`, and findings, which are their results. Only checks create findings."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final


class Verdict(Enum):
    """The severity of a finding."""

    OK = "ok"
    WARNING = "warning"
    """podgpu works, but a part of it is missing or degraded."""

    FAILURE = "failure"
    """A part of podgpu that is configured does not work."""

    SKIPPED = "skipped"
    """The result is unknown, or the check is not needed."""


_STATUS: Final = {Verdict.WARNING: 1, Verdict.FAILURE: 2}


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a check.

    Attributes:
        check: id of the check.
        verdict: the severity.
        subject: what was checked: a file, a socket, an address or a call.
        observed: what the check found.
        fix: how to fix the problem; empty if there is none.
        component: the component concerned, such as `source kubelet`; empty for all of podgpu.
    """

    check: str
    verdict: Verdict
    subject: str
    observed: str
    fix: str = ""
    component: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """A check. `docs/troubleshooting.md` has a row for each: what it examines, problems and fixes.

    Attributes:
        id: id of the check. It is stable, because scripts and runbooks refer to it.
        possible_verdicts: the bad verdicts of the check: warning, failure, both or none.
    """

    id: str
    possible_verdicts: frozenset[Verdict]

    def ok(self, subject: str, observed: str) -> Finding:
        """Return a finding without problem."""
        return self._finding(Verdict.OK, subject, observed)

    def skip(self, subject: str, why: str) -> Finding:
        """Return the finding that the check was skipped, and why."""
        return self._finding(Verdict.SKIPPED, subject, why)

    def warning(self, subject: str, observed: str, fix: str) -> Finding:
        """Return the finding that podgpu works, but something is missing or degraded."""
        return self._finding(Verdict.WARNING, subject, observed, fix)

    def failure(self, subject: str, observed: str, fix: str) -> Finding:
        """Return the finding that something does not work."""
        return self._finding(Verdict.FAILURE, subject, observed, fix)

    def _finding(self, verdict: Verdict, subject: str, observed: str, fix: str = "") -> Finding:
        if verdict in BOTH and not (fix and verdict in self.possible_verdicts):
            raise ValueError(
                f"{self.id}: a {verdict.value} needs a fix, and possible_verdicts must contain it"
            )
        # Error texts start with the subject, which the finding already has.
        return Finding(self.id, verdict, subject, observed.removeprefix(f"{subject}: "), fix)


WARNS: Final = frozenset({Verdict.WARNING})
FAILS: Final = frozenset({Verdict.FAILURE})
BOTH: Final = WARNS | FAILS
NONE: Final = frozenset[Verdict]()
"""For checks that only inform."""


def exit_status(findings: Iterable[Finding]) -> int:
    """Return the exit status: 2 if there is a failure, else 1 if there is a warning, else 0."""
    return max((_STATUS.get(finding.verdict, 0) for finding in findings), default=0)


def count_by_verdict(findings: Iterable[Finding]) -> dict[Verdict, int]:
    """Return the number of findings of each verdict that occurs, the worst verdict first."""
    found = Counter(finding.verdict for finding in findings)
    order = (Verdict.FAILURE, Verdict.WARNING, Verdict.OK, Verdict.SKIPPED)
    return {verdict: found[verdict] for verdict in order if found[verdict]}


def span(seconds: float) -> str:
    """Return a duration as text, such as `3 min`: the largest unit that fits in at least twice."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f} {unit}"
    return f"{seconds:.0f} s"
