"""Options of `podgpu usage`. All commands import this module, so it imports almost nothing."""

import argparse

from podgpu.cli.shared_options import Commands, add_file, argument_type, matching, run_later
from podgpu.cli.usage.time_span import BEGINNING, beginning, moment

FORMATS = ("table", "csv", "json")
MOST_HOLDINGS = 1000
"""Most holdings that are listed by default."""

_CURRENCY = 12
_beginning = argument_type(beginning)
_price = matching(r"[0-9]{1,9}(?:\.[0-9]{1,9})?", "write a price such as 2.50")
_count = matching("[1-9][0-9]{0,6}", "write a number from 1 to 9999999")


def add(commands: Commands) -> None:
    """Add the command to the parser of podgpu."""
    parser = commands.add_parser(
        "usage",
        help="report GPU usage: held, busy and idle hours, energy, cost",
        description="Reads the file of a ledger, also while podgpu writes to it, and changes "
        "nothing. Times are UTC.",
    )
    parser.add_argument(
        "--by",
        metavar="WHAT",
        help="group by namespace (default), pod, workload, device, or label:KEY, a label of pods",
    )
    parser.add_argument(
        "--since",
        metavar="TIME",
        type=_beginning,
        default=_beginning("7d"),
        help="start of the report: a time ago such as 12h, 7d or 2w (default 7d), or a date: "
        f"YYYY-MM-DD[THH:MM]; {BEGINNING} for all data",
    )
    parser.add_argument(
        "--until",
        metavar="TIME",
        type=argument_type(moment),
        help="end of the report (default: now)",
    )
    parser.add_argument("--format", choices=FORMATS, default="table", help="default: table")
    parser.add_argument(
        "--holdings",
        action="store_true",
        help="list the holdings instead of sums, the latest first",
    )
    parser.add_argument(
        "--limit", metavar="N", type=_count, help=f"most holdings to list (default {MOST_HOLDINGS})"
    )
    prices = parser.add_argument_group("prices")
    prices.add_argument(
        "--price-gpu-hour", metavar="PRICE", type=_price, help="price of one hour of a held GPU"
    )
    prices.add_argument(
        "--price-kwh", metavar="PRICE", type=_price, help="price of one kilowatt hour"
    )
    prices.add_argument(
        "--currency", metavar="NAME", type=_currency, help="currency of the prices, for display"
    )
    where = parser.add_argument_group("the ledger")
    add_file(where, "--ledger", help_text="file of the ledger")
    add_file(
        where,
        "-c",
        "--config",
        help_text="configuration file with a ledger sink; default: that of the podgpu running "
        "here, else the one that podgpu run would use",
    )
    where.add_argument("--sink", metavar="NAME", help="name of the ledger sink; default: the first")
    parser.set_defaults(command=run_later("podgpu.cli.usage.command:usage", parser, _contradiction))


def _contradiction(arguments: argparse.Namespace) -> str:
    """Return an error if arguments exclude each other or would be ignored; empty if none would."""
    priced = arguments.price_gpu_hour is not None or arguments.price_kwh is not None
    if arguments.ledger is not None and (arguments.config is not None or arguments.sink):
        return f"--ledger already names the file: remove {'-c' if arguments.config else '--sink'}"
    if arguments.holdings and (arguments.by is not None or priced):
        return f"--holdings shows no sums: remove {'the prices' if priced else '--by'}"
    if arguments.limit is not None and not arguments.holdings:
        return "--limit needs --holdings: a report shows all groups"
    if arguments.currency and not priced:
        return "--currency needs a price: give --price-gpu-hour or --price-kwh"
    return ""


def _currency(text: str) -> str:
    if not text or len(text) > _CURRENCY or not text.isprintable():
        raise argparse.ArgumentTypeError(f"write a name of at most {_CURRENCY} characters")
    return text
