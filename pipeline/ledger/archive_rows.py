"""Rows of the archive, made from rows of the ledger: with names instead of ids."""

import sqlite3
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

from pipeline.ledger.gpu_indexes import read_gpu_indexes
from pipeline.ledger.sample_mark import sample_maker
from pipeline.ledger.schema import HOUR_NS, LEDGER_ID_KEY, UNATTRIBUTED_ID

_DAY_SECONDS: Final = 24 * 3600

_AMOUNTS: Final = MappingProxyType(
    {
        "usage": ("held_ns", "busy_ns", "energy_mj", "contested_ns", "switching_ns"),
        "device": ("accounted_ns", "gap_ns", "busy_ns", "energy_mj", "unknown_ns"),
    }
)
_HOLDING: Final = (
    "start_ns", "end_ns", "source", "evidence", "counted_ns", "gap_ns", "held_ns", "busy_ns",
    "energy_mj", "memory_peak_bytes", "memory_mean_bytes", "busy_mean_ppm", "busy_peak_ppm",
    "xids", "contested_ns", "switching_ns",
)  # fmt: skip
_GAP: Final = ("start_ns", "end_ns", "reason")
_ITEMS: Final = MappingProxyType(
    {
        "holding": f"SELECT device, container, {', '.join(_HOLDING)} FROM holdings WHERE id = ?",  # noqa: S608
        "gap": f"SELECT device, {', '.join(_GAP)} FROM gaps WHERE id = ?",  # noqa: S608
    }
)
_FACTS: Final = (
    "SELECT namespace, pod, container, uid, owner_kind, owner_name, labels, labels_cut "
    "FROM containers WHERE id = ?"
)
_TEXTS: Final = frozenset({"source", "evidence", "xids", "reason"})
_OPTIONAL: Final = frozenset(
    {
        "busy_ns", "energy_mj", "unknown_ns", "end_ns", "memory_peak_bytes", "memory_mean_bytes",
        "busy_mean_ppm", "busy_peak_ppm", "contested_ns", "switching_ns",
    }
)  # fmt: skip


class RowMaker:
    """Makes rows of the archive, without serials and without columns that are NULL.

    Args:
        connection: a connection to the ledger, in a transaction.
        cluster: name of the cluster.
        node: name of the node.

    Attributes:
        container_days: id of each container in a row so far, with the day of the row as the number
            of days since the Unix epoch.

    Raises:
        sqlite3.Error: the file cannot be read.
        ValueError: the file contains an invalid value.
    """

    def __init__(self, connection: sqlite3.Connection, cluster: str, node: str) -> None:
        run = connection.execute
        self.container_days: set[tuple[int, int]] = set()
        self._connection = connection
        (ledger,) = run("SELECT value FROM meta WHERE key = ?", (LEDGER_ID_KEY,)).fetchone()
        self._base: dict[str, Any] = {"cluster": cluster, "node": node, "ledger": ledger}
        if maker := sample_maker(connection):
            self._base["sample_data"] = maker
        indexes = read_gpu_indexes(connection)
        self._devices: dict[int, dict[str, Any]] = {}
        for own_id, uuid, model, profile, gpu in run("SELECT * FROM devices"):
            facts = {"device": uuid, "gpu": gpu, "model": model, "profile": profile}
            index = {"gpu_index": indexes[gpu]} if gpu in indexes else {}
            self._devices[own_id] = facts | index
        self._facts: dict[int, tuple[Any, ...]] = {}

    def amounts(self, kind: str, row: Sequence[Any]) -> dict[str, Any]:
        """Return the row of an hour.

        Args:
            kind: `usage` or `device`.
            row: hour, id of the device, of a row `usage` id of the container, and the amounts.

        Raises:
            KeyError, OverflowError, TypeError, ValueError: a value is invalid.
        """
        hour, device, *amounts = row
        day = hour // 24
        made = self._base | {"row": kind, "day": _day(day), "hour": _hour(hour)}
        made |= self._devices[device]
        if kind == "usage":
            made |= self._names(amounts.pop(0), day)
        return made | _checked(_AMOUNTS[kind], amounts)

    def item(self, item: str, own_id: str) -> dict[str, Any] | None:
        """Return the row of a holding or a gap; None if the ledger does not have it.

        The row of a holding that has not ended has no `end_ns` and no day.

        Args:
            item: `holding` or `gap`.
            own_id: its id.

        Raises:
            KeyError, OverflowError, TypeError, ValueError: a value is invalid.
        """
        found = self._connection.execute(_ITEMS[item], (own_id,)).fetchone()
        if found is None:
            return None
        device, *rest = found
        container = rest.pop(0) if item == "holding" else UNATTRIBUTED_ID
        values = _checked(_HOLDING if item == "holding" else _GAP, rest)
        made = self._base | {"row": item, item: own_id} | self._devices[device] | values
        if "end_ns" in values:
            day = values["end_ns"] // (24 * HOUR_NS)
            made |= {"day": _day(day)} | self._names(container, day)
        return made

    def withdrawal(self, item: str, own_id: str, day: int) -> dict[str, Any]:
        """Return the row that withdraws the earlier row of a holding or a gap.

        Args:
            item: `holding` or `gap`.
            own_id: its id.
            day: the day of the earlier row.
        """
        return self._base | {"row": item, item: own_id, "day": _day(day)}

    def facts(self, container: int, day: int) -> dict[str, Any]:
        """Return the row with the facts of a container on a day.

        Raises:
            KeyError, OverflowError, TypeError, ValueError: a value is invalid.
        """
        *_, kind, name, labels, cut = self._container(container)
        values = {"owner_kind": kind, "owner_name": name, "labels": labels, "labels_cut": cut}
        names = self._names(container, day)
        return self._base | {"row": "container", "day": _day(day)} | names | values

    def _names(self, container: int, day: int) -> dict[str, Any]:
        if container == UNATTRIBUTED_ID:
            return {}
        self.container_days.add((container, day))
        namespace, pod, name, uid, *_ = self._container(container)
        return {"namespace": namespace, "pod": pod, "container": name, "pod_uid": uid}

    def _container(self, own_id: int) -> tuple[Any, ...]:
        known = self._facts.get(own_id)
        if known is None:
            known = self._connection.execute(_FACTS, (own_id,)).fetchone()
            if known is None:
                raise KeyError(own_id)
            *texts, cut = known
            if not (isinstance(cut, int) and all(isinstance(text, str) for text in texts)):
                raise TypeError(f"container {own_id}")
            self._facts[own_id] = known
        return known


def is_withdrawal(row: Mapping[str, Any]) -> bool:
    """Whether a row withdraws the earlier row of a holding or a gap."""
    return row["row"] in _ITEMS and "end_ns" not in row


def _checked(names: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    """Return the values that are known, after a check of their types, which SQLite does not do."""
    found = dict(zip(names, values, strict=True))
    for name, value in found.items():
        is_text = name in _TEXTS
        if not isinstance(value, str if is_text else int) and not (
            value is None and name in _OPTIONAL
        ):
            raise TypeError(f"{name} of type {type(value).__name__}")
    return {name: value for name, value in found.items() if value is not None}


@lru_cache(maxsize=64)
def _day(day: int) -> str:
    return f"{datetime.fromtimestamp(day * _DAY_SECONDS, UTC):%Y-%m-%d}"


@lru_cache(maxsize=64)
def _hour(hour: int) -> str:
    return f"{datetime.fromtimestamp(hour * 3600, UTC):%Y-%m-%dT%H:00:00Z}"
