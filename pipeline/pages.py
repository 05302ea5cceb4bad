"""The answers that every listener gives by itself."""

import html
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from pipeline.contracts import HttpHandler, HttpResponse

Check: TypeAlias = Callable[[], tuple[bool, str]]
"""Says whether something is well, and a line of text for people. Called for each request."""

Pages: TypeAlias = Mapping[str, tuple[HttpHandler, str]]
"""What every listener serves besides its own: handlers and titles, by path."""

_OWN = (("/healthz", "whether podgpu works"), ("/readyz", "whether it has data to show"))


def plain(status: int, text: str, headers: Mapping[str, str] | None = None) -> HttpResponse:
    """Return a line of text."""
    body = f"{text}\n".encode("utf-8", "replace")
    return HttpResponse(body, status=status, headers=headers or {})


def checked(check: Check) -> HttpResponse:
    """Return 200 if all is well, else 503."""
    well, text = check()
    return plain(200 if well else 503, text)


def index(node: str, version: str, mounts: Iterable[tuple[str, str]]) -> HttpResponse:
    """Return the page at `/`; it needs nothing from elsewhere.

    Args:
        node: the node's name.
        version: podgpu's version.
        mounts: paths and titles; what has no title isn't listed, since it answers no bare link.
    """
    items = "".join(
        f'<li><a href="{html.escape(path)}">{html.escape(path)}</a> {html.escape(title)}</li>'
        for path, title in (*mounts, *_OWN)
        if title
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
