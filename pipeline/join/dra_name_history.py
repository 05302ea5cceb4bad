"""The device that a name of a DRA driver meant when a claim was allocated.

A ResourceSlice has the present names of a driver's devices. The driver may renumber them, and
withdraw or publish slices again, while a pod keeps the device that it was given. So a name that can
change (`DeviceAliasesReplaced.since`) is resolved as of the time of allocation:

1. This is the time at which the API server says that the devices were allocated; else the time at
   which the kubelet admitted the first pod that is known to use the claim. A claim that is not the
   pod's own may have had other pods before podgpu ran: then it is any time since its creation.
2. The name must have had exactly one meaning at that time, by what podgpu saw or by the age of the
   slices. If a slice changed later, or may have changed, the meaning is unknown.
3. Once known, the meaning is kept as long as the pod lives, also for other pods with the same
   ResourceClaim. For a new pod of the same name it is determined again.
"""

import re
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeAlias

from pipeline.join.device_index import DeviceIndex, RawIds, ResolvedDevice
from pipeline.join.pod_table import IdentifiedContainer
from pipeline.model import (
    NS,
    Claim,
    DeviceAliasesReplaced,
    Instant,
    RawDeviceId,
    ResourceClaim,
)

_CDI: Final = re.compile(
    r"k8s\.gpu\.nvidia\.com/claim=([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-(.+)", re.I
)
_DRIVER: Final = "gpu.nvidia.com/"
_MAX_BINDINGS: Final = 16
"""How many meanings of one name are kept. The devices of older pods are kept separately."""
_MAX_NAMES: Final = 20_000

_FOREVER: Final = 1 << 63

_Key: TypeAlias = tuple[str, str, str, str]
"""Namespace and name of a pod, a ResourceClaim, and the name of a device."""


class _NameBinding(NamedTuple):
    """The device that a name means, `target`, from `since_ns` until `until_ns`.

    Between `not_before_ns` and `since_ns` the name may already have meant it; before that, it did
    not.
    """

    target: str
    not_before_ns: int
    since_ns: int
    until_ns: int = _FOREVER


class _Allocation(NamedTuple):
    uid: str
    target: str


