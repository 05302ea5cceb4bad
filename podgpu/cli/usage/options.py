"""Options of `podgpu usage`.

podgpu imports this module for every command, so this module imports almost nothing.
"""

import argparse
from typing import TYPE_CHECKING, Final

from config.time_zones import zone
from podgpu.cli.shared_options import (
    Commands,
    add_command,
    add_file,
    add_ledger,
    argument_type,
    matching,
)
from podgpu.cli.usage.prometheus.server_options import add_prometheus
from podgpu.cli.usage.time_span import BEGINNING, beginning, day, moment, month

if TYPE_CHECKING:
    from pipeline.ledger.reports import GroupBy

FOCUS: Final = "focus"
FORMATS: Final = ("table", "csv", "json", FOCUS)
MOST_HOLDINGS: Final = 1000
"""The default of the maximum number of holdings that are listed."""

DEFAULT_SINCE: Final = "7d"
CHARGE_PERIODS: Final = ("day", "hour")

_MAX_CURRENCY: Final = 12

_price = matching(r"[0-9]{1,9}(?:\.[0-9]{1,9})?", "write a price such as 2.50")
_count = matching("[1-9][0-9]{0,6}", "write a number from 1 to 9999999")


def add_usage(commands: Commands) -> None:
    """Add `podgpu usage`."""
    parser = add_command(
        commands,
        "usage",
        "podgpu.cli.usage.command:usage",
        usage_contradiction,
        help="report GPU usage: held, busy and idle hours, energy, cost",
        description="Reads the file of a ledger, also while podgpu writes to it, and changes "
        "nothing. With --from, reports on several nodes, from archives and ledger files; with "
        "--prometheus, from a server. For example, who used GPU 1 in the last week, and what it "
        "cost: podgpu usage --device 1 --since 7d --price-gpu-hour 2.50",
        epilog="Columns. HELD: time for which containers held devices, multiplied by their share. "
        "FREE: time for which no container held the device. UNKNOWN: time for which the holder is "
        "unknown. BUSY: time for which the device was busy. IDLE: HELD minus BUSY; none if a "
        "container was busy for longer than its share. ALLOC: HELD as a part of the time. USED: "
        "BUSY as a part of the time. (free), (unknown): such time, and its cost. (unattributed): "
        "usage of no known container.",
    )
    parser.add_argument(
        "--by",
        metavar="WHAT",
        type=argument_type(_group_by),
        help="group by namespace (default), pod, workload, device, model, or label:KEY, a label of "
        "pods; jobs by job, user, account or partition; containers without pods by image; of "
        "several nodes also by node or cluster",
    )
    parser.add_argument(
        "--device",
        metavar="GPU",
        help="report only this GPU, by pod unless --by is given: its index, its name, or the first "
        "characters of a UUID; with --from only of a UUID",
    )
    _add_times(parser)
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="table",
        help="default: table; focus: a CSV export for FinOps, which needs --from and --prices",
    )
    parser.add_argument(
        "--charge-period",
        choices=CHARGE_PERIODS,
        help="with --format focus: length of the span of one row (default: day)",
    )
    parser.add_argument(
        "--holdings",
        action="store_true",
        help="list the holdings instead of sums, the latest first",
    )
    parser.add_argument(
        "--limit",
        metavar="N",
        type=_count,
        help=f"maximum number of holdings to list (default {MOST_HOLDINGS})",
    )
    _add_prices(parser)
    _add_places(parser)
    add_prometheus(parser)


def _add_times(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--since",
        metavar="TIME",
        type=argument_type(beginning),
        help=f"start of the report: a time ago such as 12h, 7d or 2w (default {DEFAULT_SINCE}), or "
        f"a date: YYYY-MM-DD[THH:MM]; {BEGINNING} for all data. The ledger has whole hours, so the "
        "report begins at the start of that hour",
    )
    parser.add_argument(
        "--until",
        metavar="TIME",
        type=argument_type(moment),
        help="end of the report, up to the end of that hour (default: now)",
    )
    parser.add_argument(
        "--month", metavar="YYYY-MM", type=argument_type(month), help="report this calendar month"
    )
    parser.add_argument(
        "--day", metavar="YYYY-MM-DD", type=argument_type(day), help="report this calendar day"
    )
    parser.add_argument(
        "--tz",
        metavar="ZONE",
        type=argument_type(zone),
        default=zone("UTC"),
        help="time zone of dates, such as Europe/Berlin (default: UTC). CSV and JSON have times in "
        "UTC",
    )


