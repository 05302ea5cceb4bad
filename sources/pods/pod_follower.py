"""Emits events for the pods that the API server reports, except for unchanged pods."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NoReturn

from pipeline.base.errors import ApiError
from pipeline.component.contracts import SourceContext
from pipeline.model import NS, Pod, PodDeleted, PodsReplaced, PodUpserted, SourceLost
from sources.pods.claim_details import ClaimReader
from sources.pods.options import Options

_CONFIRM_NS: Final = 30 * NS
"""Time between confirmations. A confirmation may wait for a bookmark, which comes once a minute."""


class PodFollower:
    """Emits events of pods. Implements `pipeline.kube.reflector.Handler`.

    Args:
        ctx: the context of the source.
        options: the options of the source.
        claims: reads the pods' ResourceClaims.
    """

    def __init__(self, ctx: SourceContext, options: Options, claims: ClaimReader) -> None:
        self._ctx = ctx
        self._options = options
        self._claims = claims
        self._pods: dict[tuple[str, str], Pod] = {}
        self._emitted: PodsReplaced | None = None
        self._due_ns: int | None = None
        self._lost_by: tuple[int, str] | None = None

    async def replaced(self, objects: Sequence[Pod]) -> None:
        """Replace all pods, and emit all of them. Unchanged pods keep their objects."""
        pods: dict[tuple[str, str], Pod] = {}
        staying = {pod.info.uid for pod in objects}
        self._claims.forget({pod.info.uid for pod in self._pods.values()} - staying)
        for pod in await self._claims.complete(objects):
            key = _namespaced_name(pod)
            before = self._pods.get(key)
            pods[key] = before if before == pod else pod
        if self._pods != pods:
            self._emitted = None
        self._pods = pods
        self._ctx.accepted.replace(self._ctx.name, pods.values())
        await self._confirm()

    async def upserted(self, obj: Pod) -> None:
        """Add or update a pod, and emit it if it has changed."""
        [obj] = await self._claims.complete([obj])
        before = self._pods.get(_namespaced_name(obj))
        if before == obj:
            return
        if before is not None and before.info.uid != obj.info.uid:
            # The event of its deletion was missed: two pods cannot have the same name.
            self._ctx.accepted.drop(self._ctx.name, before)
            await self._deleted(before.info.uid)
        self._pods[_namespaced_name(obj)] = obj
        self._ctx.accepted.put(self._ctx.name, obj)
        self._emitted = None
        await self._ctx.emit(PodUpserted(obj))

    async def deleted(self, obj: Pod) -> None:
        """Remove a pod, and emit that, unless a new pod has its name already."""
        before = self._pods.get(_namespaced_name(obj))
        if before is None or before.info.uid != obj.info.uid:
            return
        del self._pods[_namespaced_name(obj)]
        self._ctx.accepted.drop(self._ctx.name, before)
        self._emitted = None
        await self._deleted(obj.info.uid)

    async def _deleted(self, uid: str) -> None:
        self._claims.forget([uid])
        await self._ctx.emit(PodDeleted(uid))

    async def read_claims(self) -> NoReturn:
        """Retry to read the ResourceClaims that could not be read, until cancelled."""
        claims = self._claims
        while True:
            await claims.wait_unread()
            lacking = [pod for pod in self._pods.values() if claims.has_unread(pod)]
            for pod in await claims.complete(lacking):
                before = self._pods.get(_namespaced_name(pod))
                if before is not None and before.info.uid == pod.info.uid and before != pod:
                    now = replace(before, resource_claims=pod.resource_claims)
                    self._pods[_namespaced_name(pod)] = now
                    self._emitted = None
                    await self._ctx.emit(PodUpserted(now))

    async def confirmed(self) -> None:
        """Confirm the pods if the last confirmation is old, or if the watch had failed."""
        due = self._due_ns is not None and self._ctx.clock.now().mono_ns >= self._due_ns
        if self._lost_by is not None or due:
            await self._confirm()

    async def watch_failed(self, error: ApiError) -> None:
        """Log and emit why pods cannot be watched, unless the last error was of the same kind."""
        if error.dedup_key == self._lost_by:
            return
        self._lost_by, reason = error.dedup_key, str(error)
        effect = f"the last known pods stay in use for {self._options.max_age}"
        if self._due_ns is None:
            effect = "no pods are known yet"
        self._ctx.log.warning("%s; %s", reason, effect)
        await self._ctx.emit(SourceLost(reason))

    async def _confirm(self) -> None:
        if self._emitted is None:
            self._emitted = PodsReplaced(tuple(self._pods.values()), self._options.max_age.ns)
        self._due_ns = self._ctx.clock.now().mono_ns + _CONFIRM_NS
        recovered, self._lost_by = self._lost_by is not None, None
        await self._ctx.emit(self._emitted)
        if recovered:
            self._ctx.log.info("watching pods again")


def _namespaced_name(pod: Pod) -> tuple[str, str]:
    return pod.info.namespace, pod.info.name
