"""What `podgpu usage` is asked for: the time span, the grouping, the prices, and the form."""

import argparse
from dataclasses import dataclass
from datetime import tzinfo
from decimal import Decimal
from typing import Final

from config.price_file import load_prices
from config.time_zones import zone_name
from pipeline.base.errors import PermanentError
from pipeline.ledger.reports import GroupBy, Prices, Tariff
from pipeline.ledger.reports.price_list import PriceList
from podgpu.cli.usage.options import DEFAULT_SINCE, MOST_HOLDINGS
from podgpu.cli.usage.time_span import MomentError, local, moment, since

_LATEST_NS: Final = 1 << 62
"""A time in the year 2116. SQLite stores numbers in 64 bits, so much later times do not fit."""


@dataclass(frozen=True, slots=True)
class Request:
    """What the arguments ask for.

    Attributes:
        now_ns: the present time, in nanoseconds of Unix time, as the following two.
        start_ns: start of the span; 0 for all data.
        end_ns: end of the span.
        tz: the time zone of dates.
        by: the grouping.
        device: the only GPU of the report; None for all.
        prices: the prices.
        limit: maximum number of holdings to list; 0 for a report.
        form: `table`, `csv`, `json` or `focus`.
    """

    now_ns: int
    start_ns: int
    end_ns: int
    tz: tzinfo
    by: GroupBy
    device: str | None
    prices: Tariff
    limit: int
    form: str

    @property
    def span_text(self) -> str:
        """The time span as text, for messages."""
        first = f"from {local(self.start_ns, self.tz)} " if self.start_ns else ""
        return f"{first}to {local(self.end_ns, self.tz)} {zone_name(self.tz)}"


def request_of(arguments: argparse.Namespace, now_ns: int) -> Request:
    """Return what the arguments of `podgpu usage` ask for.

    Raises:
        PermanentError: the span has no time.
        ConfigError: the price file is invalid.
    """
    start_ns, end_ns = _span(arguments, now_ns)
    default = GroupBy("namespace" if arguments.device is None else "pod")
    return Request(
        now_ns,
        start_ns,
        end_ns,
        arguments.tz,
        arguments.by or default,
        arguments.device,
        _prices(arguments),
        int(arguments.limit or MOST_HOLDINGS) if arguments.holdings else 0,
        arguments.format,
    )


def _span(arguments: argparse.Namespace, now_ns: int) -> tuple[int, int]:
    tz = arguments.tz
    for name in ("month", "day"):
        period = getattr(arguments, name)
        if period is not None:
            try:
                start_ns, end_ns = period.span(tz)
            except MomentError as error:
                raise PermanentError(f"--{name}: {error}") from error
            return max(start_ns, 0), end_ns
    start_ns = since(arguments.since or moment(DEFAULT_SINCE), now_ns, tz)
    # `all` includes later entries, which exist if the clock was ahead when they were written.
    end_ns = now_ns if start_ns else _LATEST_NS
    if arguments.until is not None:
        end_ns = since(arguments.until, now_ns, tz)
    if start_ns >= end_ns:
        until = "now" if arguments.until is None else "--until"
        zone = zone_name(tz)
        raise PermanentError(
            f"--since ({local(start_ns, tz)} {zone}) is not before {until} "
            f"({local(end_ns, tz)} {zone}): give an earlier --since"
        )
    return start_ns, end_ns


def _prices(arguments: argparse.Namespace) -> Tariff:
    if arguments.prices is not None:
        return PriceList.of_file(load_prices(arguments.prices))
    hour, kwh = (
        None if price is None else Decimal(price)
        for price in (arguments.price_gpu_hour, arguments.price_kwh)
    )
    return Prices(hour, kwh, arguments.currency or "")
