"""Findings for people and for programs."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import orjson

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
_LONGEST: Final = 2000
"""Characters of one text; a server may say any number of them."""

_MANY: Final = {Verdict.FAILURE: "failures", Verdict.WARNING: "warnings"}


@dataclass(frozen=True, slots=True)
class Subject:
    """What was looked at.

    Attributes:
        node: the node's name; empty for a cluster.
        origin: the configuration file, or the kubeconfig.
    """

    node: str
    origin: str


def as_text(subject: Subject, findings: Sequence[Finding]) -> str:
    """Return a line for each finding and one for each mend, and the sum of all."""
    head = f"podgpu {VERSION}" + (f" on {subject.node}" if subject.node else "")
    lines = [line(f"{head}, {subject.origin}", _LONGEST)]
    for finding in findings:
        whose = f" ({finding.component})" if finding.component else ""
        told = f"{finding.check}{whose}: {finding.subject}: {finding.observed}"
        lines += _wrapped(f"{_MARKS[finding.verdict]:<10}", told)
        if finding.fix:
            lines += _wrapped(f"{_INDENT}mend: ", finding.fix)
    sums = [
        f"{count} {_noun(verdict, count)}" for verdict, count in count_by_verdict(findings).items()
    ]
    return "\n".join([*lines, ", ".join(sums)])


def _wrapped(start: str, text: str) -> list[str]:
    # What others say may be made for a terminal to obey. A path or an address that is broken in two
    # can't be copied.
    return textwrap.wrap(
        " ".join(line(text, _LONGEST).split()),
        _WIDTH,
        initial_indent=start,
        subsequent_indent=" " * len(start),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _noun(verdict: Verdict, count: int) -> str:
    return _MANY.get(verdict, verdict.value) if count != 1 else verdict.value


def as_json(subject: Subject, findings: Sequence[Finding]) -> str:
    """Return one object: what was looked at, the exit status, and all findings."""
    document = {
        "version": VERSION,
        "node": _valid_utf8(subject.node),
        "origin": _valid_utf8(subject.origin),
        "status": exit_status(findings),
        "findings": [
            {
                "check": finding.check,
                "verdict": finding.verdict.value,
                "component": _valid_utf8(finding.component),
                "looked_at": _valid_utf8(finding.subject),
                "saw": _valid_utf8(finding.observed),
                "mend": _valid_utf8(finding.fix),
            }
            for finding in findings
        ],
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2).decode()


def _valid_utf8(text: str) -> str:
    """Return a text as UTF-8 can have it: a path may be of bytes that are none."""
    return text.encode("utf-8", "replace").decode()
