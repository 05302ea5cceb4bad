"""What a check is: an id, what it is for, and the only way to make its findings."""

from dataclasses import dataclass

from pipeline.component.findings import Finding, Verdict


@dataclass(frozen=True, slots=True)
class Check:
    """One row of the table.

    Attributes:
        id: stable: scripts and runbooks go by it.
        looks_at: what it looks at, for people.
        means: what it means if it isn't well.
        mend: what to do then, in general; a finding says it for its case.
        worst: the worst verdicts that it may give: warning, failure, both, or none.
        skips: it may be unable to tell, or find that nobody needs it.
    """

    id: str
    looks_at: str
    means: str
    mend: str
    worst: frozenset[Verdict]
    skips: bool = True

    @property
    def verdicts(self) -> frozenset[Verdict]:
        """All verdicts that it may give."""
        skipped = {Verdict.SKIPPED} if self.skips else set()
        return self.worst | {Verdict.OK} | skipped

    def ok(self, looked_at: str, saw: str) -> Finding:
        """Return the finding that all is well."""
        return self._found(Verdict.OK, looked_at, saw)

    def skipped(self, looked_at: str, why: str) -> Finding:
        """Return the finding that there is nothing to be told, and why."""
        return self._found(Verdict.SKIPPED, looked_at, why)

    def warning(self, looked_at: str, saw: str, mend: str) -> Finding:
        """Return the finding that somebody will miss something."""
        return self._found(Verdict.WARNING, looked_at, saw, mend)

    def failure(self, looked_at: str, saw: str, mend: str) -> Finding:
        """Return the finding that it doesn't work."""
        return self._found(Verdict.FAILURE, looked_at, saw, mend)

    def _found(self, verdict: Verdict, looked_at: str, saw: str, mend: str = "") -> Finding:
        if verdict not in self.verdicts:
            raise ValueError(f"{self.id} can't be {verdict.value}: its row says otherwise")
        if verdict in _BAD and not mend:
            raise ValueError(f"{self.id}: a {verdict.value} without a mend")
        # Errors name the place, which stands before what was seen.
        return Finding(self.id, verdict, looked_at, saw.removeprefix(f"{looked_at}: "), mend)


_BAD = frozenset({Verdict.WARNING, Verdict.FAILURE})
WARNS = frozenset({Verdict.WARNING})
FAILS = frozenset({Verdict.FAILURE})
BOTH = WARNS | FAILS
NONE: frozenset[Verdict] = frozenset()
"""It is told for people; nothing about it is wrong."""
