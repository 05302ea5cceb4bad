"""Watches the node's ResourceSlices, which map names of DRA devices to their UUIDs."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from pipeline.base.backoff import Backoff
from pipeline.base.errors import ApiError
from pipeline.component.contracts import KubeApi, SourceContext
from pipeline.kube.json_access import as_dict, as_dicts, as_int, as_text
from pipeline.kube.reflector import Reflector
from pipeline.model import NS, DeviceAliasesReplaced, Instant, RawDeviceId, placement_name
from sources.pods.timestamps import Timestamps

VERSIONS: Final = ("v1", "v1beta2", "v1beta1")
FIRST_RETRY: Final = 2.0
MAX_RETRY: Final = 300.0
"""First and longest delay in seconds until ResourceSlices or ResourceClaims that cannot be read are
requested again. A server that starts may refuse them temporarily; permissions may be granted and
clusters upgraded while podgpu runs."""

_HEALTHY: Final = 60.0
"""Seconds after which a watch counts as healthy: delay and number of failures are then reset."""

FORBIDDEN: Final = 403
NOT_FOUND: Final = 404

_MIG: Final = re.compile(
    # Until 2025: id of the profile, first memory slice, number of slices. Since then: name of the
    # profile, its id, first memory slice.
    r"gpu-[0-9]+-mig-(?:[0-9]+-([0-9]{1,9})-[0-9]+|[0-9]+g[0-9a-z-]+-[0-9]+-([0-9]{1,9}))"
)

Aliases = tuple[tuple[RawDeviceId, str], ...]


@dataclass(frozen=True, slots=True)
class Slice:
    """One ResourceSlice: a part of a DRA driver's pool of devices.

    Attributes:
        name: name of the object.
        pool: names of the driver and of the pool.
        generation: generation of the pool; slices of earlier generations are outdated.
        count: number of slices that the pool has in this generation.
        aliases: raw id of each device, with its UUID or placement; devices without both are
            missing.
        since: the latest time at which the object may have changed; None if unknown.
    """

    name: str
    pool: tuple[str, str]
    generation: int
    count: int
    aliases: Aliases
    since: Instant | None = None


def map_slice(raw: Mapping[str, Any], timestamps: Timestamps | None = None) -> Slice | None:
    """Return the used parts of a ResourceSlice of any API version; None if a name is missing.

    Args:
        raw: the decoded object.
        timestamps: converts the timestamps of the object; None if `since` is not used.
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
        None if timestamps is None else _since(raw, timestamps),
    )


def _since(raw: Mapping[str, Any], timestamps: Timestamps) -> Instant | None:
    """Return the latest time at which an object may have changed; None if unknown."""
    metadata, pool = as_dict(raw.get("metadata")), as_dict(as_dict(raw.get("spec")).get("pool"))
    created = timestamps.parse(metadata.get("creationTimestamp"))
    # The API server increments `metadata.generation` with each change of the object. If it is
    # missing, the driver increments the pool's generation with each change of the pool.
    if as_int(metadata.get("generation", pool.get("generation"))) in (0, 1):
        return created
    fields = as_dicts(metadata.get("managedFields"))
    times = filter(None, (timestamps.parse(each.get("time")) for each in fields))
    # Times are rounded down to seconds, so add one second. A creation time needs no correction,
    # since the device had no other name before.
    last = max(times, default=None)
    return None if last is None else Instant(last.mono_ns + NS, last.wall_ns + NS)


def _aliases(
    driver: str, pool: str, devices: Iterable[Mapping[str, Any]]
) -> Iterator[tuple[RawDeviceId, str]]:
    for device in devices:
        # Before v1beta2 the attributes were one level deeper.
        attributes = as_dict(device.get("attributes")) or as_dict(
            as_dict(device.get("basic")).get("attributes")
        )
        uuid = attributes.get("uuid", attributes.get(f"{driver}/uuid"))
        name = as_text(device.get("name"))
        target = as_text(as_dict(uuid).get("string")) or _placement(name, attributes)
        if name and target:
            yield RawDeviceId("dra", f"{driver}/{pool}/{name}"), target