class DraNameHistory:
    """The meanings of names over time, and the devices that claims were allocated.

    `update_names` and `remove` change the names; `resolve` stores the devices of claims.

    Args:
        is_pod_alive: returns whether the pod with a uid exists; None where it is unknown.
    """

    def __init__(self, is_pod_alive: Callable[[str], bool | None]) -> None:
        self._history: dict[str, dict[str, list[_NameBinding]]] = {}
        self._first_reported_ns: dict[str, int] = {}
        self._allocations: dict[_Key, _Allocation] = {}
        self._first_use_ns: dict[str, int] = {}
        self._is_pod_alive = is_pod_alive
        self._used: set[_Key] = set()

    def update_names(self, source: str, event: DeviceAliasesReplaced, at: Instant) -> None:
        """Record the present meanings of the names of a source."""
        since_by_name = dict(event.since)
        first = self._first_reported_ns.setdefault(source, at.mono_ns)
        if not since_by_name and source not in self._history:
            return
        present = {raw.text.lower(): uuid for raw, uuid in event.aliases if raw in since_by_name}
        known = self._history.setdefault(source, {})
        for name, meanings in known.items():
            last = meanings[-1]
            if last.until_ns == _FOREVER and present.get(name) != last.target:
                meanings[-1] = last._replace(until_ns=at.mono_ns)
        for raw, target in event.aliases:
            name = raw.text.lower()
            if raw not in since_by_name or (name not in known and len(known) >= _MAX_NAMES):
                continue
            meanings = known.setdefault(name, [])
            reported_since = since_by_name[raw]
            since_ns = min((reported_since or at).mono_ns, at.mono_ns)
            if not meanings:
                not_before_ns = (
                    0 if reported_since is None and first == at.mono_ns else since_ns - NS
                )
                meanings.append(_NameBinding(target, not_before_ns, since_ns))
            elif meanings[-1].target == target:
                # Published again with the same meaning: nothing has changed.
                meanings[-1] = meanings[-1]._replace(until_ns=_FOREVER)
            else:
                meanings.append(_NameBinding(target, since_ns - NS, since_ns))
                del meanings[:-_MAX_BINDINGS]

    def remove(self, source: str) -> None:
        """Remove the names of a source; claims keep their devices."""
        self._history.pop(source, None)
        self._first_reported_ns.pop(source, None)

    @property
    def is_static(self) -> bool:
        """Whether no name can change, so that ids have their present meaning."""
        return not self._history and not self._allocations

    def begin_resolution(self, claims: Iterable[tuple[Claim, IdentifiedContainer]]) -> None:
        """Start a resolution of all claims.

        Args:
            claims: claims with a ResourceClaim, and what is known of their pods; not read if no
                name can change.
        """
        if self.is_static:
            return
        self._used.clear()
        self._first_use_ns.clear()
        for claim, known in claims:
            pod = known.pod
            if pod is not None and pod.started is not None:
                started = pod.started.mono_ns
                before = self._first_use_ns.get(claim.resource_claim, started)
                self._first_use_ns[claim.resource_claim] = min(started, before)

    def end_resolution(self) -> None:
        """End the resolution: forget the devices of pods that are gone."""
        for key in [key for key in self._allocations if key not in self._used]:
            if self._is_pod_alive(self._allocations[key].uid) is False:
                del self._allocations[key]

    def handles(self, claim: Claim) -> bool:
        """Whether a claim has ids that this class resolves, because their meaning can change."""
        return not self.is_static and any(_is_dra_name(raw) for raw in claim.devices)

    def resolve(
        self, claim: Claim, container: IdentifiedContainer, devices: DeviceIndex
    ) -> tuple[list[ResolvedDevice], RawIds, bool]:
        """Return the devices that a claim was allocated.

        Returns:
            The devices; the ids that match none; whether the claim holds a device that is unknown
            or is not known yet.
        """
        found: dict[ResolvedDevice, None] = {}
        unknown: RawIds = {}
        holds_unknown = False
        for raw in claim.devices:
            one, admin, is_pending = devices.resolve(raw), False, False
            is_dra_name = _is_dra_name(raw)
            if is_dra_name:
                admin = _has_admin_access(raw, _resource_claim_of(claim, raw, container))
                target, is_pending = self._target(claim, raw, container)
                if target is not None or is_pending or self._histories(raw):
                    one = devices.alias_target(target) if target is not None else None
            if one is not None:
                name = raw.text if raw.scheme == "dra" else ""
                found[one._replace(admin_access=admin, dra_name=name)] = None
            elif not admin:
                holds_unknown |= is_dra_name
                if not is_pending:
                    unknown[raw.scheme, raw.text] = raw
        return list(found), unknown, holds_unknown

    def _target(
        self, claim: Claim, raw: RawDeviceId, identified: IdentifiedContainer
    ) -> tuple[str | None, bool]:
        """Return what a name meant, and whether it may become known later."""
        subject, text = identified.subject, _normalized_name(raw)
        key = (subject.namespace, subject.pod, claim.resource_claim, text)
        allocation = self._allocations.get(key)
        # A pod without a known uid matches by its name.
        if allocation is not None and subject.uid in ("", allocation.uid):
            self._used.add(key)
            return allocation.target, False
        histories = self._histories(raw)
        if not histories:
            return None, False
        target, is_pending = self._target_of_other_pod(claim, key), False
        if target is None:
            target, is_pending = self._target_at_allocation(claim, raw, identified, histories)
        pod = identified.pod
        if target is not None and subject.uid and pod is not None and pod.started:
            self._allocations[key] = _Allocation(subject.uid, target)
            self._used.add(key)
        return target, is_pending

    def _target_of_other_pod(self, claim: Claim, key: _Key) -> str | None:
        """Return the device that another pod has by the same ResourceClaim."""
        if not claim.resource_claim:
            return None
        targets = {
            allocation.target
            for other, allocation in self._allocations.items()
            if other[2:] == key[2:] and other[:2] != key[:2]
            if self._is_pod_alive(allocation.uid) is not False
        }
        return targets.pop() if len(targets) == 1 else None

    def _target_at_allocation(
        self,
        claim: Claim,
        raw: RawDeviceId,
        identified: IdentifiedContainer,
        histories: list[list[_NameBinding]],
    ) -> tuple[str | None, bool]:
        pod = identified.pod
        if pod is None:
            return None, True
        if pod.started is None:
            # The pod is being prepared: it will get the device that the name means now.
            present = {each[-1].target for each in histories if each[-1].until_ns == _FOREVER}
            return (present.pop(), False) if len(present) == 1 else (None, False)
        earliest = latest = self._first_use_ns.get(claim.resource_claim, pod.started.mono_ns)
        resource_claim = _resource_claim_of(claim, raw, identified) or ResourceClaim("")
        first_report_ns = min(self._first_reported_ns.values(), default=_FOREVER)
        if resource_claim.allocated is not None:
            earliest = latest = resource_claim.allocated.mono_ns
        elif (
            resource_claim.created is not None
            and not resource_claim.own
            and first_report_ns > pod.started.mono_ns
        ):
            earliest = min(earliest, resource_claim.created.mono_ns)
        targets: set[str] = set()
        is_certain = False
        for meanings in histories:
            for each in meanings:
                # The API server rounds times down to whole seconds.
                if each.not_before_ns < latest + NS and each.until_ns > earliest:
                    targets.add(each.target)
                    is_certain = is_certain or each.since_ns <= earliest
        return (targets.pop(), False) if len(targets) == 1 and is_certain else (None, False)

    def _histories(self, raw: RawDeviceId) -> list[list[_NameBinding]]:
        if raw.scheme == "dra":
            found = [known.get(raw.text.lower()) for known in self._history.values()]
            return [meanings for meanings in found if meanings]
        device = "/" + _normalized_name(raw).rpartition("=")[2]
        return [
            meanings
            for known in self._history.values()
            for name, meanings in known.items()
            if name.startswith(_DRIVER) and name.endswith(device)
        ]


