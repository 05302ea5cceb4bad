"""Format the problems of a status document as text."""

from typing import Final

from pipeline.status_page.component_problems import component_problems
from pipeline.status_page.display_text import holder_name
from pipeline.status_page.status_document import StatusDocument
from pipeline.status_page.use_format import ProblemStatus

MOST_NAMED: Final = 4
"""Maximum number of containers that the text of a problem names."""


def problems(status: StatusDocument) -> list[str]:
    """Return one line of text for each problem, the most severe first; empty if there is none."""
    return [problem_text(one) for one in listed(status)]


def listed(status: StatusDocument) -> tuple[ProblemStatus, ...]:
    """Return the problems of a document; of podgpu itself if an older version wrote it."""
    return component_problems(status) if status.problems is None else status.problems


def problem_text(problem: ProblemStatus) -> str:
    """Return a problem as a line of text: what happened, whom it affects, what to do."""
    affected = affected_text(problem)
    advice = f"; advice: {problem.advice}" if problem.advice else ""
    return f"{problem.text}{f'; {affected}' if affected else ''}{advice}"


def affected_text(problem: ProblemStatus) -> str:
    """Return which containers a problem affects: `affected: ml/train-0 (main) and 2 more`."""
    named = [holder_name(one) for one in problem.containers[:MOST_NAMED]]
    more = len(problem.containers) - len(named) + problem.containers_left_out
    if not named:
        return ""
    word = "claimed by" if problem.kind == "conflict" else "affected"
    return f"{word}: {', '.join(named)}{f' and {more} more' if more else ''}"
