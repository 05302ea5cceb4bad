"""The check of `podgpu doctor` for the dcgm source: is its page that of a dcgm-exporter?"""

import asyncio
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from pipeline.base.errors import TransientError
from pipeline.component.findings import FAILS, Check, Finding
from pipeline.diagnostics.context import DoctorContext, in_thread
from pipeline.diagnostics.counters_list_check import requested_plan
from pipeline.diagnostics.port_owner import identify
from sources.dcgm.options import Options
from sources.dcgm.page_fetch import File, Server
from sources.dcgm.page_parser import parse_page

_WRONG_PAGE_FIX: Final = (
    "set url to the page of a dcgm-exporter; if podgpu uses port 9400, the exporter has another "
    "port, such as http://localhost:9401/metrics"
)
_MAX_SECONDS: Final = 10.0
_PORTS: Final = {"http": 80, "https": 443}


async def examine(options: Options, ctx: DoctorContext) -> Finding:
    """Check `dcgm.page`."""
    check = Check("dcgm.page", FAILS)
    place = options.place
    if options.path is None and await _is_podgpu(options.url, ctx):
        observed = "podgpu itself responds there, not a dcgm-exporter"
        return check.failure(place, observed, _WRONG_PAGE_FIX)
    getter = Server(options) if options.path is None else File(options.path, options, ctx.clock)
    try:
        data = await getter.get()
    except TransientError as error:
        fix = (
            "check that dcgm-exporter runs on this node, and that url is the URL of its page"
            if options.path is None
            else "check that dcgm-exporter writes the file, and mount its folder"
        )
        return check.failure(place, str(error), fix)
    plan = await requested_plan(ctx)
    page = await in_thread(partial(parse_page, data or b"", plan, ctx.clock.now(), 1))
    if page.empty:
        return check.failure(place, "has no metric of dcgm-exporter", _WRONG_PAGE_FIX)
    return check.ok(place, f"{len(page.devices)} devices, {len(page.readings)} readings")


async def _is_podgpu(url: str | None, ctx: DoctorContext) -> bool:
    """Return whether podgpu itself responds at a URL; all its responses show it, even a 401."""
    try:
        parts = urlsplit(url or "")
        host, port = parts.hostname, parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return False
    if host is None or port is None:
        return False
    try:
        # A server that responds byte by byte is not podgpu, and must not delay the check.
        async with asyncio.timeout(min(_MAX_SECONDS, ctx.deadline / 3)):
            return (await in_thread(partial(identify, host, port, parts.path))).is_podgpu
    except TimeoutError:
        return False