def _is_dra_name(raw: RawDeviceId) -> bool:
    if raw.scheme in {"dra", "reserved"}:
        return raw.scheme == "dra"
    return "=" in raw.text and _CDI.fullmatch(raw.text) is not None


def _normalized_name(raw: RawDeviceId) -> str:
    """Return a name that identifies the device of one claim: `<claim uid>=<device>` for CDI."""
    match = None if raw.scheme == "dra" else _CDI.fullmatch(raw.text)
    return raw.text.lower() if match is None else f"{match[1].lower()}={match[2].lower()}"


def _resource_claim_of(
    claim: Claim, raw: RawDeviceId, identified: IdentifiedContainer
) -> ResourceClaim | None:
    """Return the ResourceClaim that an id belongs to, where those of the pod are known."""
    if identified.pod is None:
        return None
    uid = "" if raw.scheme == "dra" else _normalized_name(raw).partition("=")[0]
    name = claim.resource_claim.rpartition("/")[2]
    for each in identified.pod.resource_claims:
        if each.uid and (each.uid.lower() == uid if uid else each.name == name):
            return each
    return None


def _has_admin_access(raw: RawDeviceId, resource_claim: ResourceClaim | None) -> bool:
    if resource_claim is None:
        return False
    if raw.scheme == "dra":
        return raw in resource_claim.admin
    device = _normalized_name(raw).rpartition("=")[2]
    return any(each.text.lower().endswith("/" + device) for each in resource_claim.admin)
