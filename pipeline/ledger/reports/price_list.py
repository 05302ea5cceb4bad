"""Prices by model, cluster and day, as a price file lists them."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import Final, Self

from config.price_file import EnergyPrices, HourPrices, PriceFile
from config.time_zones import first_hour, zone
from pipeline.ledger.reports.costs import State, gpu_fraction
from pipeline.ledger.reports.grouped_usage import GroupedUsage, PriceClass
from pipeline.model.plugin_ids import glob_matcher

_EVERY: Final = "*"


@dataclass(frozen=True, slots=True)
class _Entry:
    """An entry of a price file.

    Attributes:
        model: function that returns whether the entry is for a model.
        cluster: function that returns whether the entry is for a cluster.
        starts: the times from which the prices are valid, in ns of Unix time, sorted.
        prices: the price from each of these times.
    """

    model: Callable[[str], bool]
    cluster: Callable[[str], bool]
    starts: tuple[int, ...]
    prices: tuple[Decimal, ...]

    def at(self, ns: int) -> Decimal | None:
        place = bisect_right(self.starts, ns)
        return self.prices[place - 1] if place else None


@dataclass(frozen=True, slots=True)
class PriceList:
    """The `Tariff` of a price file: prices of hours of a whole GPU, and of kilowatt hours.

    Of the entries for a kind of price, the first that matches the model and the cluster applies.
    Free and unknown time has the price of held time unless an entry for it matches.

    Attributes:
        currency: code of the currency (ISO 4217).
        provider: name of the provider of the GPUs.
        changes: the times at which a price changes: full hours, in ns of Unix time, sorted.
    """

    currency: str
    provider: str
    changes: tuple[int, ...]
    _hours: dict[State, tuple[_Entry, ...]]
    _energy: tuple[_Entry, ...]

    @classmethod
    def of_file(cls, file: PriceFile) -> Self:
        """Return the prices of a price file."""
        tz = zone(file.tz)

        def starts(one: HourPrices | EnergyPrices) -> list[tuple[int, Decimal]]:
            return sorted(
                (first_hour(date.fromisoformat(day), tz), Decimal(price))
                for day, price in one.prices.items()
            )

        def entries(listed: Iterable[HourPrices | EnergyPrices]) -> tuple[_Entry, ...]:
            return tuple(
                [
                    _Entry(
                        glob_matcher([one.model if isinstance(one, HourPrices) else _EVERY]),
                        glob_matcher([one.cluster]),
                        tuple([start for start, _ in starts(one)]),
                        tuple([price for _, price in starts(one)]),
                    )
                    for one in listed
                ]
            )

        hours: dict[State, tuple[_Entry, ...]] = {
            "held": entries(file.gpu_hour),
            "free": entries((*file.free_gpu_hour, *file.gpu_hour)),
            "unknown": entries((*file.unknown_gpu_hour, *file.gpu_hour)),
        }
        energy = entries(file.kwh)
        changes = {
            start
            for listed in (*hours.values(), energy)
            for entry in listed
            for start in entry.starts
        }
        return cls(file.currency, file.provider, tuple(sorted(changes)), hours, energy)

    @property
    def charges_time(self) -> bool:
        """Whether the time of devices has a price."""
        return bool(self._hours["held"])

    @property
    def charges_energy(self) -> bool:
        """Whether energy has a price."""
        return bool(self._energy)

    def gpu_hour(self, state: State, model: str, cluster: str, at_ns: int) -> Decimal | None:
        """Return the price of an hour of a whole GPU; None if it is unknown.

        Args:
            state: what the time was.
            model: model of the GPU; of a MIG instance, that of its GPU.
            cluster: name of the cluster; empty if unknown.
            at_ns: the time, in ns of Unix time.
        """
        return _valid(self._hours[state], model, cluster, at_ns)

    def kwh(self, cluster: str, at_ns: int) -> Decimal | None:
        """Return the price of a kilowatt hour; None if it is unknown."""
        return _valid(self._energy, "", cluster, at_ns)

    def hour_price(self, one: PriceClass, state: State) -> Fraction | None:
        """Return the price of an hour of a device; None if it is unknown.

        It is also unknown if the device is a MIG instance and its fraction of the GPU is unknown.
        """
        price, part = self.gpu_hour(state, one.model, one.cluster, one.since_ns), gpu_fraction(one)
        return None if price is None or part is None else Fraction(price) * part

    def kwh_price(self, one: PriceClass) -> Fraction | None:
        """Return the price of a kilowatt hour; None if it is unknown."""
        price = self.kwh(one.cluster, one.since_ns)
        return None if price is None else Fraction(price)

    def missing(self, usage: Iterable[GroupedUsage]) -> list[str]:
        """Return a note for each model and each cluster of which a price is unknown.

        Args:
            usage: the usage, in the span of which a price may be missing.
        """
        found = set()
        for one in usage:
            model, cluster, at = one.price.model, one.price.cluster, one.price.since_ns
            where = f" in cluster {cluster}" if cluster else ""
            times: list[tuple[State, int]] = [
                ("held", one.held_ns), ("free", one.free_ns), ("unknown", one.unknown_ns)
            ]  # fmt: skip
            if self.charges_time:
                found |= {
                    f"an hour of {model or 'a GPU of unknown model'}{where}"
                    for state, ns in times
                    if ns and self.gpu_hour(state, model, cluster, at) is None
                }
            if self.charges_energy and one.energy_mj.known and self.kwh(cluster, at) is None:
                found.add(f"a kilowatt hour{where}")
        return [
            f"the price file has no price of {what} for a part of this time: costs do not include "
            "it; add an entry, or an earlier day to an entry"
            for what in sorted(found)
        ]


def _valid(entries: Sequence[_Entry], model: str, cluster: str, at_ns: int) -> Decimal | None:
    for entry in entries:
        if entry.model(model) and entry.cluster(cluster):
            return entry.at(at_ns)
    return None
