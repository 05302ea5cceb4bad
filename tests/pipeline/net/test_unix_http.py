"""GET requests to a server on a Unix socket: limits and errors."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from pipeline.base.errors import TransientError
from pipeline.net.unix_http import UnixHttp

MOST = 100
TEXTS = {"page": b"x" * MOST, "large": b"x" * (MOST + 1)}
STREAM = [b"first\nse", b"cond\n", b"y" * 60, b"y" * 60, b"y\nla", b"st\n", b"unfinished"]


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[UnixHttp]:
    async def page(request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        if name == "stream":
            response = web.StreamResponse()
            await response.prepare(request)
            for piece in STREAM:
                await response.write(piece)
            return response
        if name == "moved":
            raise web.HTTPFound("/page")
        if name not in TEXTS:
            raise web.HTTPNotFound(text="no such\nthing")
        return web.Response(body=TEXTS[name])

    app = web.Application()
    app.router.add_get("/{name}", page)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    await web.UnixSite(runner, str(folder / "s.sock")).start()
    try:
        async with UnixHttp(folder / "s.sock", timeout=5, most=MOST) as client:
            yield client
    finally:
        await runner.cleanup()


async def test_a_response_is_returned_up_to_the_maximum_length(tmp_path: Path) -> None:
    async with serving(tmp_path) as client:
        assert await client.get("/page") == TEXTS["page"]
        with pytest.raises(TransientError, match="/large is larger than 100 bytes"):
            await client.get("/large")


async def test_a_missing_object_is_none_or_an_error(tmp_path: Path) -> None:
    async with serving(tmp_path) as client:
        assert await client.find("/page") == TEXTS["page"]
        assert await client.find("/none") is None
        with pytest.raises(TransientError, match="/none answered 404: no such thing"):
            await client.get("/none")


async def test_redirects_are_not_followed(tmp_path: Path) -> None:
    async with serving(tmp_path) as client:
        with pytest.raises(TransientError, match="/moved answered 302"):
            await client.find("/moved")


async def test_lines_are_put_together_and_long_ones_are_empty(tmp_path: Path) -> None:
    async with serving(tmp_path) as client, client.lines("/stream") as lines:
        assert [each async for each in lines] == [b"first", b"second", b"", b"last"]
