"""The answers that every listener gives by itself."""

import html
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeAlias

from pipeline.component.contracts import HttpHandler, HttpRequest, HttpResponse

Check: TypeAlias = Callable[[], tuple[bool, str]]
"""Says whether something is well, and a line of text for people. Called for each request."""

Pages: TypeAlias = Mapping[str, tuple[HttpHandler, str]]
"""What every listener serves besides its own: handlers and titles, by path."""

Links: TypeAlias = tuple[tuple[str, str], ...]
"""Paths and titles of all that a listener serves, for its page at `/`."""

Front: TypeAlias = Callable[[HttpRequest, Links], Awaitable[HttpResponse]]
"""Makes the page at `/`."""

_OWN = (("/healthz", "whether podgpu works"), ("/readyz", "whether it has data to show"))


def plain(status: int, text: str, headers: Mapping[str, str] | None = None) -> HttpResponse:
    """Return a line of text."""
    body = f"{text}\n".encode("utf-8", "replace")
    return HttpResponse(body, status=status, headers=headers or {})


def checked(check: Check) -> HttpResponse:
    """Return 200 if all is well, else 503."""
    well, text = check()
    return plain(200 if well else 503, text)


def links(mounts: Iterable[tuple[str, str]]) -> Links:
    """Return what is mounted, and what every listener answers by itself.

    What has no title isn't listed, since it answers no bare link.
    """
    return (*((path, title) for path, title in mounts if title), *_OWN)


def index(node: str, version: str, links: Links) -> HttpResponse:
    """Return a page at `/` that leads to the others; it needs nothing from elsewhere.

    Args:
        node: the node's name.
        version: podgpu's version.
        links: paths and titles.
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
