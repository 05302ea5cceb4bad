"""List what needs attention on a node, in words with the advised action, the most severe first."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from msgspec.structs import replace

from pipeline.fields.xid_catalogue import XIDS, Xid
from pipeline.model import NS, Attribution, Snapshot, XidVictim
from pipeline.status_page.component_problems import component_problems
from pipeline.status_page.container_use import names
from pipeline.status_page.daemon_state import StatusInput, date
from pipeline.status_page.display_text import device_name, gpu_name
from pipeline.status_page.fault_memory import KnownFault, KnownXid
from pipeline.status_page.fault_texts import UNLISTED_XID, UNLISTED_XID_ADVICE, fault_text
from pipeline.status_page.status_document import GpuStatus, StatusDocument, XidStatus
from pipeline.status_page.use_format import AffectedStatus, ProblemStatus

MOST_PROBLEMS: Final = 256
"""Maximum number of problems in a document: the most severe ones. Further ones are counted."""

MOST_AFFECTED: Final = 16
"""Maximum number of containers of a problem."""

HARDWARE_SECONDS: Final = 3600.0
"""Seconds after its last error during which an XID is a problem. As in the shipped alerts."""

PROGRAM_SECONDS: Final = 600.0
"""The same for errors that programs mostly cause themselves."""

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
        *component_problems(status),
    ]
    found.sort(key=lambda one: _RANKS[one.severity])
    left_out = max(len(found) - MOST_PROBLEMS, 0)
    return replace(status, problems=tuple(found[:MOST_PROBLEMS]), problems_left_out=left_out)


def _faults(status: StatusDocument, status_input: StatusInput) -> Iterator[ProblemStatus]:
    shown: dict[str, str] = {}
    for gpu in status.gpus or ():
        shown[gpu.uuid] = gpu_name(gpu)
        shown |= {each.uuid: device_name(gpu, each) for each in gpu.instances}
    order = {uuid: at for at, uuid in enumerate(shown)}
    found = [one for one in status_input.past.faults if one.key.device in order]
    for one in sorted(found, key=lambda one: (order[one.key.device], one.key)):
        yield _fault(one, shown[one.key.device], status_input)


def _fault(one: KnownFault, where: str, status_input: StatusInput) -> ProblemStatus:
    age = one.since.seconds_until(status_input.now)
    severity, text, advice = fault_text(one, where, recent=age < HARDWARE_SECONDS)
    attribution = _attribution(status_input.snapshot, one.key.device)
    return ProblemStatus(
        kind=one.key.kind,
        severity=severity,
        where=where,
        device=one.key.device,
        text=text,
        advice=advice,
        since=date(status_input.now.wall_of(one.since)),
        since_known=one.since_known,
        **_affected(one, attribution),
    )


def _attribution(snapshot: Snapshot | None, uuid: str) -> Attribution | None:
    return None if snapshot is None else snapshot.layout.attributions.get(uuid)


def _affected(one: KnownFault, attribution: Attribution | None) -> dict[str, Any]:
    """Return the holders of a device; of a conflict first the pods whose claims contradict."""
    if attribution is None:
        return {}
    found = [AffectedStatus(**names(each.subject), part="held") for each in attribution.holders]
    if one.key.kind == "conflict":
        claimants = [_claimant(pod) for pod in attribution.conflicting_pods]
        known = {(each.namespace, each.pod) if each.pod else each.uid for each in claimants}
        others = [each for each in found if not known & {(each.namespace, each.pod), each.uid}]
        found = [*claimants, *others]
    return _limited(found)


def _limited(found: list[AffectedStatus], more: int = 0) -> dict[str, Any]:
    return {
        "containers": tuple(found[:MOST_AFFECTED]),
        "containers_left_out": max(len(found) - MOST_AFFECTED, 0) + more,
    }


def _claimant(pod: str) -> AffectedStatus:
    """Return a pod of a conflict: `namespace/name`, or a uid if its name is unknown."""
    namespace, slash, name = pod.partition("/")
    known = {"namespace": namespace, "pod": name} if slash else {"uid": pod}
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
