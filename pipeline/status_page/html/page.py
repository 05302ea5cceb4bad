"""Render the whole page."""

from typing import Final

from pipeline.http.builtin_pages import Links
from pipeline.status_page.display_text import span, summary
from pipeline.status_page.html.device_table import gpus
from pipeline.status_page.html.elements import link, text
from pipeline.status_page.html.problem_section import problem_section
from pipeline.status_page.html.style import STYLE
from pipeline.status_page.html.tables import sinks, sources
from pipeline.status_page.html.usage_tables import used
from pipeline.status_page.html.xid_table import xids
from pipeline.status_page.problem_text import listed
from pipeline.status_page.status_document import StatusDocument

DEFAULT_SECONDS: Final = 10
"""Seconds after which a browser reloads the page by default."""

_MAX_SECONDS: Final = 3600


def refresh(value: str) -> int:
    """Return the number of seconds after which a browser reloads the page; 0 means never.

    Args:
        value: the number as text. An invalid text gives the default; at most 3600 is returned.
    """
    valid = value.isascii() and value.isdecimal() and len(value) <= len(str(_MAX_SECONDS))
    return min(int(value), _MAX_SECONDS) if valid else DEFAULT_SECONDS


def body(status: StatusDocument, links: Links, *, debug: bool = False) -> str:
    """Return the page without its footer. So it does not depend on the reload interval.

    Args:
        status: the document.
        links: paths and titles of other pages.
        debug: whether to show whole UUIDs, all processes, and source and evidence of each holder.
    """
    node, time = text(status.node), status.time
    running = ""
    if status.started is not None:
        running = f", running for {span((time - status.started).total_seconds())}"
    driver = f", driver {text(status.driver)}" if status.driver else ""
    notes = "".join(f"<p>{text(each)}</p>" for each in status.notes)
    if notes:
        notes = f'<div class="notes" role="note">{notes}</div>\n'
    waiting = ""
    if status.waiting_for:
        waiting = f'<p class="warn">Not ready: {text(status.waiting_for)}</p>\n'
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{node}: podgpu</title><style>{STYLE}</style></head><body>\n"
        f"<header><h1>{node}</h1>"
        f"<p>{text(summary(status))}{driver}</p>"
        f'<p class="soft">podgpu {text(status.podgpu)}{running}. As of '
        f'<time datetime="{time.isoformat()}">{time:%Y-%m-%d %H:%M:%S} UTC</time>.</p>'
        f"</header>\n{notes}{waiting}"
        f"{problem_section(listed(status), time, status.problems_left_out)}<main>\n"
        f'<h2 id="gpus">GPUs</h2>\n{gpus(status, debug=debug)}\n{xids(status.gpus or (), time)}'
        f"{used(status.usage, status.gpus or ())}"
        f'<h2 id="sources">Sources</h2>\n{sources(status.sources)}\n'
        f'<h2 id="sinks">Sinks</h2>\n{sinks(status.sinks)}\n</main>\n'
        f'<nav aria-labelledby="pages"><h2 id="pages">Pages</h2>\n<ul>'
        f"{''.join(link(path, title) for path, title in links)}</ul></nav>\n"
    )


_CHOICES: Final = (
    (2, "every 2 s"),
    (DEFAULT_SECONDS, f"every {DEFAULT_SECONDS} s"),
    (60, "every 60 s"),
    (0, "never"),
)


def footer(seconds: int, *, debug: bool = False) -> str:
    """Return the footer, with the reload interval and links to change it.

    Args:
        seconds: seconds after which the page is reloaded; 0 means never.
        debug: whether the page shows these details.
    """
    now = f"Reloads every {seconds} s" if seconds else "Does not reload automatically"
    others = ", ".join(
        f'<a href="{_address(each, debug=debug)}">{word}</a>'
        for each, word in _CHOICES
        if each != seconds
    )
    word = "Hide" if debug else "Show"
    return (
        f'<footer class="soft"><p>{now}. Change this: {others}. Ages are relative to the time '
        f'above. <a href="{_address(seconds, debug=not debug)}">{word} UUIDs, processes, sources '
        f"and evidence</a>.</p></footer>\n</body></html>\n"
    )


def _address(seconds: int, *, debug: bool) -> str:
    """Return the relative address of the page; a parameter with its default is left out."""
    parts = [] if seconds == DEFAULT_SECONDS else [f"refresh={seconds}"]
    parts += ["debug=1"] if debug else []
    return f"./?{'&amp;'.join(parts)}" if parts else "./"
