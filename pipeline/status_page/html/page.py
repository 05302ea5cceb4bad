"""Render the whole page, with its CSS, and a Content-Security-Policy that allows only this CSS."""

from base64 import b64encode
from hashlib import sha256
from typing import Final

from pipeline.http.builtin_pages import Links
from pipeline.status_page.display_text import span, summary
from pipeline.status_page.html.elements import link, text
from pipeline.status_page.html.tables import gpus, sinks, sources
from pipeline.status_page.html.usage_tables import used
from pipeline.status_page.html.xid_table import xids
from pipeline.status_page.problem_text import problems
from pipeline.status_page.status_document import StatusDocument

STYLE: Final = """
:root{color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--soft:#57606a;--line:#d5dae0;--track:#e4e8ec;
--fill:#2f6f3e;--mem:#2a62b0;--bad:#b3261e;--warn:#8a5200;--note:#fdf3e4;--link:#0b57c2}
@media (prefers-color-scheme:dark){:root{--bg:#14171b;--fg:#e4e7eb;--soft:#a0a8b2;--line:#343a42;
--track:#2d333b;--fill:#5cb270;--mem:#6ea3ec;--bad:#ff8a80;--warn:#f0b75e;--note:#2c2416;
--link:#8ab8ff}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1rem;max-width:90rem;background:var(--bg);color:var(--fg);
font:14px/1.4 system-ui,"DejaVu Sans",sans-serif;overflow-wrap:anywhere}
h1{font-size:1.35rem;margin:0}
h2{font-size:1.05rem;margin:1.5rem 0 .4rem}
h3{font-size:.95rem;margin:1rem 0 .3rem}
p{margin:.2rem 0}
a{color:var(--link)}
ul{margin:.3rem 0;padding-left:1.2rem}
.problems{margin:1rem 0;padding:.5rem .8rem;border-left:4px solid var(--bad);background:var(--note)}
.problems h2{margin:0}
table{width:100%;border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{text-align:left;vertical-align:top;padding:.25rem .8rem .25rem 0;font-weight:normal}
thead th{color:var(--soft);font-size:.85rem;border-bottom:1px solid var(--line)}
tbody{border-bottom:1px solid var(--line)}
tbody th b,.who b{font-weight:600}
.mig th{padding-left:1.2rem}
.num{white-space:nowrap}
.gpus .dev{width:25%}.gpus .use,.gpus .mem{width:13%}.gpus .held{width:31%}
.gpus small{white-space:nowrap}
.day .dev,.cards .dev{width:44%}
small,.soft{color:var(--soft);font-size:.85rem}
small{display:block}
.bad{color:var(--bad);font-weight:600}
.warn{color:var(--warn);font-weight:600}
.bar{display:block;width:100%;max-width:10rem;height:.45rem;margin-top:.2rem}
.bar .t{fill:var(--track)}.bar .u{fill:var(--fill)}.bar .m{fill:var(--mem)}
.who+.who{margin-top:.2rem}
.v{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
@media (max-width:46rem){
body{padding:.6rem}
thead{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
table,tbody{display:block}
tbody{padding:.3rem 0}
tr{display:grid;grid-template-columns:1fr 1fr;column-gap:.8rem;padding:.2rem 0}
tr.mig{grid-template-columns:1fr .8fr 1.2fr;margin-left:.6rem;padding-left:.6rem;
border-left:2px solid var(--line)}
th,td,.mig th{padding:.1rem 0;min-width:0}
.gpus small{white-space:normal}
.gpus th,.gpus td,.day th,.cards th{width:auto}
tr>th,.wide{grid-column:1/-1}
tr.mig>th{grid-column:auto}
.mig th .soft{display:block}
.num{white-space:normal}
td.no{display:none}
td[data-l]::before{content:attr(data-l) ": ";color:var(--soft);font-size:.85rem}
.mig td[data-l]::before{content:none}
.bar{max-width:none}
}
"""

_HASH: Final = b64encode(sha256(STYLE.encode()).digest()).decode()

POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""Content-Security-Policy that allows no scripts, images or frames, even if HTML is injected."""

HEADERS: Final = {"Content-Security-Policy": POLICY, "Referrer-Policy": "no-referrer"}

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


def body(status: StatusDocument, links: Links) -> str:
    """Return the page without its footer. So it does not depend on the reload interval."""
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
        f'<h2 id="gpus">GPUs</h2>\n{gpus(status)}\n{xids(status.gpus or (), time)}'
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


def footer(seconds: int) -> str:
    """Return the footer, with the reload interval and links to change it.

    Args:
        seconds: seconds after which the page is reloaded; 0 means never.
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
"""Maximum number of problems that the page lists. Further ones are only counted."""


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
