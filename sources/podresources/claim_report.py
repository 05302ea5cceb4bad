"""Puts together what several sockets say, into events and one message per change of state."""

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
from sources.podresources.errors import KubeletError


@dataclass(slots=True)
class _Socket:
    """What one socket said last.

    Attributes:
        claims: by the last answer.
        answered_ns: when that came; None before the first.
        allocatable: what it advertised last; None if it never did.
        allocatable_ns: when that came.
        fault: why it gives no answer; None while it does, and before it was asked.
        is_complete: whether its claims name every pod to which it gave devices.
    """

    claims: tuple[Claim, ...] = ()
    answered_ns: int | None = None
    allocatable: tuple[AdvertisedResource, ...] = ()
    allocatable_ns: int | None = None
    fault: KubeletError | None = None
    is_complete: bool = False


class KubeletReport:
    """What the source says. Claims of a socket that falls silent stand until `max_age`.

    Args:
        ctx: the source's context.
        sockets: in the order in which they count.
        max_age: how long an answer stands.
    """

    def __init__(self, ctx: SourceContext, sockets: Iterable[Path], max_age: Duration) -> None:
        self._ctx = ctx
        self._max_age = max_age
        self._sockets = {path: _Socket() for path in sockets}
        self._emitted_sockets: list[Path] = []
        self._claims: tuple[Claim, ...] = ()
        self._lost = ""
        self._lost_by: list[tuple[str, str]] = []

    def socket_changed(self, path: Path) -> None:
        """Note that another kubelet may answer there, which doesn't know its pods yet."""
        self._sockets[path].is_complete = False

    async def on_claims(self, path: Path, claims: tuple[Claim, ...], *, is_complete: bool) -> None:
        """Say what a socket answered.

        Args:
            path: the socket.
            claims: all of its claims.
            is_complete: whether they name every pod to which the kubelet gave devices.
        """
        socket = self._sockets[path]
        if socket.fault:
            self._ctx.log.info("%s: answers again", path)
        socket.fault, self._lost, self._lost_by = None, "", []
        socket.claims, socket.answered_ns = claims, self._ctx.clock.now().mono_ns
        socket.is_complete = is_complete
        await self._emit_claims()

    async def on_allocatable(self, path: Path, resources: tuple[AdvertisedResource, ...]) -> None:
        """Say what a socket advertises."""
        now = self._ctx.clock.now().mono_ns
        self._sockets[path].allocatable, self._sockets[path].allocatable_ns = resources, now
        good = [
            socket.allocatable
            for socket in self._sockets.values()
            if socket.allocatable_ns is not None and now < socket.allocatable_ns + self._max_age.ns
        ]
        await self._ctx.emit(ResourcesAdvertised(_united(good), self._max_age.ns))

    async def on_failure(self, path: Path, error: KubeletError) -> None:
        """Say that a socket gives no answer; the source is lost once none of them does.

        Each kind of fault is said once: its text may be another with each attempt.
        """
        socket = self._sockets[path]
        if socket.fault is None or socket.fault.dedup_key != error.dedup_key:
            socket.fault = error
            stands = (
                "it has not answered yet"
                if socket.answered_ns is None
                else f"what it said last stands for {self._max_age}"
            )
            self._ctx.log.warning("%s; %s", error, stands)
        faults = [socket.fault for socket in self._sockets.values() if socket.fault]
        kinds = [fault.dedup_key for fault in faults]
        if len(faults) == len(self._sockets) and kinds != self._lost_by:
            self._lost, self._lost_by = "; ".join(str(fault) for fault in faults), kinds
            await self._ctx.emit(SourceLost(self._lost))

    async def expire(self) -> None:
        """Withdraw the claims of sockets that have been silent for too long, if others' stand."""
        good = self._good()
        if good and good != self._emitted_sockets:
            await self._emit_claims()
            if self._lost:
                await self._ctx.emit(SourceLost(self._lost))

    def expires_ns(self, path: Path) -> int | None:
        """Return when what a socket said has to go, unless it says it again."""
        heard_ns = self._sockets[path].answered_ns
        return (
            heard_ns + self._max_age.ns if heard_ns is not None and path in self._good() else None
        )

    def _good(self) -> list[Path]:
        now = self._ctx.clock.now().mono_ns
        return [
            path
            for path, socket in self._sockets.items()
            if socket.answered_ns is not None and now < socket.answered_ns + self._max_age.ns
        ]

    async def _emit_claims(self) -> None:
        self._emitted_sockets = self._good()
        sockets = [self._sockets[path] for path in self._emitted_sockets]
        own = next(iter(self._sockets.values()))
        said = [each.claims if each is own else _relayed(each.claims) for each in sockets]
        claims = _merged(said)
        if claims != self._claims:
            self._claims = claims
        # As long as the youngest: this speaks again before an older one has to go.
        youngest = max(socket.answered_ns or 0 for socket in sockets)
        left = youngest + self._max_age.ns - self._ctx.clock.now().mono_ns
        complete = all(each.is_complete and not each.fault for each in self._sockets.values())
        await self._ctx.emit(ClaimsReplaced(self._claims, max(left, 1), complete))


def _relayed(claims: tuple[Claim, ...]) -> tuple[Claim, ...]:
    """Return what another socket than the kubelet's own says."""
    return tuple(replace(claim, relayed=True) for claim in claims)


def _merged(said: list[tuple[Claim, ...]]) -> tuple[Claim, ...]:
    """Put claims of several sockets together: a proxy repeats the kubelet's own."""
    if len(said) == 1:
        return said[0]
    known: set[tuple[object, str, str, RawDeviceId]] = set()
    merged: list[Claim] = []
    for claims in said:
        news: list[Claim] = []
        for claim in claims:
            keys = [
                (claim.subject, claim.resource, claim.resource_claim, device)
                for device in claim.devices
            ]
            devices = tuple(key[3] for key in keys if key not in known)
            if devices:
                news.append(claim if devices == claim.devices else replace(claim, devices=devices))
        known.update(
            (c.subject, c.resource, c.resource_claim, device)
            for c in claims
            for device in c.devices
        )
        merged += news
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
