"""Render what is wrong: the first section of the page."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from pipeline.status_page.display_text import holder_name, span
from pipeline.status_page.html.elements import text
from pipeline.status_page.problem_text import MOST_NAMED, affected_text
from pipeline.status_page.use_format import AffectedStatus, ProblemStatus

MOST: Final = 20
"""Maximum number of problems that the page lists. Further ones are only counted."""


def problem_section(found: Sequence[ProblemStatus], now: datetime) -> str:
    """Return the section with the problems; a sentence if there is none.

    Args:
        found: the problems, the most severe first.
        now: the time of the document.
    """
    if not found:
        return '<p class="ok">No problem is known.</p>\n'
    items = "".join(_item(each, now) for each in found[:MOST])
    if len(found) > MOST:
        items += f'<li>and {len(found) - MOST} more: see <a href="./status">/status</a></li>'
    title = "1 problem" if len(found) == 1 else f"{len(found)} problems"
    return (
        f'<section class="problems {found[0].severity}" aria-labelledby="problems">'
        f'<h2 id="problems">{title}</h2><ul>{items}</ul></section>\n'
    )


def _item(problem: ProblemStatus, now: datetime) -> str:
    parts = [f'<b class="{problem.severity}">{problem.severity}</b> {text(problem.text)}']
    if problem.since is not None:
        parts.append(f' <span class="soft">({_since(problem, now)})</span>')
    if problem.containers:
        parts.append(f"<div>{_affected(problem)}</div>")
    if problem.advice:
        parts.append(f"<div>Advice: {text(problem.advice)}</div>")
    return f"<li>{''.join(parts)}</li>"


def _since(problem: ProblemStatus, now: datetime) -> str:
    assert problem.since is not None  # noqa: S101 - the caller has checked it
    age = span((now - problem.since).total_seconds())
    when = f'<time datetime="{problem.since.isoformat()}">{age}</time>'
    if problem.kind in {"xid", "sink_losing"}:
        return f"last {when} ago"
    return f"for {'' if problem.since_known else 'at least '}{when}"


_PARTS: Final = {"caused": " caused it", "used": " used it", "held": "", "claims": ""}


def _affected(problem: ProblemStatus) -> str:
    """Return the affected containers; of an XID error also who caused it."""
    if problem.kind != "xid":
        whole = affected_text(problem)
        return text(whole[:1].upper() + whole[1:])
    named = [_victim(each) for each in problem.containers[:MOST_NAMED]]
    more = len(problem.containers) - len(named) + problem.containers_left_out
    return f"Affected: {', '.join(named)}{f' and {more} more' if more else ''}"


def _victim(one: AffectedStatus) -> str:
    return f'{text(holder_name(one))}<span class="soft">{_PARTS[one.part]}</span>'
