"""A check of `podgpu doctor`: its id and description. Findings are made by its methods only."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from pipeline.component.findings import Finding, Verdict


@dataclass(frozen=True, slots=True)
class Check:
    """A row of the table of checks.

    Attributes:
        id: stable; scripts and runbooks refer to it.
        subject: what is checked, for people.
        consequence: what does not work if the check finds a problem.
        fix: how to fix the problem in general; a finding has the fix for its case.
        possible_verdicts: the bad verdicts that the check can give: warning, failure, both or none.
        skips: the check can be skipped, because the result is unknown or not needed.
    """

    id: str
    subject: str
    consequence: str
    fix: str
    possible_verdicts: frozenset[Verdict]
    skips: bool = True

    @property
    def verdicts(self) -> frozenset[Verdict]:
        """All verdicts that the check can give."""
        skipped = {Verdict.SKIPPED} if self.skips else set()
        return self.possible_verdicts | {Verdict.OK} | skipped

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
        if verdict not in self.verdicts:
            raise ValueError(f"{self.id}: the check's definition does not allow {verdict.value}")
        if verdict in _BAD and not fix:
            raise ValueError(f"{self.id}: a {verdict.value} needs a fix")
        # Error texts start with the subject, which the finding already has.
        return Finding(self.id, verdict, subject, observed.removeprefix(f"{subject}: "), fix)


_BAD = frozenset({Verdict.WARNING, Verdict.FAILURE})
WARNS = frozenset({Verdict.WARNING})
FAILS = frozenset({Verdict.FAILURE})
BOTH = WARNS | FAILS
NONE: frozenset[Verdict] = frozenset()
"""For checks that only inform."""

WRITABLE_FOLDER: Final = "mount a folder that podgpu may write to, and give a path in it"


def checks_by_id(*checks: Check) -> Mapping[str, Check]:
    """Return checks by their id, in the order given."""
    return MappingProxyType({check.id: check for check in checks})
