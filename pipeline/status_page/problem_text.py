"""Format the problems of a status document as text."""

from typing import Final

from pipeline.status_page.component_problems import component_problems
from pipeline.status_page.display_text import holder_name
from pipeline.status_page.status_document import StatusDocument
from pipeline.status_page.use_format import ProblemStatus

MOST_NAMED: Final = 4
"""Maximum number of containers that the text of a problem names."""

_WORDS: Final = {
    "caused": "caused by",
    "claims": "claimed by",
    "used": "affected",
    "held": "affected",
}
_OF_KIND: Final = {
    ("conflict", "held"): "held by",
    ("conflict", "used"): "used by",
    ("unclaimed_use", "used"): "used by",
}
"""Words that differ for one kind of problem."""

_ORDER: Final = ("caused by", "claimed by", "held by", "used by", "affected")


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
    """Return which containers caused a problem, and which it affects; empty if none is known.

    For example `caused by: ml/train-0 (main); affected: ml/eval-0 (main) and 2 more`.
    """
    groups: dict[str, list[str]] = {}
    for one in problem.containers[:MOST_NAMED]:
        word = _OF_KIND.get((problem.kind, one.part), _WORDS[one.part])
        groups.setdefault(word, []).append(holder_name(one))
    text = "; ".join(f"{word}: {', '.join(groups[word])}" for word in _ORDER if word in groups)
    more = len(problem.containers[MOST_NAMED:]) + problem.containers_left_out
    return f"{text}{f' and {more} more' if more else ''}"
