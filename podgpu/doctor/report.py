"""Format findings as text for people, and as JSON for programs."""

import json
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pipeline.base.safe_text import line
from pipeline.base.version import VERSION
from pipeline.component.findings import Finding, Verdict, count_by_verdict, exit_status

_MARKS: Final = {
    Verdict.OK: "ok",
    Verdict.WARNING: "WARNING",
    Verdict.FAILURE: "FAILURE",
    Verdict.SKIPPED: "-",
}
_WIDTH: Final = 110
_INDENT: Final = " " * 10
_MAX_TEXT: Final = 2000
"""Maximum number of characters of one text: a message from a server may have any length."""

_PLURALS: Final = {Verdict.FAILURE: "failures", Verdict.WARNING: "warnings"}


@dataclass(frozen=True, slots=True)
class Subject:
    """What was examined.

    Attributes:
        node: the node's name; empty if a cluster was examined, or if the configuration is invalid.
        origin: where the configuration came from; or the kubeconfig.
        lead: a sentence before all findings; empty if there is nothing to say.
    """

    node: str
    origin: str
    lead: str = ""


def as_text(subject: Subject, findings: Sequence[Finding]) -> str:
    """Return the lead, and the findings and their fixes with wrapped lines, then a summary."""
    head = f"podgpu {VERSION}" + (f" on {subject.node}" if subject.node else "")
    lines = [subject.lead] if subject.lead else []
    lines.append(line(f"{head}, {subject.origin}", _MAX_TEXT))
    for finding in findings:
        component = f" ({finding.component})" if finding.component else ""
        text = f"{finding.check}{component}: {finding.subject}: {finding.observed}"
        lines += _wrapped(f"{_MARKS[finding.verdict]:<10}", text)
        if finding.fix:
            lines += _wrapped(f"{_INDENT}fix: ", finding.fix)
    sums = [
        f"{count} {_noun(verdict, count)}" for verdict, count in count_by_verdict(findings).items()
    ]
    return "\n".join([*lines, ", ".join(sums)])


def _wrapped(start: str, text: str) -> list[str]:
    # Messages of servers may contain terminal control characters: `line` escapes them. Long words
    # are not broken, so that paths and addresses can be copied.
    return textwrap.wrap(
        " ".join(line(text, _MAX_TEXT).split()),
        _WIDTH,
        initial_indent=start,
        subsequent_indent=" " * len(start),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _noun(verdict: Verdict, count: int) -> str:
    return _PLURALS.get(verdict, verdict.value) if count != 1 else verdict.value


def as_json(subject: Subject, findings: Sequence[Finding]) -> str:
    """Return a JSON object: what was examined, the exit status, and all findings."""
    document = {
        "version": VERSION,
        "node": subject.node,
        "origin": subject.origin,
        "status": exit_status(findings),
        "findings": [
            {
                "check": finding.check,
                "verdict": finding.verdict.value,
                "component": finding.component,
                "looked_at": finding.subject,
                "saw": finding.observed,
                "mend": finding.fix,
            }
            for finding in findings
        ],
    }
    # A path may contain bytes that are not valid UTF-8.
    return json.dumps(document, indent=2, ensure_ascii=False).encode("utf-8", "replace").decode()
