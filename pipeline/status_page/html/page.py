"""Render the whole page."""

from typing import Final

from pipeline.http.builtin_pages import Links
from pipeline.status_page.display_text import span
from pipeline.status_page.html.component_tables import sinks, sources
from pipeline.status_page.html.elements import link, text
from pipeline.status_page.html.gpu_table import gpus
from pipeline.status_page.html.style import POLICY, STYLE
from pipeline.status_page.html.usage_tables import used
from pipeline.status_page.problems import problems, summary
from pipeline.status_page.status_document import StatusDocument

HEADERS: Final = {"Content-Security-Policy": POLICY, "Referrer-Policy": "no-referrer"}

DEFAULT_SECONDS: Final = 10
"""Seconds after which a browser reloads the page by default."""

_MAX_SECONDS: Final = 3600


def refresh(value: str) -> int:
    """Return after how many seconds a browser reloads the page, 0 for never.

    Args:
        value: the number as text; an invalid text gives the default.
    """
    valid = value.isascii() and value.isdecimal() and len(value) <= len(str(_MAX_SECONDS))
    return min(int(value), _MAX_SECONDS) if valid else DEFAULT_SECONDS


def body(status: StatusDocument, links: Links) -> str:
    """Return the page without its footer. It does not depend on the reload interval."""
    node, time = text(status.node), status.time
    found = problems(status)
    running = ""
    if status.started is not None:
        running = f", running for {span((time - status.started).total_seconds())}"
    driver = f", driver {text(status.driver)}" if status.driver else ""
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
        f"</header>\n{waiting}{_problems(found)}<main>\n"
        f'<h2 id="gpus">GPUs</h2>\n{gpus(status)}\n{used(status.usage, status.gpus or ())}'
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


def footer(seconds: int) -> str:
    """Return the footer: the reload interval, and links to change it.

    Args:
        seconds: seconds after which the page is reloaded, 0 for never.
    """
    now = f"Reloads every {seconds} s" if seconds else "Does not reload automatically"
    others = ", ".join(
        f'<a href="./{"" if each == DEFAULT_SECONDS else f"?refresh={each}"}">{word}</a>'
        for each, word in _CHOICES
        if each != seconds
    )
    return (
        f'<footer class="soft"><p>{now}. Change this: {others}. Ages are relative to the time '
        "above.</p></footer>\n"
        "</body></html>\n"
    )


MOST: Final = 20
"""Most problems that the page shows. Further ones are only counted."""


def _problems(found: list[str]) -> str:
    if not found:
        return ""
    items = "".join(f"<li>{text(each)}</li>" for each in found[:MOST])
    if len(found) > MOST:
        items += f"<li>and {len(found) - MOST} more</li>"
    title = "1 problem" if len(found) == 1 else f"{len(found)} problems"
    return (
        '<section class="problems" aria-labelledby="problems">'
        f'<h2 id="problems">{title}</h2><ul>{items}</ul></section>\n'
    )
