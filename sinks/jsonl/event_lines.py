"""Encode events as JSON lines: ended holdings and XID errors."""

from typing import Any

from pipeline.changes.change_feed import XidChange
from pipeline.changes.descriptions import figures, holding_id, meaning
from pipeline.model import Holding, Snapshot, XidVictim
from sinks.jsonl import json_objects
from sinks.jsonl.json_text import json_line, rfc3339


def holding_line(node: str, holding: Holding, snapshot: Snapshot) -> bytes:
    """Return the line of a holding that has ended.

    Args:
        node: the node's name.
        holding: the holding.
        snapshot: the newest snapshot, for times and properties of the device.
    """
    wall_of, end = snapshot.at.wall_of, holding.end or holding.start
    fields: dict[str, Any] = {
        "record": "holding",
        "time": rfc3339(wall_of(end)),
        "node": node,
        "id": holding_id(holding),
        "device": _device(holding.device, snapshot),
        **json_objects.container(holding.subject, holding.pod),
    }
    if holding.source:
        fields["source"] = holding.source
    if holding.evidence is not None:
        fields["evidence"] = holding.evidence.name.lower()
    fields["start"] = rfc3339(wall_of(holding.start))
    fields["end"] = rfc3339(wall_of(end))
    fields |= figures(holding)
    if holding.xids:
        fields["xids"] = [{"xid": code, "count": count} for code, count in holding.xids]
    return json_line(fields)


def error_line(node: str, change: XidChange, snapshot: Snapshot) -> bytes:
    """Return the line of an XID error.

    Args:
        node: the node's name.
        change: the error, and whether it completes an earlier line.
        snapshot: the newest snapshot, for times and properties of the device.
    """
    error = change.error
    fields: dict[str, Any] = {
        "record": "xid_error",
        "time": rfc3339(snapshot.at.wall_of(error.at)),
        "node": node,
        "id": change.id,
        "device": _device(error.device, snapshot),
        "xid": error.code,
    }
    if change.is_update:
        fields["update"] = True
    if description := meaning(error.code):
        fields["meaning"] = description
    if error.pid is not None:
        fields["pid"] = error.pid
    if error.process:
        fields["process"] = error.process
    fields["victims"] = [_victim(victim) for victim in error.victims]
    return json_line(fields)


def _device(uuid: str, snapshot: Snapshot) -> dict[str, Any]:
    attribution = snapshot.layout.attributions.get(uuid)
    return {"uuid": uuid} if attribution is None else json_objects.device(attribution.device)


def _victim(victim: XidVictim) -> dict[str, Any]:
    return {
        **json_objects.container(victim.subject, victim.pod),
        "device": victim.device,
        "holds": victim.holds,
        "uses": victim.uses,
        "caused": victim.caused,
    }
