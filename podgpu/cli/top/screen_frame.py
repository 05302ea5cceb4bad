"""Header and footer of the screen: node, warnings about the data, keys. Pure."""

from math import ceil
from typing import Final

from pipeline.status_page.display_text import span, summary
from pipeline.status_page.problem_text import listed
from podgpu.cli.terminal_text import width as wide
from podgpu.cli.terminal_text import wrapped
from podgpu.cli.top.daemon_status import DaemonStatus
from podgpu.cli.top.styled_text import Line, Span, Style, fitted, styled, width_of
from podgpu.cli.top.ui_state import Sort, State, View

_MOST_ERROR: Final = 3
"""Maximum number of lines of an error."""

_MOST_NOTES: Final = 240
"""Maximum number of columns, on several lines, about what was not measured on this node now.

All notes of `podgpu demo` fit. The most important one is the first.
"""

_MORE: Final = " ..."

_KEYS: Final = (
    ("?", "help"),
    ("q", "quit"),
    ("/", "filter"),
    ("!", "problems"),
    ("d", "day, weeks"),
    ("x", "processes"),
    ("a", "all holders"),
    ("s", "sources"),
    ("e", "evidence"),
    ("u m w p i", "sort"),
)


def header(daemon: DaemonStatus, width: int) -> list[Line]:
    """Return the lines at the top: the node, its GPUs, the time, and what is special about them.

    Args:
        daemon: the status of the daemon.
        width: width of the terminal.
    """
    status = daemon.status
    time = f" {status.time:%H:%M:%S} UTC"
    node, text = styled(status.node, Style.STRONG), f"  {summary(status)}"
    found = listed(status)
    if not found:
        text += "; no problem is known"
    beside = width_of(node) + wide(text) + wide(time) <= width
    first = node + styled(text) if beside else node
    lines = [fitted(first, max(width - wide(time), 0)) + styled(time, Style.SOFT)]
    if not beside:
        lines += _wrapped(text.strip(), width, Style.PLAIN)
    if daemon.error:
        said = f"NO RESPONSE for {span(daemon.age_seconds)}: {daemon.error}"
        lines += _wrapped(said, width, Style.CRITICAL)[:_MOST_ERROR]
    elif daemon.is_late:
        said = f"podgpu has not responded for {span(daemon.age_seconds)}; it may be overloaded"
        lines += _wrapped(said, width, Style.WARNING)
    if status.waiting_for:
        lines += _wrapped(f"not ready: {status.waiting_for}", width, Style.WARNING)
    if status.notes:
        noted = wrapped(" ".join(status.notes), max(width, 2))
        most = max(ceil(_MOST_NOTES / max(width, 2)), 1)
        if len(noted) > most:
            last = wrapped(noted[most - 1], max(width - len(_MORE), 2))[0]
            noted = [*noted[: most - 1], f"{last}{_MORE}"]
        lines += map(styled, noted)
    return [fitted(line, width) for line in lines]


def _wrapped(text: str, width: int, style: Style) -> list[Line]:
    return [styled(part, style) for part in wrapped(text, max(width, 2))]


def footer(state: State, place: str, width: int) -> Line:
    """Return the last line: what is selected, the place in the body, and as many keys as fit.

    Args:
        state: what the user has selected.
        place: the lines that are shown; empty if all are shown.
        width: width of the terminal.
    """
    if state.typing:
        text = styled("filter: ", Style.STRONG) + styled(f"{state.filter}_")
        said = styled("   Enter applies, Esc cancels", Style.SOFT)
        return fitted(text + (said if width_of(text + said) <= width else ()), width)
    chosen = [] if state.view is View.OVERVIEW else [state.view.value]
    if state.view is View.OVERVIEW:
        chosen += [f"by {state.sort.name.lower()}"] if state.sort is not Sort.INDEX else []
        chosen += [f"filter: {state.filter}"] if state.filter else []
        chosen += ["folded"] if state.folded else []
    else:
        chosen.append("Esc goes back")
    right = styled("  ".join(part for part in (*chosen, place) if part), Style.STRONG)
    keys: list[Span] = []
    room = width - width_of(right) - 2
    for key, word in _KEYS:
        added = [Span(key, Style.STRONG), Span(f" {word}  ", Style.SOFT)]
        if width_of((*keys, *added)) - 2 > room:
            break
        keys += added
    return fitted(fitted(tuple(keys), max(width - width_of(right), 0)) + right, width)
