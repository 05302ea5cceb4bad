"""The dcgm source: readings from a dcgm-exporter that runs on this node."""

import asyncio
from typing import Final

from pipeline.base.errors import TransientError
from pipeline.component.contracts import SourceContext
from pipeline.model import NS, Device, DevicesDiscovered, SamplesTaken
from sources.dcgm.options import Options
from sources.dcgm.page_fetch import File, Server
from sources.dcgm.page_parser import Page, Reason, parse_page

_REASON_TEXTS: Final[dict[Reason, str]] = {
    "malformed": "cannot be parsed",
    "no_device": "has no GPU uuid, and no other line with its number has one",
    "out_of_range": "has an impossible value",
    "contradictory": "has different values for users of the device, and none for the device",
}
"""Reasons that are logged. A blank value is not: the exporter has no value then."""


class DcgmSource:
    """Reads the page at each interval. Implements `pipeline.component.contracts.Source`."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._logged_reasons: set[Reason] = set()

    async def run(self, ctx: SourceContext) -> None:
        """Read and emit until cancelled.

        Raises:
            TransientError: the page cannot be read, or is not a page of dcgm-exporter.
        """
        options = self._options
        page_name = options.place
        page_of = (
            Server(options) if options.path is None else File(options.path, options, ctx.clock)
        )
        valid_s = 3 * float(options.interval)
        if options.path is not None:
            valid_s = max(valid_s, options.max_age_seconds)
        devices: tuple[Device, ...] | None = None
        while True:
            started = ctx.clock.now()
            data = await page_of.get()
            if data is not None:
                at = page_of.read_at(ctx.clock.now())
                # In a thread, since a page may have megabytes.
                page = await asyncio.to_thread(parse_page, data, ctx.plan, at, round(valid_s * NS))
                if page.empty:
                    raise TransientError(
                        f"{page_name}: has no metric of dcgm-exporter; check that url or path is "
                        "that of its page"
                    )
                if page.devices != devices:
                    devices = page.devices
                    await ctx.emit(DevicesDiscovered(devices))
                await ctx.emit(SamplesTaken(page.readings))
                self._log_dropped(ctx, page, page_name)
            remaining_s = float(options.interval) - started.seconds_until(ctx.clock.now())
            await ctx.clock.sleep(max(0.0, remaining_s))

    def _log_dropped(self, ctx: SourceContext, page: Page, page_name: str) -> None:
        for reason, count in page.dropped.items():
            ctx.meter.add("podgpu_source_dropped_total", count, reason=reason)
            if reason in _REASON_TEXTS and reason not in self._logged_reasons:
                self._logged_reasons.add(reason)
                ctx.log.warning(
                    "%s: %s %s; podgpu ignores it, and similar lines",
                    page_name,
                    page.examples[reason],
                    _REASON_TEXTS[reason],
                )
        self._logged_reasons &= page.dropped.keys()