def _add_prices(parser: argparse.ArgumentParser) -> None:
    prices = parser.add_argument_group("prices")
    prices.add_argument(
        "--price-gpu-hour",
        metavar="PRICE",
        type=_price,
        help="price of one hour of a GPU: a container pays for its held time. Free time and time "
        "with an unknown holder are priced in rows of their own, or in the row of the device",
    )
    prices.add_argument(
        "--price-kwh", metavar="PRICE", type=_price, help="price of one kilowatt hour of energy"
    )
    prices.add_argument(
        "--currency", metavar="NAME", type=_currency, help="currency of the prices, for display"
    )
    add_file(prices, "--prices", help_text="price file: prices by model, cluster and day")


def _add_places(parser: argparse.ArgumentParser) -> None:
    add_ledger(parser)
    several = parser.add_argument_group("several nodes")
    several.add_argument(
        "--from",
        metavar="LOCATION",
        dest="locations",
        action="append",
        help="archive that podgpu archive writes: a folder, or a URL such as s3://BUCKET/PREFIX; "
        "or a ledger file. Can be given several times",
    )
    several.add_argument(
        "--cluster",
        metavar="NAME",
        dest="clusters",
        action="append",
        help="with --from: only this cluster; can be given several times",
    )


def _group_by(text: str) -> "GroupBy":
    # Imported here, because only this option of this command needs it.
    from pipeline.ledger.reports import GroupBy

    return GroupBy.parse(text)


def _currency(text: str) -> str:
    if not text or len(text) > _MAX_CURRENCY or not text.isprintable():
        raise argparse.ArgumentTypeError(
            f"write a name of 1 to {_MAX_CURRENCY} printable characters"
        )
    return text


def usage_contradiction(arguments: argparse.Namespace) -> str:
    """Return an error if arguments contradict each other or have no effect; empty if none."""
    for check in (_places, _times, _prices, _contents, _focus):
        if problem := check(arguments):
            return problem
    return ""


def _places(arguments: argparse.Namespace) -> str:
    given = {
        "--ledger": arguments.ledger is not None,
        "-c": arguments.config is not None,
        "--sink": bool(arguments.sink),
        "--from": bool(arguments.locations),
        "--prometheus": arguments.prometheus is not None,
    }
    names = [name for name, is_given in given.items() if is_given]
    if "--ledger" in names and len(names) > 1 and names[1] in ("-c", "--sink"):
        return f"--ledger already names the file: remove {names[1]}"
    if len(names) > 1 and names != ["-c", "--sink"]:
        return f"{names[-2]} and {names[-1]} exclude each other: give only one"
    if arguments.clusters and not arguments.locations:
        return "--cluster needs --from: a ledger is of one node"
    several = arguments.locations or arguments.prometheus is not None
    if arguments.by is not None and arguments.by.kind in ("node", "cluster") and not several:
        return f"--by {arguments.by} needs --from or --prometheus: a ledger is of one node"
    if arguments.by is not None and arguments.prometheus is not None and arguments.by.is_of_facts:
        return f"--by {arguments.by} needs a ledger or --from: --prometheus has only names of pods"
    return ""


def _times(arguments: argparse.Namespace) -> str:
    periods = [name for name in ("month", "day") if getattr(arguments, name) is not None]
    limits = [name for name in ("since", "until") if getattr(arguments, name) is not None]
    if len(periods) > 1 or (periods and limits):
        second = (periods + limits)[1]
        return f"--{periods[0]} is the whole span: remove --{second}"
    return ""


def _prices(arguments: argparse.Namespace) -> str:
    priced = arguments.price_gpu_hour is not None or arguments.price_kwh is not None
    if arguments.prices is not None and (priced or arguments.currency):
        return (
            "--prices names a file with all prices and their currency: remove --price-gpu-hour, "
            "--price-kwh and --currency"
        )
    if arguments.currency and not priced:
        return "--currency needs a price: give --price-gpu-hour or --price-kwh"
    return ""


def _contents(arguments: argparse.Namespace) -> str:
    priced = any(
        each is not None
        for each in (arguments.price_gpu_hour, arguments.price_kwh, arguments.prices)
    )
    if arguments.holdings and (arguments.by is not None or priced):
        return f"--holdings shows no sums: remove {'the prices' if priced else '--by'}"
    if arguments.holdings and arguments.prometheus is not None:
        return "--prometheus has no holdings: read them from ledgers, or with --from"
    if arguments.limit is not None and not arguments.holdings:
        return "--limit needs --holdings: a report shows all groups"
    return ""


def _focus(arguments: argparse.Namespace) -> str:
    if arguments.format != FOCUS:
        return "--charge-period needs --format focus" if arguments.charge_period else ""
    if not arguments.locations or arguments.prices is None:
        missing = "--prices" if arguments.locations else "--from"
        return f"--format focus needs {missing}"
    if arguments.by is not None or arguments.device is not None or arguments.holdings:
        return "--format focus has fixed columns: remove --by, --device and --holdings"
    return ""
