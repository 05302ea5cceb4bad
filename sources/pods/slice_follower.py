"""Follows ResourceSlices beside the pods, where the cluster has them and lets us read them."""

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
_SOON: Final = 2.0
_LATEST: Final = 300.0
"""Seconds until a cluster is asked again that has no ResourceSlices or doesn't show them: a server
that starts may say so without meaning it, and rights are given and clusters are upgraded while we
run."""

_HEALTHY: Final = 60.0
"""Seconds for which slices have to be followed for all that was before to be forgotten."""

_FORBIDDEN, _NOT_FOUND = 403, 404


_Kind = tuple[int, str]


class _UnavailableError(Exception):
    """There are none to follow, by this version of the API at least."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(str(error))
        self.status = error.status
        self.kind: _Kind = error.dedup_key


class SliceFollower:
    """Implements `pipeline.kube.reflector.Handler` for ResourceSlices.

    What it can't get twice in a row is said once, and costs aliases alone.

    Args:
        ctx: of the source.
        api: session with the API server.
        node: whose slices.
        moments: for timestamps.
    """

    def __init__(self, ctx: SourceContext, api: KubeApi, node: str, moments: Timestamps) -> None:
        self._ctx = ctx
        self._api = api
        self._node = node
        self._slices: dict[str, Slice] = {}
        self._pools = Pools()
        self._moments = moments
        self._emitted: DeviceAliasesReplaced | None = None
        self._failures = 0
        self._logged: _Kind | None = None

    async def run(self) -> None:
        """Follow slices until cancelled."""
        backoff = Backoff(_SOON, _LATEST, _HEALTHY)
        while True:
            begun = self._ctx.clock.now()
            kind, reason = await self._follow()
            lasted = begun.seconds_until(self._ctx.clock.now())
            if lasted >= _HEALTHY:
                self._failures, self._logged = 0, None
            self._failures += 1
            if self._failures > 1 and kind != self._logged:
                self._logged = kind
                self._log_unavailable(reason)
                if self._emitted is None:
                    # Nobody needs to wait for names.
                    await self._emit()
            await self._ctx.clock.sleep(backoff.delay(lasted))

    async def _follow(self) -> tuple[_Kind, str]:
        """Follow slices for as long as that can be done; return what stands in the way."""
        for version in _VERSIONS:
            reflector = Reflector(
                self._api,
                f"/apis/resource.k8s.io/{version}/resourceslices",
                {"fieldSelector": f"spec.nodeName={self._node}"},
                partial(map_slice, moments=self._moments),
                self,
                clock=self._ctx.clock,
            )
            try:
                await reflector.run()
            except _UnavailableError as error:
                if error.status == _FORBIDDEN:
                    return error.kind, str(error)
        return (_NOT_FOUND, ""), "this cluster has no ResourceSlices"

    async def replaced(self, objects: Sequence[Slice]) -> None:
        """Take all slices."""
        self._slices = {found.name: found for found in objects}
        await self._emit()

    async def upserted(self, obj: Slice) -> None:
        """Take a slice."""
        self._slices[obj.name] = obj
        await self._emit()

    async def deleted(self, obj: Slice) -> None:
        """Take away a slice."""
        self._slices.pop(obj.name, None)
        await self._emit()

    async def confirmed(self) -> None:
        """Aliases don't grow old."""

    async def watch_failed(self, error: ApiError) -> None:
        """Leave it where there is nothing to follow; else the reflector tries again."""
        if error.status in {_NOT_FOUND, _FORBIDDEN}:
            raise _UnavailableError(error)

    async def _emit(self) -> None:
        names = self._pools.aliases(self._slices.values())
        if names != self._emitted:
            self._emitted = names
            await self._ctx.emit(names)

    def _log_unavailable(self, reason: str) -> None:
        self._ctx.log.info(
            "%s; devices of DRA drivers can't be told by their names; looked for again, at least "
            "each %.0f minutes",
            reason,
            _LATEST / 60,
        )
