"""What devices of DRA drivers are: their uuids, from the node's ResourceSlices."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pipeline.kube.json_access import as_dict, as_dicts, as_int, as_text
from pipeline.model import NS, DeviceAliasesReplaced, Instant, RawDeviceId, placement_name
from sources.pods.timestamps import Timestamps

_MIG: Final = re.compile(
    # The profile's id, the first memory slice and how many it has, until 2025; since then the
    # profile's name, its id and the first memory slice.
    r"gpu-[0-9]+-mig-(?:[0-9]+-([0-9]{1,9})-[0-9]+|[0-9]+g[0-9a-z-]+-[0-9]+-([0-9]{1,9}))"
)

Aliases = tuple[tuple[RawDeviceId, str], ...]


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of a driver's pool of devices.

    Attributes:
        name: of the object.
        pool: the driver and its pool.
        generation: of the pool; those before are out of date.
        count: how many slices the pool has in this generation.
        aliases: those of its devices of which it can be known what they are.
        since: since when at the latest the object is as it is; None if it doesn't say.
    """

    name: str
    pool: tuple[str, str]
    generation: int
    count: int
    aliases: Aliases
    since: Instant | None = None


def map_slice(raw: Mapping[str, Any], moments: Timestamps | None = None) -> Slice | None:
    """Return what is needed of a ResourceSlice, of whichever version; None if it has no pool.

    Args:
        raw: as it was sent.
        moments: for its timestamps; without, it isn't known since when it is as it is.
    """
    spec = as_dict(raw.get("spec"))
    pool = as_dict(spec.get("pool"))
    name = as_text(as_dict(raw.get("metadata")).get("name"))
    driver, pool_name = as_text(spec.get("driver")), as_text(pool.get("name"))
    if not (name and driver and pool_name):
        return None
    return Slice(
        name,
        (driver, pool_name),
        as_int(pool.get("generation")) or 0,
        as_int(pool.get("resourceSliceCount")) or 1,
        tuple(_aliases(driver, pool_name, as_dicts(spec.get("devices")))),
        None if moments is None else _since(raw, moments),
    )


def _since(raw: Mapping[str, Any], moments: Timestamps) -> Instant | None:
    """Return since when an object is as it is: its creation, or the end of its last change."""
    metadata, pool = as_dict(raw.get("metadata")), as_dict(as_dict(raw.get("spec")).get("pool"))
    created = moments.parse(metadata.get("creationTimestamp"))
    # The API server counts up with each change of the object; where it doesn't say, the driver
    # does with each change of its pool.
    if as_int(metadata.get("generation", pool.get("generation"))) in (0, 1):
        return created
    changes = [moments.parse(each.get("time")) for each in as_dicts(metadata.get("managedFields"))]
    times = [change for change in changes if change is not None]
    # In whole seconds, rounded down; of a creation that may be, since nothing went before it.
    last = max(times, default=None)
    return None if last is None else Instant(last.mono_ns + NS, last.wall_ns + NS)


def _aliases(
    driver: str, pool: str, devices: Iterable[Mapping[str, Any]]
) -> Iterator[tuple[RawDeviceId, str]]:
    for device in devices:
        # Before v1beta2 a device had its attributes one level below.
        attributes = as_dict(device.get("attributes")) or as_dict(
            as_dict(device.get("basic")).get("attributes")
        )
        told = attributes.get("uuid", attributes.get(f"{driver}/uuid"))
        name = as_text(device.get("name"))
        what = as_text(as_dict(told).get("string")) or _placement(name, attributes)
        if name and what:
            yield RawDeviceId("dra", f"{driver}/{pool}/{name}"), what


def _placement(name: str, attributes: Mapping[str, Any]) -> str:
    """Return where a MIG instance is made when it is needed, which has no uuid before that."""
    parent, profile = (
        as_text(as_dict(attributes.get(key)).get("string")) for key in ("parentUUID", "profile")
    )
    match = _MIG.fullmatch(name)
    if match is None or not (parent and profile):
        return ""
    return placement_name(parent, profile, int(match[1] or match[2]))


class Pools:
    """Puts slices together into whole pools.

    A driver that changes a pool writes its slices anew one by one; until they are all there, the
    pool as it was last is the better word.
    """

    def __init__(self) -> None:
        self._whole: dict[tuple[str, str], list[Slice]] = {}

    def aliases(self, slices: Iterable[Slice]) -> DeviceAliasesReplaced:
        """Return the names of all pools' devices, sorted, and since when they have had them.

        Args:
            slices: all that there are.
        """
        pools: dict[tuple[str, str], list[Slice]] = {}
        for part in slices:
            pools.setdefault(part.pool, []).append(part)
        whole: dict[tuple[str, str], list[Slice]] = {}
        for pool, parts in pools.items():
            newest = max(part.generation for part in parts)
            current = [part for part in parts if part.generation == newest]
            if len(current) == current[0].count:
                whole[pool] = current
            elif pool in self._whole:
                whole[pool] = self._whole[pool]
        self._whole = whole
        named = [
            (*alias, part.since)
            for parts in whole.values()
            for part in parts
            for alias in part.aliases
        ]
        named.sort(key=lambda each: each[:2])
        return DeviceAliasesReplaced(
            tuple((raw, what) for raw, what, _ in named),
            tuple((raw, since) for raw, _, since in named),
        )
