"""What a check is: an id, what it is for, and the only way to make its findings."""

from dataclasses import dataclass

from pipeline.component.findings import Finding, Verdict


@dataclass(frozen=True, slots=True)
class Check:
    """One row of the table.

    Attributes:
        id: stable: scripts and runbooks go by it.
        subject: what it looks at, for people.
        consequence: what it means if it isn't well.
        fix: what to do then, in general; a finding says it for its case.
        possible_verdicts: the worst verdicts that it may give: warning, failure, both, or none.
        skips: it may be unable to tell, or find that nobody needs it.
    """

    id: str
    subject: str
    consequence: str
    fix: str
    possible_verdicts: frozenset[Verdict]
    skips: bool = True

    @property
    def verdicts(self) -> frozenset[Verdict]:
        """All verdicts that it may give."""
        skipped = {Verdict.SKIPPED} if self.skips else set()
        return self.possible_verdicts | {Verdict.OK} | skipped

    def ok(self, subject: str, observed: str) -> Finding:
        """Return the finding that all is well."""
        return self._finding(Verdict.OK, subject, observed)

    def skip(self, subject: str, why: str) -> Finding:
        """Return the finding that there is nothing to be told, and why."""
        return self._finding(Verdict.SKIPPED, subject, why)

    def warning(self, subject: str, observed: str, fix: str) -> Finding:
        """Return the finding that somebody will miss something."""
        return self._finding(Verdict.WARNING, subject, observed, fix)

    def failure(self, subject: str, observed: str, fix: str) -> Finding:
        """Return the finding that it doesn't work."""
        return self._finding(Verdict.FAILURE, subject, observed, fix)

    def _finding(self, verdict: Verdict, subject: str, saw: str, fix: str = "") -> Finding:
        if verdict not in self.verdicts:
            raise ValueError(f"{self.id} can't be {verdict.value}: its row says otherwise")
        if verdict in _BAD and not fix:
            raise ValueError(f"{self.id}: a {verdict.value} without a mend")
        # Errors name the place, which stands before what was seen.
        return Finding(self.id, verdict, subject, saw.removeprefix(f"{subject}: "), fix)


_BAD = frozenset({Verdict.WARNING, Verdict.FAILURE})
WARNS = frozenset({Verdict.WARNING})
FAILS = frozenset({Verdict.FAILURE})
BOTH = WARNS | FAILS
NONE: frozenset[Verdict] = frozenset()
"""It is told for people; nothing about it is wrong."""
