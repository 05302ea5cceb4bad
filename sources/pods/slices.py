"""What devices of DRA drivers are: their uuids, from the node's ResourceSlices."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.kube.shape import items, number, table, text
from pipeline.model import RawDeviceId

Aliases = tuple[tuple[RawDeviceId, str], ...]


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of a driver's pool of devices.

    Attributes:
        name: of the object.
        pool: the driver and its pool.
        generation: of the pool; those before are out of date.
        count: how many slices the pool has in this generation.
        aliases: those of its devices that have a uuid.
    """

    name: str
    pool: tuple[str, str]
    generation: int
    count: int
    aliases: Aliases


def distil(raw: Mapping[str, Any]) -> Slice | None:
    """Return what is needed of a ResourceSlice, of whichever version; None if it has no pool."""
    spec = table(raw.get("spec"))
    pool = table(spec.get("pool"))
    name = text(table(raw.get("metadata")).get("name"))
    driver, pool_name = text(spec.get("driver")), text(pool.get("name"))
    if not (name and driver and pool_name):
        return None
    return Slice(
        name,
        (driver, pool_name),
        number(pool.get("generation")) or 0,
        number(pool.get("resourceSliceCount")) or 1,
        tuple(_aliases(driver, pool_name, items(spec.get("devices")))),
    )


def _aliases(
    driver: str, pool: str, devices: Iterable[Mapping[str, Any]]
) -> Iterator[tuple[RawDeviceId, str]]:
    for device in devices:
        # Before v1beta2 a device had its attributes one level below.
        attributes = table(device.get("attributes")) or table(
            table(device.get("basic")).get("attributes")
        )
        told = attributes.get("uuid", attributes.get(f"{driver}/uuid"))
        name, uuid = text(device.get("name")), text(table(told).get("string"))
        if name and uuid:
            yield RawDeviceId("dra", f"{driver}/{pool}/{name}"), uuid


class Pools:
    """Puts slices together into whole pools.

    A driver that changes a pool writes its slices anew one by one; until they are all there, the
    pool as it was last is the better word.
    """

    def __init__(self) -> None:
        self._whole: dict[tuple[str, str], Aliases] = {}

    def aliases(self, slices: Iterable[Slice]) -> Aliases:
        """Return the aliases of all pools, sorted.

        Args:
            slices: all that there are.
        """
        pools: dict[tuple[str, str], list[Slice]] = {}
        for part in slices:
            pools.setdefault(part.pool, []).append(part)
        whole: dict[tuple[str, str], Aliases] = {}
        for pool, parts in pools.items():
            newest = max(part.generation for part in parts)
            current = [part for part in parts if part.generation == newest]
            if len(current) == current[0].count:
                whole[pool] = tuple(alias for part in current for alias in part.aliases)
            elif pool in self._whole:
                whole[pool] = self._whole[pool]
        self._whole = whole
        return tuple(sorted(alias for aliases in whole.values() for alias in aliases))
