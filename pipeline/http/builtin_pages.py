"""Responses of every listener: the index page, the health pages, and plain text."""

import html
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeAlias

from pipeline.component.contracts import HttpHandler, HttpRequest, HttpResponse

Check: TypeAlias = Callable[[], tuple[bool, str]]
"""Returns whether a check passes, and a line of text for users. Called for each request."""

Pages: TypeAlias = Mapping[str, tuple[HttpHandler, str]]
"""Pages that every listener serves: handlers and titles, by path."""

Links: TypeAlias = tuple[tuple[str, str], ...]
"""Paths and titles of all pages of a listener, for the index page at `/`."""

Front: TypeAlias = Callable[[HttpRequest, Links], Awaitable[HttpResponse]]
"""Makes the index page at `/`."""

_OWN = (("/healthz", "whether podgpu works"), ("/readyz", "whether it has data to show"))


def plain(status: int, text: str, headers: Mapping[str, str] | None = None) -> HttpResponse:
    """Return a response with one line of plain text."""
    body = f"{text}\n".encode("utf-8", "replace")
    return HttpResponse(body, status=status, headers=headers or {})


def check_page(check: Check) -> HttpHandler:
    """Return a handler that responds with status 200 if the check passes, and otherwise 503."""

    async def page(_: HttpRequest) -> HttpResponse:
        passes, text = check()
        return plain(200 if passes else 503, text)

    return page


def links(mounts: Iterable[tuple[str, str]]) -> Links:
    """Return the paths and titles of the pages that have a title, and of the health pages.

    A page has no title if it should not be linked: it needs parameters, or it is the index page.
    """
    return (*((path, title) for path, title in mounts if title), *_OWN)


def index(node: str, version: str, links: Links) -> HttpResponse:
    """Return the index page. It loads nothing from other servers.

    Args:
        node: name of the node.
        version: podgpu's version.
        links: paths and titles of the pages that the page links to.
    """
    items = "".join(
        f'<li><a href="{html.escape(path)}">{html.escape(path)}</a> {html.escape(title)}</li>'
        for path, title in links
    )
    node = html.escape(node)
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f"<title>podgpu on {node}</title></head><body><h1>podgpu</h1>"
        f"<p>GPU telemetry of the node <b>{node}</b>, joined with the pods that hold the GPUs. "
        f"Version {html.escape(version)}.</p><ul>{items}</ul></body></html>\n"
    )
    return HttpResponse(
        page.encode("utf-8", "replace"),
        "text/html; charset=utf-8",
        headers={"Content-Security-Policy": "default-src 'none'"},
    )
