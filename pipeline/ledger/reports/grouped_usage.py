"""Usage that is already grouped and summed: what a report is built from.

It comes from the rows of a ledger, from an archive (summed by DuckDB) or from Prometheus.
"""

from dataclasses import dataclass
from typing import Final

from pipeline.ledger.reports.groups import GroupKey
from pipeline.ledger.reports.sums import Tally


@dataclass(frozen=True, slots=True)
class PriceClass:
    """What the price of a device's usage depends on.

    Attributes:
        model: model of the physical GPU; empty if unknown.
        profile: profile of a MIG instance, such as `2g.20gb`; empty for a GPU or if unknown.
        is_instance: whether the device is a MIG instance.
        cluster: name of the cluster, in a report on several nodes.
        since_ns: start of the span of equal prices in which the usage was, in nanoseconds of Unix
            time; 0 if prices do not change.
    """

    model: str = ""
    profile: str = ""
    is_instance: bool = False
    cluster: str = ""
    since_ns: int = 0


_NO_AMOUNTS: Final[Tally[int]] = Tally()


@dataclass(frozen=True, slots=True)
class GroupedUsage:
    """The usage of one group on devices of one price class. A group can have several of these.

    Attributes:
        key: the group; None for usage of no known container. If grouped by device, node, cluster
            or model, usage of no known container has the key of its device.
        price: the price class.
        held_ns: time for which containers held devices.
        free_ns: time for which devices were free.
        unknown_ns: time for which it is unknown who held the devices.
        busy_ns: busy time.
        idle_ns: held time minus busy time, of hours with a known busy time.
        energy_mj: energy in millijoules.
        holdings: number of holdings that overlap the span; None if it is unknown.
        contested_ns: see `ContainerUsage`, for the known busy time.
        switching_ns: the same.
    """

    key: GroupKey | None
    price: PriceClass
    held_ns: int = 0
    free_ns: int = 0
    unknown_ns: int = 0
    busy_ns: Tally[int] = _NO_AMOUNTS
    idle_ns: Tally[int] = _NO_AMOUNTS
    energy_mj: Tally[int] = _NO_AMOUNTS
    holdings: int | None = 0
    contested_ns: Tally[int] = _NO_AMOUNTS
    switching_ns: Tally[int] = _NO_AMOUNTS
