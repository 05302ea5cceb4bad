"""Combines the responses of several sockets into events, and logs their failures."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from config.value_types import Duration
from pipeline.component.contracts import SourceContext
from pipeline.model import (
    AdvertisedResource,
    Claim,
    ClaimsReplaced,
    RawDeviceId,
    ResourcesAdvertised,
    SourceLost,
)
from sources.podresources.kubelet_connection import KubeletError


@dataclass(slots=True, eq=False)
class _Socket:
    """State of one pod-resources socket.

    Attributes:
        claims: claims of the last response.
        expires_ns: monotonic time until which that response is valid; None before the first.
        fault: error of the last request; None if the request succeeded, and before the first.
        is_complete: whether the claims include every container that has devices of the kubelet.
    """

    claims: tuple[Claim, ...] = ()
    expires_ns: int | None = None
    fault: KubeletError | None = None
    is_complete: bool = False


class KubeletReport:
    """Emits the claims of all sockets. After a failure, a socket's claims are valid for `max_age`.

    Args:
        ctx: the source's context.
        sockets: paths in order of priority; the first one is the kubelet's.
        max_age: how long a response stays valid.
    """

    def __init__(self, ctx: SourceContext, sockets: Iterable[Path], max_age: Duration) -> None:
        self._ctx = ctx
        self._max_age = max_age
        self._sockets = {path: _Socket() for path in sockets}
        self._advertised: dict[Path, tuple[int, tuple[AdvertisedResource, ...]]] = {}
        self._emitted_sockets: list[_Socket] = []
        self._claims: tuple[Claim, ...] = ()
        self._lost = ""
        self._lost_by: list[tuple[str, str]] = []

    def socket_changed(self, path: Path) -> None:
        """Note that the socket was replaced: a new kubelet may not know its pods yet."""
        self._sockets[path].is_complete = False

    async def on_claims(self, path: Path, claims: tuple[Claim, ...], *, is_complete: bool) -> None:
        """Use the claims of a socket's response, and emit the claims of all sockets.

        Args:
            path: the socket.
            claims: all claims of the response.
            is_complete: whether the claims include every container that has devices of the kubelet.
        """
        socket = self._sockets[path]
        if socket.fault:
            self._ctx.log.info("%s: responds again", path)
        socket.fault, self._lost, self._lost_by = None, "", []
        socket.claims, socket.expires_ns = claims, self._now() + self._max_age.ns
        socket.is_complete = is_complete
        await self._emit_claims()

    async def on_allocatable(self, path: Path, resources: tuple[AdvertisedResource, ...]) -> None:
        """Use the resources that a socket advertises, and emit those of all sockets."""
        now = self._now()
        self._advertised[path] = now + self._max_age.ns, resources
        good = [offered for until_ns, offered in self._advertised.values() if now < until_ns]
        await self._ctx.emit(ResourcesAdvertised(_united(good), self._max_age.ns))

    async def on_failure(self, path: Path, error: KubeletError) -> None:
        """Log that a request to a socket failed; emit `SourceLost` if it failed at all sockets.

        An error is logged only if its `dedup_key` differs from that of the socket's last error.
        """
        socket = self._sockets[path]
        if socket.fault is None or socket.fault.dedup_key != error.dedup_key:
            socket.fault = error
            effect = (
                "this socket has given no response yet"
                if socket.expires_ns is None
                else f"the last response of this socket stays in use for {self._max_age}"
            )
            self._ctx.log.warning("%s; %s", error, effect)
        faults = [socket.fault for socket in self._sockets.values() if socket.fault]
        kinds = [fault.dedup_key for fault in faults]
        if len(faults) == len(self._sockets) and kinds != self._lost_by:
            self._lost, self._lost_by = "; ".join(str(fault) for fault in faults), kinds
            await self._ctx.emit(SourceLost(self._lost))

    async def expire(self) -> None:
        """Emit the claims again without expired ones, if claims of another socket are valid."""
        good = self._valid_sockets()
        if good and good != self._emitted_sockets:
            await self._emit_claims()
            if self._lost:
                await self._ctx.emit(SourceLost(self._lost))

    def expires_ns(self, path: Path) -> int | None:
        """Return when a socket's claims expire; None if they have expired or there are none."""
        socket = self._sockets[path]
        return socket.expires_ns if socket in self._valid_sockets() else None

    def _now(self) -> int:
        return self._ctx.clock.now().mono_ns

    def _valid_sockets(self) -> list[_Socket]:
        now, sockets = self._now(), self._sockets.values()
        return [one for one in sockets if one.expires_ns is not None and now < one.expires_ns]

    async def _emit_claims(self) -> None:
        self._emitted_sockets = sockets = self._valid_sockets()
        own = next(iter(self._sockets.values()))
        claims = _merged(
            [
                one.claims
                if one is own
                else tuple(replace(claim, relayed=True) for claim in one.claims)
                for one in sockets
            ]
        )
        if claims != self._claims:
            self._claims = claims
        # Valid as long as the newest response: when an older one expires, `expire` emits again.
        left = max(one.expires_ns or 0 for one in sockets) - self._now()
        complete = all(each.is_complete and not each.fault for each in self._sockets.values())
        await self._ctx.emit(ClaimsReplaced(self._claims, max(left, 1), complete))


def _merged(by_socket: list[tuple[Claim, ...]]) -> tuple[Claim, ...]:
    """Return the claims of several sockets without duplicates: a proxy repeats the kubelet's."""
    if len(by_socket) == 1:
        return by_socket[0]
    known: set[tuple[object, str, str, RawDeviceId]] = set()
    merged: list[Claim] = []
    for claims in by_socket:
        before = frozenset(known)
        for claim in claims:
            keys = [
                (claim.subject, claim.resource, claim.resource_claim, device)
                for device in claim.devices
            ]
            known.update(keys)
            devices = tuple(key[3] for key in keys if key not in before)
            if devices == claim.devices:
                merged.append(claim)
            elif devices:
                merged.append(replace(claim, devices=devices))
    return tuple(
        sorted(merged, key=lambda claim: (claim.subject, claim.resource, claim.origin.detail))
    )


def _united(offered: list[tuple[AdvertisedResource, ...]]) -> tuple[AdvertisedResource, ...]:
    devices: dict[str, set[RawDeviceId]] = {}
    for resources in offered:
        for resource in resources:
            devices.setdefault(resource.resource, set()).update(resource.devices)
    return tuple(
        AdvertisedResource(name, tuple(sorted(found))) for name, found in sorted(devices.items())
    )
