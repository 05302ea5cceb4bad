"""What the command takes. It loads next to nothing: the other commands load it too."""

import argparse
import re
from functools import partial
from pathlib import Path
from typing import Final

from podgpu.cli.usage.time_span import BEGINNING, Moment, MomentError, beginning, moment

FORMATS: Final = ("table", "csv", "json")

_PRICE: Final = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")
_CURRENCY: Final = 12
_COUNT: Final = re.compile(r"[1-9][0-9]{0,6}")
_HOLDINGS: Final = 1000


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to podgpu's."""
    parser = commands.add_parser(
        "usage",
        help="say who used how much: held, busy and idle hours, energy, cost",
        description="Reads the file of a ledger, which podgpu may be writing, and changes nothing. "
        "Times are UTC.",
    )
    parser.add_argument(
        "--by",
        metavar="WHAT",
        help="namespace (the default), pod, workload, device, or label:KEY, a label of the pods",
    )
    parser.add_argument(
        "--since",
        metavar="TIME",
        type=_beginning,
        default=_beginning("7d"),
        help="how long ago it begins, such as 12h, 7d or 2w (7d is the default), or a date: "
        f"YYYY-MM-DD[THH:MM]; {BEGINNING} is all there is",
    )
    parser.add_argument(
        "--until", metavar="TIME", type=_moment, help="where it ends; now if none is given"
    )
    parser.add_argument("--format", choices=FORMATS, default="table", help="table is the default")
    parser.add_argument(
        "--holdings",
        action="store_true",
        help="list each container's time on a device instead of sums, the latest first",
    )
    parser.add_argument(
        "--limit", metavar="N", type=_count, help=f"how many holdings at most ({_HOLDINGS})"
    )
    prices = parser.add_argument_group("prices")
    prices.add_argument(
        "--price-gpu-hour", metavar="PRICE", type=_price, help="of an hour of a GPU that is held"
    )
    prices.add_argument("--price-kwh", metavar="PRICE", type=_price, help="of a kilowatt hour")
    prices.add_argument("--currency", metavar="NAME", type=_currency, help="what they are in")
    where = parser.add_argument_group("which ledger")
    where.add_argument("--ledger", metavar="FILE", type=Path, help="the ledger's file")
    where.add_argument(
        "-c",
        "--config",
        metavar="FILE",
        type=Path,
        help="configuration file that has a ledger among its sinks; without it that of the podgpu "
        "which runs here, or the one that podgpu run would take",
    )
    where.add_argument("--sink", metavar="NAME", help="which of its ledgers; else the first")
    parser.set_defaults(command=partial(_usage, parser))


def _usage(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> int:
    if fault := _contradiction(arguments):
        parser.error(fault)
    arguments.limit = arguments.limit or _HOLDINGS
    from podgpu.cli.usage import command

    return command.usage(arguments)


def _contradiction(arguments: argparse.Namespace) -> str:
    """Return which arguments would be ignored; empty if none would."""
    priced = arguments.price_gpu_hour is not None or arguments.price_kwh is not None
    if arguments.ledger is not None and (arguments.config is not None or arguments.sink):
        return f"--ledger names the file: leave out {'-c' if arguments.config else '--sink'}"
    if arguments.holdings and (arguments.by is not None or priced):
        return (
            f"--holdings lists what is not summed: leave out {'the prices' if priced else '--by'}"
        )
    if arguments.limit is not None and not arguments.holdings:
        return "--limit is for --holdings: a report has all groups"
    if arguments.currency and not priced:
        return "--currency is for prices: give --price-gpu-hour or --price-kwh"
    return ""


def _beginning(text: str) -> Moment:
    try:
        return beginning(text)
    except MomentError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _moment(text: str) -> Moment:
    try:
        return moment(text)
    except MomentError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _price(text: str) -> str:
    """Check a price; it stays a text until it is reckoned with, in decimals."""
    if not _PRICE.fullmatch(text):
        raise argparse.ArgumentTypeError("write a price such as 2.50")
    return text


def _count(text: str) -> int:
    if not _COUNT.fullmatch(text):
        raise argparse.ArgumentTypeError("write a number from 1 to 9999999")
    return int(text)


def _currency(text: str) -> str:
    if not text or len(text) > _CURRENCY or not text.isprintable():
        raise argparse.ArgumentTypeError(f"write a name of {_CURRENCY} characters at most")
    return text
