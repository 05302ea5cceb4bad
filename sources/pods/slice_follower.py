"""Watches the node's ResourceSlices, if the cluster has them and podgpu may read them."""

from collections.abc import Sequence
from functools import partial
from typing import Final

from pipeline.base.backoff import Backoff
from pipeline.base.errors import ApiError
from pipeline.component.contracts import KubeApi, SourceContext
from pipeline.kube.reflector import Reflector
from pipeline.model import DeviceAliasesReplaced
from sources.pods.resource_slices import Pools, Slice, map_slice
from sources.pods.timestamps import Timestamps

_VERSIONS: Final = ("v1", "v1beta2", "v1beta1")
_FIRST_RETRY: Final = 2.0
_MAX_RETRY: Final = 300.0
"""Seconds until ResourceSlices are requested again from a cluster that has none or refuses them. A
server that starts may refuse them temporarily; permissions may be granted and clusters upgraded
while podgpu runs."""

_HEALTHY: Final = 60.0
"""Seconds after which a working watch resets the delay and the failure count."""

_FORBIDDEN, _NOT_FOUND = 403, 404


_Kind = tuple[int, str]


class SliceFollower:
    """A `pipeline.kube.reflector.Handler` for ResourceSlices.

    A failed request is logged once, when it fails twice in a row; only aliases are missing then.

    Args:
        ctx: of the source.
        api: session with the API server.
        node: name of the node.
        timestamps: converts timestamps.
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
        self._logged: _Kind | None = None

    async def run(self) -> None:
        """Watch slices until cancelled."""
        backoff = Backoff(_FIRST_RETRY, _MAX_RETRY, _HEALTHY)
        while True:
            started = self._ctx.clock.now()
            kind, reason = await self._follow()
            lasted = started.seconds_until(self._ctx.clock.now())
            if lasted >= _HEALTHY:
                self._failures, self._logged = 0, None
            self._failures += 1
            if self._failures > 1 and kind != self._logged:
                self._logged = kind
                self._log_unavailable(reason)
                if self._emitted is None:
                    # Emit no aliases, so that the join does not wait for them.
                    await self._emit()
            await self._ctx.clock.sleep(backoff.delay(lasted))

    async def _follow(self) -> tuple[_Kind, str]:
        """Watch slices as long as possible; return why they cannot be watched."""
        for version in _VERSIONS:
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
                if error.status == _FORBIDDEN:
                    return error.dedup_key, str(error)
        return (_NOT_FOUND, ""), "this cluster has no ResourceSlices"

    async def replaced(self, objects: Sequence[Slice]) -> None:
        """Receive all slices."""
        self._slices = {found.name: found for found in objects}
        await self._emit()

    async def upserted(self, obj: Slice) -> None:
        """Receive a slice."""
        self._slices[obj.name] = obj
        await self._emit()

    async def deleted(self, obj: Slice) -> None:
        """Remove a slice."""
        self._slices.pop(obj.name, None)
        await self._emit()

    async def confirmed(self) -> None:
        """Do nothing: aliases do not expire."""

    async def watch_failed(self, error: ApiError) -> None:
        """Stop if there is nothing to watch; after other errors the reflector retries."""
        if error.status in {_NOT_FOUND, _FORBIDDEN}:
            raise error

    async def _emit(self) -> None:
        names = self._pools.aliases(self._slices.values())
        if names != self._emitted:
            self._emitted = names
            await self._ctx.emit(names)

    def _log_unavailable(self, reason: str) -> None:
        self._ctx.log.info(
            "%s; devices of DRA drivers cannot be resolved by name; podgpu retries at least every "
            "%.0f minutes",
            reason,
            _MAX_RETRY / 60,
        )
