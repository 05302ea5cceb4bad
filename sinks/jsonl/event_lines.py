"""Lines of what has happened: a holding that ended, an XID error."""

from typing import Any

from pipeline.changes.change_feed import XidChange
from pipeline.changes.descriptions import figures, holding_id, meaning
from pipeline.model import Holding, Snapshot, XidVictim
from sinks.jsonl import json_objects
from sinks.jsonl.json_text import json_line, rfc3339


class EventLines:
    """Makes a line of each.

    Args:
        node: the node's name.
    """

    def __init__(self, node: str) -> None:
        self._node = node

    def holding(self, holding: Holding, snapshot: Snapshot) -> bytes:
        """Return the line of a holding that ended.

        Args:
            holding: it.
            snapshot: the newest; knows the device, if it is still there.
        """
        wall_of, end = snapshot.at.wall_of, holding.end or holding.start
        told: dict[str, Any] = {
            "record": "holding",
            "time": rfc3339(wall_of(end)),
            "node": self._node,
            "id": holding_id(holding),
            "device": _device(holding.device, snapshot),
            **json_objects.container(holding.subject, holding.pod),
        }
        if holding.source:
            told["source"] = holding.source
        if holding.evidence is not None:
            told["evidence"] = holding.evidence.name.lower()
        told["start"] = rfc3339(wall_of(holding.start))
        told["end"] = rfc3339(wall_of(end))
        told |= figures(holding)
        if holding.xids:
            told["xids"] = [{"xid": code, "count": count} for code, count in holding.xids]
        return json_line(told)

    def error(self, one: XidChange, snapshot: Snapshot) -> bytes:
        """Return the line of an XID error.

        Args:
            one: it, and whether it has had a line before, which lacks something.
            snapshot: knows the device, if it is still there.
        """
        error = one.error
        told: dict[str, Any] = {
            "record": "xid_error",
            "time": rfc3339(snapshot.at.wall_of(error.at)),
            "node": self._node,
            "id": one.id,
            "device": _device(error.device, snapshot),
            "xid": error.code,
        }
        if one.is_update:
            told["update"] = True
        if about := meaning(error.code):
            told["meaning"] = about
        if error.pid is not None:
            told["pid"] = error.pid
        if error.process:
            told["process"] = error.process
        told["victims"] = [_victim(victim) for victim in error.victims]
        return json_line(told)


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
