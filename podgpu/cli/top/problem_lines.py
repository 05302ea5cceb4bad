"""Lines about what is wrong: the most severe problem first, with the advised action. Pure."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from pipeline.status_page.display_text import span
from pipeline.status_page.problem_text import affected_text
from pipeline.status_page.use_format import ProblemStatus
from podgpu.cli.terminal_text import wrapped
from podgpu.cli.top.styled_text import Line, Style, fitted, styled, width_of

_STYLES: Final = {
    "critical": Style.CRITICAL,
    "warning": Style.WARNING,
    "info": Style.STRONG,
}
_MORE: Final = " ..."
_INDENT: Final = 2
_BESIDE: Final = 60
"""Width from which on the text is beside the severity; otherwise it is below it."""

_LATEST: Final = frozenset({"xid", "sink_losing"})
"""Kinds of problems that are events: their time is that of the last event."""


def problem_lines(
    found: Sequence[ProblemStatus], now: datetime, width: int, left_out: int = 0
) -> list[Line]:
    """Return all lines about problems: what happened, whom it affects, and what to do.

    Args:
        found: the problems, the most severe first.
        now: time of the status document.
        width: width of the terminal.
        left_out: number of further problems that the document does not have.
    """
    lines = [line for each in found for line in _whole(each, now, width)]
    if left_out:
        are = "problem is" if left_out == 1 else "problems are"
        lines += map(styled, wrapped(f"{left_out} more {are} not shown", max(width, 2)))
    return lines


def first_problems(
    found: Sequence[ProblemStatus], now: datetime, width: int, room: int, left_out: int = 0
) -> list[Line]:
    """Return lines about problems that fit into a part of the screen.

    The most severe one has all its lines, if there is room. Each of the others has one line, as far
    as there is room, or all its lines, if there is room for them too.

    Args:
        found: the problems, the most severe first.
        now: time of the status document.
        width: width of the terminal.
        room: maximum number of lines, at least 1.
        left_out: number of further problems that the document does not have.
    """
    whole = [_whole(each, now, width) for each in found[:room]]
    # One line is kept for the number of the problems that are left out.
    kept = 1 if len(found) + left_out > 1 else 0
    first = whole[0] if len(whole[0]) + kept <= room else [_short(found[0], now, width)]
    blocks = [first] if len(first) + kept <= room else []
    left = room - sum(map(len, blocks))
    others = found[len(blocks) :]
    all_fit = len(others) <= left and not left_out
    shown = others if all_fit else others[: max(left - 1, 0)]
    start = len(blocks)
    blocks += ([_short(each, now, width)] for each in shown)
    left -= len(shown) + (not all_fit)
    for at in range(start, len(blocks)):
        more = len(whole[at]) - 1
        if more > left:
            break
        left -= more
        blocks[at] = whole[at]
    lines = [line for block in blocks for line in block]
    if more := len(found) - len(blocks) + left_out:
        text = f"problem{'s' if more > 1 else ''}"
        if blocks:
            text = f"more {text}" if width >= _BESIDE else "more"
        text = f"{more} {text}"
        style = Style.STRONG if blocks else _STYLES[found[0].severity]
        lines.append(styled(text, style) + styled(": press !", Style.SOFT))
    return [fitted(line, min(width_of(line), width)) for line in lines]


def _short(problem: ProblemStatus, now: datetime, width: int) -> Line:
    """Return the start of a problem on one line, which ends with a whole word."""
    label, _ = _label(problem, width)
    room = max(width - width_of(label), 2)
    first, *more = wrapped(_said(problem, now), room) or [""]
    if not more and not problem.advice and not problem.containers:
        return label + styled(first)
    start, *_ = wrapped(first, max(room - len(_MORE), 2)) or [""]
    return label + styled(f"{start}{_MORE}")


def _whole(problem: ProblemStatus, now: datetime, width: int) -> list[Line]:
    label, indent = _label(problem, width)
    room = max(width - indent, 2)
    first, *others = wrapped(_said(problem, now), max(width - width_of(label), 2)) or [""]
    rest = " ".join(others)
    lines = [label + styled(first)]
    lines += (styled(" " * indent) + styled(text) for text in wrapped(rest, room))
    if said := affected_text(problem):
        lines += (styled(" " * indent) + styled(text, Style.SOFT) for text in wrapped(said, room))
    if problem.advice:
        first, *others = wrapped(f"advice: {problem.advice}", room)
        word, colon, after = first.partition(":")
        lines.append(styled(" " * indent) + styled(word + colon, Style.STRONG) + styled(after))
        lines += (styled(" " * indent) + styled(text) for text in others)
    return lines


def _label(problem: ProblemStatus, width: int) -> tuple[Line, int]:
    """Return the severity, which the text follows, and the indent of the lines below it."""
    text = styled(problem.severity, _STYLES[problem.severity])
    indent = len("critical ") if width >= _BESIDE else _INDENT
    gap = max(indent - len(problem.severity), 1)
    return text + styled(" " * gap), min(indent, max(width - 2, 0))


def _said(problem: ProblemStatus, now: datetime) -> str:
    if problem.since is None:
        return problem.text
    age = span((now - problem.since).total_seconds())
    if problem.kind in _LATEST:
        return f"{problem.text} (last {age} ago)"
    return f"{problem.text} (for {'' if problem.since_known else 'at least '}{age})"
