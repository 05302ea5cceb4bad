"""List what needs attention on a node, in words with the advised action, the most severe first."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal

from msgspec.structs import replace

from pipeline.fields.xid_catalogue import XIDS, Xid
from pipeline.model import NS, Attribution, ContainerUsage, Instant, Snapshot, XidVictim
from pipeline.status_page.component_problems import SILENT, component_problems
from pipeline.status_page.container_use import names
from pipeline.status_page.daemon_state import StatusInput, date
from pipeline.status_page.display_text import device_name, gpu_name
from pipeline.status_page.fault_memory import KnownFault, KnownXid
from pipeline.status_page.fault_texts import (
    RESETS,
    UNCLAIMED_ADVICE,
    UNLISTED_XID,
    UNLISTED_XID_ADVICE,
    fault_text,
)
from pipeline.status_page.status_document import (
    DeviceStatus,
    GpuStatus,
    InstanceStatus,
    StatusDocument,
    XidStatus,
)
from pipeline.status_page.use_format import AffectedStatus, ContainerStatus, ProblemStatus

MOST_PROBLEMS: Final = 256
"""Maximum number of problems in a document: the most severe ones. Further ones are counted."""

MOST_AFFECTED: Final = 16
"""Maximum number of containers of a problem."""

HARDWARE_SECONDS: Final = 3600.0
"""Seconds after its last error during which an XID is a problem. As in the shipped alerts."""

PROGRAM_SECONDS: Final = 600.0
"""The same for errors that programs mostly cause themselves."""

UNCLAIMED_SECONDS: Final = 60.0
"""Seconds for which a container uses a device before its missing claim is a problem.