def _placement(name: str, attributes: Mapping[str, Any]) -> str:
    """Return the placement of a MIG instance that is created on demand and has no UUID yet."""
    parent, profile = (
        as_text(as_dict(attributes.get(key)).get("string")) for key in ("parentUUID", "profile")
    )
    match = _MIG.fullmatch(name)
    if match is None or not (parent and profile):
        return ""
    return placement_name(parent, profile, int(match[1] or match[2]))


class Pools:
    """Combines slices into complete pools.

    A driver that changes a pool writes the pool's slices one by one. Until all slices of the new
    generation exist, the last complete generation of the pool is used.
    """

    def __init__(self) -> None:
        self._whole: dict[tuple[str, str], list[Slice]] = {}

    def aliases(self, slices: Iterable[Slice]) -> DeviceAliasesReplaced:
        """Return the aliases of the devices of all complete pools, sorted, and their times.

        Args:
            slices: all slices of the node.
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
            tuple((raw, target) for raw, target, _ in named),
            tuple((raw, since) for raw, _, since in named),
        )


class SliceFollower:
    """Watches ResourceSlices, if the cluster has them and podgpu may read them.

    Implements `pipeline.kube.reflector.Handler`.

    Errors do not end `run`: only aliases are missing then. An error is logged if the next attempt
    fails too, and again only if its kind changes.

    Args:
        ctx: the context of the source.
        api: session with the API server.
        node: name of the node.
        timestamps: converts the timestamps of slices.
    """

    def __init__(self, ctx: SourceContext, api: KubeApi, node: str, timestamps: Timestamps) -> None:
        self._ctx = ctx
        self._api = api
        self._node = node
        self._slices: dict[str, Slice] = {}
        self._pools = Pools()
        self._timestamps = timestamps
        self._emitted: DeviceAliasesReplaced | None = None
        self._failures = 0
        self._logged: tuple[int, str] | None = None

    async def run(self) -> None:
        """Watch ResourceSlices, and emit their aliases, until cancelled."""
        backoff = Backoff(FIRST_RETRY, MAX_RETRY, _HEALTHY)
        while True:
            started = self._ctx.clock.now()
            kind, reason = await self._follow()
            lasted = started.seconds_until(self._ctx.clock.now())
            if lasted >= _HEALTHY:
                self._failures, self._logged = 0, None
            self._failures += 1
            if self._failures > 1 and kind != self._logged:
                self._logged = kind
                text = (
                    "%s; devices of DRA drivers cannot be resolved by name; podgpu retries at "
                    "least every %.0f minutes"
                )
                self._ctx.log.info(text, reason, MAX_RETRY / 60)
                if self._emitted is None:
                    # Emit no aliases, so that the join does not wait for them.
                    await self._emit()
            await self._ctx.clock.sleep(backoff.delay(lasted))

    async def _follow(self) -> tuple[tuple[int, str], str]:
        """Watch slices as long as possible; return kind and text of the error that ended it."""
        for version in VERSIONS:
            reflector = Reflector(
                self._api,
                f"/apis/resource.k8s.io/{version}/resourceslices",
                {"fieldSelector": f"spec.nodeName={self._node}"},
                partial(map_slice, timestamps=self._timestamps),
                self,
                clock=self._ctx.clock,
            )
            try:
                await reflector.run()
            except ApiError as error:  # from `watch_failed`
                if error.status == FORBIDDEN:
                    return error.dedup_key, str(error)
        return (NOT_FOUND, ""), "this cluster has no ResourceSlices"

    async def replaced(self, objects: Sequence[Slice]) -> None:
        """Replace all slices, and emit the aliases if they have changed."""
        self._slices = {found.name: found for found in objects}
        await self._emit()

    async def upserted(self, obj: Slice) -> None:
        """Add or update a slice, and emit the aliases if they have changed."""
        self._slices[obj.name] = obj
        await self._emit()

    async def deleted(self, obj: Slice) -> None:
        """Remove a slice, and emit the aliases if they have changed."""
        self._slices.pop(obj.name, None)
        await self._emit()

    async def confirmed(self) -> None:
        """Do nothing: aliases do not expire."""

    async def watch_failed(self, error: ApiError) -> None:
        """Raise the error if slices do not exist or may not be read; else the reflector retries."""
        if error.status in {NOT_FOUND, FORBIDDEN}:
            raise error

    async def _emit(self) -> None:
        names = self._pools.aliases(self._slices.values())
        if names != self._emitted:
            self._emitted = names
            await self._ctx.emit(names)
