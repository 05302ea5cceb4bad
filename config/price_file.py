"""The price file: prices of GPU hours and of energy, by model, cluster and day."""

import re
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Annotated, Final

import msgspec

from config.loader import parse_struct, read
from config.message_text import shown
from config.option_markers import Doc
from config.time_zones import zone
from config.value_types import FormatError

_PRICE: Final = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")
_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_FIRST_YEAR: Final = 1970
_LAST_YEAR: Final = 9998

_Glob = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
_Prices = Annotated[
    dict[str, str],
    msgspec.Meta(min_length=1),
    Doc("Prices, each with the day from which it is valid: 2026-01-01: 2.50"),
]


class EnergyPrices(msgspec.Struct, frozen=True, kw_only=True):
    """Prices of a kilowatt hour in some clusters."""

    cluster: Annotated[_Glob, Doc("Name of a cluster, or a glob pattern.")] = "*"
    prices: _Prices

    def problems(self) -> Iterable[tuple[str | tuple[str, ...], str]]:
        """Return a problem for each day and each price that is invalid."""
        return _price_problems(self.prices)


class HourPrices(msgspec.Struct, frozen=True, kw_only=True):
    """Prices of an hour of some models of GPU."""

    model: Annotated[_Glob, Doc("Model of a GPU, or a glob pattern.")] = "*"
    cluster: Annotated[_Glob, Doc("Name of a cluster, or a glob pattern.")] = "*"
    prices: _Prices

    def problems(self) -> Iterable[tuple[str | tuple[str, ...], str]]:
        """Return a problem for each day and each price that is invalid."""
        return _price_problems(self.prices)


class PriceFile(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a price file. In each list, the first entry that matches applies."""

    currency: Annotated[
        str,
        msgspec.Meta(pattern=r"^[A-Z]{3}\Z"),
        Doc("Currency of all prices: a code of ISO 4217, such as EUR."),
    ]
    provider: Annotated[
        str,
        msgspec.Meta(min_length=1, max_length=200),
        Doc("Name of the provider of the GPUs in exports for FinOps."),
    ] = "podgpu"
    tz: Annotated[str, Doc("Time zone of the days, such as Europe/Berlin.")] = "UTC"
    gpu_hour: Annotated[
        tuple[HourPrices, ...],
        Doc("Prices of an hour of a whole GPU; without entries, time is not charged."),
    ] = ()
    free_gpu_hour: Annotated[
        tuple[HourPrices, ...],
        Doc("Prices of an hour for which a GPU was free, if they differ from gpu_hour."),
    ] = ()
    unknown_gpu_hour: Annotated[
        tuple[HourPrices, ...],
        Doc("Prices of an hour with an unknown holder, if they differ from gpu_hour."),
    ] = ()
    kwh: Annotated[
        tuple[EnergyPrices, ...],
        Doc("Prices of a kilowatt hour; without entries, energy is not charged."),
    ] = ()

    def problems(self) -> Iterable[tuple[str, str]]:
        """Return a problem for an unknown time zone, and for a file without prices."""
        try:
            zone(self.tz)
        except FormatError as error:
            yield "tz", str(error)
        if not self.gpu_hour and not self.kwh:
            yield "", "no price: add an entry to gpu_hour or to kwh, or both"
        for name in ("free_gpu_hour", "unknown_gpu_hour"):
            if getattr(self, name) and not self.gpu_hour:
                yield name, "there is no gpu_hour: add the prices of held time there"


def load_prices(path: Path) -> PriceFile:
    """Read a price file. Blocking.

    Raises:
        ConfigError: the file cannot be read, or has problems.
    """
    return parse_struct(read(path), PriceFile, origin=str(path))


def _price_problems(prices: dict[str, str]) -> Iterable[tuple[tuple[str, ...], str]]:
    for day, price in prices.items():
        if (problem := _day_problem(day)) is not None:
            yield ("prices", day), problem
        if not _PRICE.fullmatch(price):
            problem = (
                f"{shown(price)} is not a price; write a number of 0 or more, such as 2.50, with "
                "at most 9 digits before and 9 after the decimal point"
            )
            yield ("prices", day), problem


def _day_problem(text: str) -> str | None:
    try:
        found = date.fromisoformat(text) if _DAY.fullmatch(text) else None
    except ValueError:
        return f"there is no day {text}; write a day such as 2026-01-01"
    if found is None:
        return "the key is not a day; write the day from which the price is valid: 2026-01-01: 2.50"
    if not _FIRST_YEAR <= found.year <= _LAST_YEAR:
        return f"the year is not from {_FIRST_YEAR} to {_LAST_YEAR}"
    return None
