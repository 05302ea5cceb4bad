"""Follows ResourceSlices beside the pods, where the cluster has them and lets us read them."""

from collections.abc import Sequence
from typing import Final

from pipeline.contracts import KubeApi, SourceContext
from pipeline.errors import ApiError
from pipeline.kube.reflector import Reflector
from pipeline.model import DeviceAliasesReplaced
from sources.pods.slices import Aliases, Pools, Slice, distil

_VERSIONS: Final = ("v1", "v1beta2", "v1beta1")
_LATER: Final = 300.0
"""Seconds until a cluster is asked again that has no ResourceSlices or doesn't show them: rights
are given and clusters are upgraded while we run."""

_FORBIDDEN, _NOT_FOUND = 403, 404


class _UnavailableError(Exception):
    """There are none to follow, by this version of the API at least."""


class SliceFollower:
    """Implements `pipeline.kube.reflector.Handler` for ResourceSlices.

    What it can't get is said once and costs aliases alone.

    Args:
        ctx: of the source.
        api: session with the API server.
        node: whose slices.
    """

    def __init__(self, ctx: SourceContext, api: KubeApi, node: str) -> None:
        self._ctx = ctx
        self._api = api
        self._node = node
        self._slices: dict[str, Slice] = {}
        self._pools = Pools()
        self._said: Aliases | None = None
        self._reason = ""

    async def run(self) -> None:
        """Follow slices until cancelled."""
        while True:
            reason = "this cluster has no ResourceSlices"
            for version in _VERSIONS:
                reflector = Reflector(
                    self._api,
                    f"/apis/resource.k8s.io/{version}/resourceslices",
                    {"fieldSelector": f"spec.nodeName={self._node}"},
                    distil,
                    self,
                    clock=self._ctx.clock,
                )
                try:
                    await reflector.run()
                except _UnavailableError as error:
                    if str(error):
                        reason = str(error)
                        break
            self._say(reason)
            await self._ctx.clock.sleep(_LATER)

    async def replaced(self, objects: Sequence[Slice]) -> None:
        """Take all slices."""
        self._slices = {found.name: found for found in objects}
        self._reason = ""
        await self._tell()

    async def upserted(self, found: Slice) -> None:
        """Take a slice."""
        self._slices[found.name] = found
        await self._tell()

    async def deleted(self, found: Slice) -> None:
        """Take away a slice."""
        self._slices.pop(found.name, None)
        await self._tell()

    async def confirmed(self) -> None:
        """Aliases don't grow old."""

    async def lost(self, error: ApiError) -> None:
        """Leave it where there is nothing to follow; else the reflector tries again."""
        if error.status == _NOT_FOUND:
            raise _UnavailableError
        if error.status == _FORBIDDEN:
            raise _UnavailableError(str(error))

    async def _tell(self) -> None:
        aliases = self._pools.aliases(self._slices.values())
        if aliases != self._said:
            self._said = aliases
            await self._ctx.emit(DeviceAliasesReplaced(aliases))

    def _say(self, reason: str) -> None:
        if reason != self._reason:
            self._reason = reason
            self._ctx.log.info(
                "%s; devices of DRA drivers can't be told by their names; looked for again "
                "each %.0f minutes",
                reason,
                _LATER / 60,
            )