A claim can be reported some seconds after the first process.
"""

_RANKS: Final = {"critical": 0, "warning": 1, "info": 2}


def with_problems(status: StatusDocument, status_input: StatusInput) -> StatusDocument:
    """Return the document with its problems.

    Args:
        status: the document without them.
        status_input: the state of the daemon that the document shows.
    """
    found = [
        *_faults(status, status_input),
        *_xids(status, status_input),
        *_unclaimed(status, status_input),
        *component_problems(status),
    ]
    found.sort(key=lambda one: _RANKS[one.severity])
    left_out = max(len(found) - MOST_PROBLEMS, 0)
    return replace(status, problems=tuple(found[:MOST_PROBLEMS]), problems_left_out=left_out)


def _faults(status: StatusDocument, status_input: StatusInput) -> Iterator[ProblemStatus]:
    shown: dict[str, tuple[str, Sequence[DeviceStatus]]] = {}
    for gpu in status.gpus or ():
        shown[gpu.uuid] = gpu_name(gpu), (gpu, *gpu.instances)
        shown |= {each.uuid: (device_name(gpu, each), (each,)) for each in gpu.instances}
    order = {uuid: at for at, uuid in enumerate(shown)}
    found = [one for one in status_input.past.faults if one.key.device in order]
    asked = {
        one.key.device
        for one in found
        if one.key.kind == "recovery_action" and one.key.detail in RESETS
    }
    for one in sorted(found, key=lambda one: (order[one.key.device], one.key)):
        where, devices = shown[one.key.device]
        yield _fault(one, where, devices, status_input, asked=one.key.device in asked)


def _fault(
    one: KnownFault,
    where: str,
    devices: Sequence[DeviceStatus],
    status_input: StatusInput,
    *,
    asked: bool,
) -> ProblemStatus:
    """Return the problem of a fault.

    Args:
        one: the fault.
        where: name of its device.
        devices: the device, and the instances of a GPU.
        status_input: the state of the daemon.
        asked: whether the driver asks for a reset of the device or a reboot.
    """
    age = one.since.seconds_until(status_input.now)
    # A process of no known container uses the device too.
    held = any(
        each.holders is None or each.holders or each.users or each.processes for each in devices
    )
    severity, text, advice = fault_text(
        one, where, recent=age < HARDWARE_SECONDS, held=held, asked=asked
    )
    return ProblemStatus(
        kind=one.key.kind,
        severity=severity,
        where=where,
        device=one.key.device,
        text=text,
        advice=advice,
        since=date(status_input.now.wall_of(one.since)),
        since_known=one.since_known,
        **_affected(one, devices, _attribution(status_input.snapshot, one.key.device)),
    )


def _attribution(snapshot: Snapshot | None, uuid: str) -> Attribution | None:
    return None if snapshot is None else snapshot.layout.attributions.get(uuid)


def _affected(
    one: KnownFault, devices: Sequence[DeviceStatus], attribution: Attribution | None
) -> dict[str, Any]:
    """Return who holds or uses a device; of a conflict first the pods whose claims contradict."""
    found = [_container(each, "held") for device in devices for each in device.holders or ()]
    found += [_container(each, "used") for device in devices for each in device.users]
    more = sum(each.holders_left_out + each.users_left_out for each in devices)
    if one.key.kind == "conflict" and attribution is not None:
        claimants = [_claimant(pod) for pod in attribution.conflicting_pods]
        known = _pods(claimants)
        found = [*claimants, *(each for each in found if not known & _pods([each]))]
    return _limited(list(dict.fromkeys(found)), more)


def _container(one: ContainerStatus, part: Literal["held", "used"]) -> AffectedStatus:
    return AffectedStatus(
        namespace=one.namespace, pod=one.pod, container=one.container, uid=one.uid, part=part
    )


def _pods(containers: Sequence[ContainerStatus]) -> set[object]:
    """Return what identifies the pods of containers: namespace and name, and uid."""
    found: set[object] = {(each.namespace, each.pod) for each in containers if each.pod}
    return found | {each.uid for each in containers if each.uid}


def _unclaimed(status: StatusDocument, status_input: StatusInput) -> Iterator[ProblemStatus]:
    """Yield a problem for each device that containers use for a minute without a claim.

    While a source of claims does not report, containers only seem to have none.
    """
    of_claims = [each for each in status.sources if each.confirmed_seconds is not None]
    if any(each.state != "up" or (each.confirmed_seconds or 0) > SILENT for each in of_claims):
        return
    for gpu in status.gpus or ():
        for device in (gpu, *gpu.instances):
            where = (
                device_name(gpu, device) if isinstance(device, InstanceStatus) else gpu_name(gpu)
            )
            found = list(_without_claim(device, status_input))
            if found:
                since = max(min(at for _, at in found), 0)
                yield ProblemStatus(
                    kind="unclaimed_use",
                    severity="info",
                    where=where,
                    device=device.uuid,
                    text=f"{where}: containers use it without holding it",
                    advice=UNCLAIMED_ADVICE,
                    since=date(since),
                    since_known=True,
                    **_limited([one for one, _ in found], device.users_left_out),
                )


def _without_claim(
    device: DeviceStatus, status_input: StatusInput
) -> Iterator[tuple[AffectedStatus, int]]:
    """Yield each container that has used a device without a claim for a while, with its start."""
    snapshot = status_input.snapshot
    usage = None if snapshot is None else snapshot.usage
    account = None if usage is None else usage.devices.get(device.uuid)
    attribution = _attribution(snapshot, device.uuid)
    if account is None or attribution is None or device.holders is None:
        return
    claimants = _pods([_claimant(pod) for pod in attribution.conflicting_pods])
    starts = {
        tuple(names(one.subject).values()): _unheld_since(one)
        for one in account.containers
        if one.ended is None
    }
    for user in device.users:
        start = starts.get((user.namespace, user.pod, user.container, user.uid))
        if start is None or start.seconds_until(status_input.now) < UNCLAIMED_SECONDS:
            continue
        if not claimants & _pods([user]):
            yield _container(user, "used"), status_input.now.wall_of(start)


def _unheld_since(one: ContainerUsage) -> Instant:
    """Return since when a container uses a device without a claim: its held time came before."""
    if one.holding is None:
        return one.start
    start, held_ns = one.holding.start, one.holding.held_ns
    return Instant(start.mono_ns + held_ns, start.wall_ns + held_ns)


def _limited(found: list[AffectedStatus], more: int = 0) -> dict[str, Any]:
    return {
        "containers": tuple(found[:MOST_AFFECTED]),
        "containers_left_out": max(len(found) - MOST_AFFECTED, 0) + more,
    }


def _claimant(pod: str) -> AffectedStatus:
    """Return an owner of a conflict: `namespace/name`, a uid without a name, or `job 1234`."""
    namespace, slash, name = pod.partition("/")
    known = {"namespace": namespace, "pod": name} if slash else {"uid": pod}
    if pod.startswith(("job ", "container ")):  # no pod has a blank in its name
        known = {"pod": pod}
    empty = dict.fromkeys(("namespace", "pod", "container", "uid"))
    return AffectedStatus(**{**empty, **known}, part="claims")


def _xids(status: StatusDocument, status_input: StatusInput) -> Iterator[ProblemStatus]:
    """Yield a problem for each code of each GPU, from counters and remembered errors."""
    remembered: dict[str, dict[int, KnownXid]] = {}
    for one in status_input.past.xids:
        remembered.setdefault(one.gpu, {})[one.code] = one
    for gpu in status.gpus or ():
        counted = {one.code: one for one in gpu.xids}
        errors: Mapping[int, KnownXid] = remembered.get(gpu.uuid, {})
        for code in dict.fromkeys((*counted, *errors)):
            found = _xid(gpu, code, counted.get(code), errors.get(code), status_input)
            if found is not None:
                yield found


def _xid(
    gpu: GpuStatus,
    code: int,
    counted: XidStatus | None,
    error: KnownXid | None,
    status_input: StatusInput,
) -> ProblemStatus | None:
    known = XIDS.get(code)
    severity, limit = _weight(known)
    times = [] if counted is None or counted.last_seen is None else [counted.last_seen]
    if error is not None:
        times.append(date(status_input.now.wall_of(error.at)))
    last = max(times, default=None)
    if severity is None or last is None or _age(last, status_input) > limit:
        return None
    where = gpu_name(gpu)
    meaning = UNLISTED_XID if known is None else known.meaning
    count = counted.errors if counted is not None else None
    often = f", {count} times since podgpu started" if count is not None and count > 1 else ""
    if known is not None and known.alert == "hardware":
        often += _return(gpu, last, status_input)
    victims = [] if error is None else [_victim(one) for one in error.victims]
    advice = UNLISTED_XID_ADVICE if known is None else known.advice
    return ProblemStatus(
        kind="xid",
        severity=severity,
        where=where,
        device=gpu.uuid,
        text=f"{where}: XID {code}, {meaning}{often}",
        advice=advice,
        since=last,
        since_known=True,
        **_limited(victims[::-1], 0 if error is None else error.victims_left_out),
    )


def _return(gpu: GpuStatus, last: datetime, status_input: StatusInput) -> str:
    """Return that a GPU which was lost has responded again since an error; else an empty text."""
    at = status_input.past.returned.get(gpu.uuid)
    if at is None or gpu.state != "up" or date(status_input.now.wall_of(at)) < last:
        return ""
    return "; the GPU responds again, and can fail again"


def _weight(known: Xid | None) -> tuple[Any, float]:
    """Return the severity of a code, None if it is no problem, and for how many seconds."""
    if known is None:
        return "info", HARDWARE_SECONDS
    if known.alert == "hardware":
        return "critical", HARDWARE_SECONDS
    if known.alert in {"memory", "fabric"}:
        return "warning", HARDWARE_SECONDS
    if known.alert == "application":
        return "info", PROGRAM_SECONDS
    if known.action in {"none", "unknown"}:
        return None, 0
    if known.action in {"follow_procedure", "see_recovery_action", "restart_app"}:
        return "info", PROGRAM_SECONDS
    return "warning", HARDWARE_SECONDS


def _age(last: datetime, status_input: StatusInput) -> float:
    return status_input.now.wall_ns / NS - last.timestamp()


def _victim(one: XidVictim) -> AffectedStatus:
    part = "caused" if one.caused else "used" if one.uses else "held"
    return AffectedStatus(**names(one.subject), part=part)  # type: ignore[arg-type]
