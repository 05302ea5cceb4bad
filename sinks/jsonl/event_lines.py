"""Encode events as JSON lines: ended holdings and XID errors."""

from typing import Any

from pipeline.changes.descriptions import action, figures, holding_id, meaning
from pipeline.changes.unreported_changes import XidChange
from pipeline.model import Holding, Snapshot, XidVictim
from sinks.jsonl.json_values import container_object, device_object, json_line, rfc3339


def holding_line(node: str, holding: Holding, snapshot: Snapshot) -> bytes:
    """Return the line of a holding that has ended.

    Args:
        node: the node's name.
        holding: the holding.
        snapshot: the newest snapshot, for times and properties of the device.
    """
    wall_of, end = snapshot.at.wall_of, holding.end or holding.start
    return json_line(
        {
            "record": "holding",
            "time": rfc3339(wall_of(end)),
            "node": node,
            "id": holding_id(holding),
            "device": _device(holding.device, snapshot),
            **container_object(holding.subject, holding.pod),
            "source": holding.source or None,
            "evidence": None if holding.evidence is None else holding.evidence.name.lower(),
            "start": rfc3339(wall_of(holding.start)),
            "end": rfc3339(wall_of(end)),
            **dict(figures(holding)),
            "xids": [{"xid": code, "count": count} for code, count in holding.xids] or None,
        }
    )


def error_line(node: str, change: XidChange, snapshot: Snapshot) -> bytes:
    """Return the line of an XID error.

    Args:
        node: the node's name.
        change: the error, and whether it completes an earlier line.
        snapshot: the newest snapshot, for times and properties of the device.
    """
    error = change.error
    return json_line(
        {
            "record": "xid_error",
            "time": rfc3339(snapshot.at.wall_of(error.at)),
            "node": node,
            "id": change.id,
            "device": _device(error.device, snapshot),
            "xid": error.code,
            "update": change.is_update or None,
            "meaning": meaning(error.code) or None,
            "action": action(error.code) or None,
            "pid": error.pid,
            "process": error.process or None,
            "victims": [_victim(victim) for victim in error.victims],
        }
    )


def _device(uuid: str, snapshot: Snapshot) -> dict[str, Any]:
    attribution = snapshot.layout.attributions.get(uuid)
    return {"uuid": uuid} if attribution is None else device_object(attribution.device)


def _victim(victim: XidVictim) -> dict[str, Any]:
    return {
        **container_object(victim.subject, victim.pod),
        "device": victim.device,
        "holds": victim.holds,
        "uses": victim.uses,
        "caused": victim.caused,
    }
