"""What `podgpu doctor` looks at for the dcgm source: the exporter's page, read once."""

import asyncio
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from pipeline.base.errors import TransientError
from pipeline.component.findings import Finding
from pipeline.diagnostics.check_table import CHECKS
from pipeline.diagnostics.context import DoctorContext, in_thread
from pipeline.diagnostics.counters_list_check import requested_plan
from pipeline.diagnostics.port_owner import identify
from sources.dcgm.options import Options
from sources.dcgm.page_fetch import File, Server
from sources.dcgm.page_reader import parse_page

_OTHER: Final = (
    "give the page of a dcgm-exporter; where podgpu has the port 9400 it is on another one, such "
    "as http://localhost:9401/metrics"
)
_SECONDS: Final = 10.0
_PORTS: Final = {"http": 80, "https": 443}


async def examine(options: Options, ctx: DoctorContext) -> list[Finding]:
    """Check `dcgm.page`."""
    check = CHECKS["dcgm.page"]
    place = options.place
    if options.path is None and await _is_podgpu(options.url, ctx):
        return [check.failure(place, "podgpu itself answers there, no dcgm-exporter", _OTHER)]
    getter = Server(options) if options.path is None else File(options.path, options, ctx.clock)
    try:
        data = await getter.get()
    except TransientError as error:
        mend = (
            "see that dcgm-exporter runs on this node, and that url is its page's"
            if options.path is None
            else "see that dcgm-exporter writes it, and mount its folder"
        )
        return [check.failure(place, str(error), mend)]
    plan = await requested_plan(ctx)
    page = await in_thread(partial(parse_page, data or b"", plan, ctx.clock.now(), 1))
    if page.empty:
        return [check.failure(place, "no metric of dcgm-exporter's is on it", _OTHER)]
    saw = f"{len(page.devices)} devices, {len(page.readings)} readings"
    return [check.ok(place, saw)]


async def _is_podgpu(url: str | None, ctx: DoctorContext) -> bool:
    """Whether podgpu answers, which all its answers say, those behind a password too."""
    try:
        parts = urlsplit(url or "")
        host, port = parts.hostname, parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return False
    if host is None or port is None:
        return False
    try:
        # Who answers by the byte is somebody else, and keeps its own time.
        async with asyncio.timeout(min(_SECONDS, ctx.deadline / 3)):
            return (await in_thread(partial(identify, host, port, parts.path))).is_podgpu
    except TimeoutError:
        return False
