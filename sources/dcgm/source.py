"""The dcgm source: readings of a dcgm-exporter that runs on this node."""

import asyncio
from typing import Final

from pipeline.base.errors import TransientError
from pipeline.component.contracts import SourceContext
from pipeline.model import NS, Device, DevicesDiscovered, SamplesTaken
from sources.dcgm.options import Options
from sources.dcgm.page_fetch import File, Server
from sources.dcgm.page_reader import Page, Reason, parse_page

_REASON_TEXTS: Final[dict[Reason, str]] = {
    "malformed": "can't be read",
    "no_device": "names no GPU by its uuid, nor does another line with its number",
    "out_of_range": "has a value that can't be true",
    "contradictory": "has copies that differ, and none for the device",
}
"""What is worth a word; a blank value is the exporter's way to say that there is none."""


class DcgmSource:
    """Reads the page again and again. Implements `pipeline.component.contracts.Source`."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._logged_reasons: set[Reason] = set()

    async def run(self, ctx: SourceContext) -> None:
        """Read and emit until cancelled.

        Raises:
            TransientError: there is no page now, or it is no exporter's.
        """
        options = self._options
        where = options.place
        page_of = (
            Server(options) if options.path is None else File(options.path, options, ctx.clock)
        )
        stands = 3 * float(options.interval)
        if options.path is not None:
            stands = max(stands, options.oldest)
        devices: tuple[Device, ...] | None = None
        while True:
            began = ctx.clock.now()
            data = await page_of.get()
            if data is not None:
                at = page_of.read_at(ctx.clock.now())
                # A page of megabytes takes a while.
                page = await asyncio.to_thread(parse_page, data, ctx.plan, at, round(stands * NS))
                if page.empty:
                    raise TransientError(
                        f"{where}: has no metric of dcgm-exporter's; see that it is the right page"
                    )
                if page.devices != devices:
                    devices = page.devices
                    await ctx.emit(DevicesDiscovered(devices))
                await ctx.emit(SamplesTaken(page.readings))
                self._log_dropped(ctx, page, where)
            rest = float(options.interval) - began.seconds_until(ctx.clock.now())
            await ctx.clock.sleep(max(0.0, rest))

    def _log_dropped(self, ctx: SourceContext, page: Page, where: str) -> None:
        for reason, count in page.dropped.items():
            ctx.meter.add("podgpu_source_dropped_total", count, reason=reason)
            if reason in _REASON_TEXTS and reason not in self._logged_reasons:
                self._logged_reasons.add(reason)
                ctx.log.warning(
                    "%s: %s %s; left out, as are others like it",
                    where,
                    page.examples[reason],
                    _REASON_TEXTS[reason],
                )
        self._logged_reasons &= page.dropped.keys()
