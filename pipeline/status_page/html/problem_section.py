"""Render what is wrong: the first section of the page."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from pipeline.status_page.display_text import span
from pipeline.status_page.html.elements import text
from pipeline.status_page.problem_text import affected_text
from pipeline.status_page.use_format import ProblemStatus

MOST: Final = 20
"""Maximum number of problems that the page lists. Further ones are only counted."""


def problem_section(found: Sequence[ProblemStatus], now: datetime, left_out: int = 0) -> str:
    """Return the section with the problems; a sentence if there is none.

    Args:
        found: the problems, the most severe first.
        now: the time of the document.
        left_out: number of further problems that the document does not have.
    """
    if not found:
        return '<p class="ok">No problem is known.</p>\n'
    items = "".join(_item(each, now) for each in found[:MOST])
    if len(found) > MOST:
        more, beyond = len(found) - MOST, f", which has the first {len(found)}" if left_out else ""
        items += f'<li>and {more + left_out} more: see <a href="./status">/status</a>{beyond}</li>'
    count = len(found) + left_out
    title = "1 problem" if count == 1 else f"{count} problems"
    return (
        '<section class="problems" aria-labelledby="problems">'
        f'<h2 id="problems">{title}</h2><ul>{items}</ul></section>\n'
    )


def _item(problem: ProblemStatus, now: datetime) -> str:
    said = problem.severity
    parts = [f'<b class="{said}">{said}</b> <b>{text(problem.text)}</b>']
    if problem.since is not None:
        parts.append(f' <span class="soft">({_since(problem, now)})</span>')
    if affected := affected_text(problem):
        parts.append(f"<div>{text(affected[:1].upper() + affected[1:])}</div>")
    if problem.advice:
        parts.append(f"<div>Advice: {text(problem.advice)}</div>")
    return f'<li class="{said}">{"".join(parts)}</li>'


def _since(problem: ProblemStatus, now: datetime) -> str:
    assert problem.since is not None  # noqa: S101 - the caller has checked it
    age = span((now - problem.since).total_seconds())
    when = f'<time datetime="{problem.since.isoformat()}">{age}</time>'
    if problem.kind in {"xid", "sink_losing"}:
        return f"last {when} ago"
    return f"for {'' if problem.since_known else 'at least '}{when}"
