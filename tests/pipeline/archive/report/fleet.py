"""Nodes with ledgers and an archive, as podgpu writes them, and the sum of the nodes' reports."""

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from pipeline.archive.compaction import compact
from pipeline.archive.database import open_database
from pipeline.archive.object_merge import ParquetMerge
from pipeline.archive.object_store import ObjectStore
from pipeline.archive.raw_object import put_rows
from pipeline.ledger.batch_writer import BatchWriter
from pipeline.ledger.file_open import open_readonly
from pipeline.ledger.outbox import first_object, remove_object
from pipeline.ledger.queries import read_window
from pipeline.ledger.reports import GroupBy, GroupedUsage, GroupKey
from pipeline.ledger.reports.groups import Parts, group_keys
from pipeline.ledger.reports.window_groups import grouped
from pipeline.ledger.schema import HOUR_NS
from pipeline.ledger.sealing import seal
from pipeline.ledger.usage_delta import Amounts
from pipeline.ledger.write_batch import Batch, HoldingRow
from pipeline.ledger.writer_open import open_readwrite
from pipeline.model import Device, Instant, PartialRef, PodInfo, container_uid, job_uid
from pipeline.model.ledger_usage import DeviceTotal, Gap, UsageWindow
from tests.support.nodes import gpu, mig
from tests.support.usage import holding

NOON: Final = 500_000 - 500_000 % 24 + 12
"""The hour at which a node's time begins: noon, UTC."""

_WORKLOADS: Final = {"pod": "Job", "job": "User", "container": "ComposeProject"}


Gain = tuple[int, int | None, int | None]
"""Held time, busy time and energy."""


@dataclass
class LedgerNode:
    """A node with two GPUs, a MIG instance, and a ledger.

    Attributes:
        name: name of the node.
        folder: folder for the ledger.
        cluster: name of the cluster.
        slurm: name of the Slurm cluster; empty for one of this node only.
    """

    name: str
    folder: Path
    cluster: str = "east"
    slurm: str = ""
    now_ns: int = NOON * HOUR_NS
    holdings: int = 0
    devices: tuple[Device, ...] = field(init=False)

    def __post_init__(self) -> None:
        found = [gpu(0), gpu(1)]
        found = [replace(one, uuid=f"{one.uuid}-{self.name}") for one in found]
        instance = mig(found[1], 1)
        self.devices = (*found, replace(instance, uuid=f"{instance.uuid}-{self.name}"))
        self.path = self.folder / f"{self.name}.db"
        self._connection = open_readwrite(self.path, "normal")
        self._connection.execute("INSERT OR REPLACE INTO meta VALUES ('node', ?)", (self.name,))
        self._writer = BatchWriter(self._connection)

    def close(self) -> None:
        self._connection.close()

    def subject(self, pod: str, container: str = "main", *, named: bool = True) -> PartialRef:
        """Return a container of a pod, or a job or a container without a pod.

        The name of a job is its id. The name of a container without a pod begins with `box`. UIDs
        are unique in a cluster.
        """
        if pod.isdigit():
            slurm = self.slurm or self.name
            uid = job_uid(slurm, pod, 1_800_000_000)
            return PartialRef(slurm, pod, uid=uid) if named else PartialRef(uid=uid)
        if pod.startswith("box"):
            uid = container_uid("docker", f"{pod}-{self.name}")
            return PartialRef(pod=pod, uid=uid) if named else PartialRef(uid=uid)
        namespace = "ml" if pod < "c" else "web"
        uid = f"u-{pod}-{self.name}"
        return PartialRef(namespace, pod, container, uid) if named else PartialRef(uid=uid)

    def use(  # noqa: PLR0917 - as a row of a table
        self,
        hour: int,
        who: PartialRef | None,
        gain: Gain,
        device: int = 0,
        rest: Gain = (0, 0, 0),
        unknown: int = 0,
        gap: int = 0,
    ) -> None:
        """Add a gain of a container in an hour, the unattributed rest of it, and a gap."""
        batch, uuid = self._batch(), self.devices[device].uuid
        if who is not None:
            # Some of its busy time is contested; that of every seventh hour is not known.
            contested = None if hour % 7 == 0 else (gain[1] or 0) // 3
            switching = None if contested is None else contested // 5
            batch.add(hour, uuid, who, Amounts(*gain, contested, switching))
        batch.add(hour, uuid, None, Amounts(*rest))
        batch.unknown_hours[hour, uuid] += unknown
        batch.gap_hours[hour, uuid] += gap
        self._writer.write_batch(batch)

    def describe(self, subject: PartialRef, owner: str, labels: dict[str, str]) -> None:
        """Report the workload and the labels of a pod."""
        pairs = tuple(sorted(labels.items()))
        kind = _WORKLOADS[subject.kind] if owner else ""
        info = PodInfo(
            subject.uid,
            subject.namespace,
            subject.pod,
            owner_kind=kind,
            owner_name=owner,
            labels=pairs,
        )
        batch = self._batch()
        batch.pods[subject] = info
        self._writer.write_batch(batch)

    def hold(self, pod: str, start_ns: int, end_ns: int, device: int = 0, **amounts: Any) -> None:
        """Write a holding that has ended."""
        self.holdings += 1
        own_id = f"holding-{self.holdings}"
        start, end = Instant(start_ns, start_ns), Instant(end_ns, end_ns)
        subject = self.subject(pod)
        made = holding(
            pod,
            self.devices[device],
            namespace=subject.namespace,
            container=subject.container,
            uid=subject.uid,
            start=start,
            end=end,
            own_id=own_id,
            **({"held": end_ns - start_ns} | amounts),
        )
        batch = self._batch()
        batch.holdings[own_id] = HoldingRow(made, start_ns, end_ns)
        self._writer.write_batch(batch)

    def gap(self, name: str, start_ns: int, end_ns: int, reason: str, device: int = 0) -> None:
        """Write a gap."""
        batch = self._batch()
        batch.gaps[name] = Gap(self.devices[device].uuid, start_ns, end_ns, reason)
        self._writer.write_batch(batch)

    def archive(self, store: ObjectStore, work: Path) -> None:
        """Write what is closed to the archive."""
        with open_database(work) as database:
            while True:
                while (found := first_object(self._connection)) is not None:
                    put_rows(store, database, found.rows, work)
                    remove_object(self._connection, found)
                if not seal(self._connection, self.cluster, self.name, self.now_ns):
                    return

    def window(self, start_ns: int, end_ns: int, changes: Sequence[int] = ()) -> UsageWindow:
        with closing(open_readonly(self.path)) as connection:
            return read_window(connection, start_ns, end_ns, changes)

    def _batch(self) -> Batch:
        return Batch(devices={one.uuid: one for one in self.devices})


def compact_all(store: ObjectStore, work: Path) -> None:
    """Compact all days of an archive."""
    with open_database(work) as database:
        compact(store, ParquetMerge(database), work, closed=lambda _: True)


def summed(
    nodes: Iterable[LedgerNode],
    span: tuple[int, int],
    by: GroupBy,
    changes: Sequence[int] = (),
    *,
    clusters: bool = True,
) -> list[GroupedUsage]:
    """Return the usage of all nodes, grouped by each node's own report.

    Args:
        nodes: the nodes.
        span: start and end.
        by: how to group it.
        changes: when prices change.
        clusters: whether the clusters are known, as in an archive.
    """
    found = []
    for node in nodes:
        cluster = node.cluster if clusters else ""
        own_by = GroupBy("device") if by.kind in ("node", "cluster") else by
        for one in grouped(node.window(*span, changes), own_by):
            key = None if one.key is None else _placed(one.key, by, cluster, node.name)
            since = one.price.since_ns if changes else span[0] // HOUR_NS * HOUR_NS
            price = replace(one.price, cluster=cluster, since_ns=since)
            found.append(replace(one, key=key, price=price))
    return found


def named(
    usage: Iterable[GroupedUsage], by: GroupBy, totals: Sequence[DeviceTotal]
) -> list[GroupedUsage]:
    """Return usage with the names of its groups in a report, which decide the order of equals."""
    found = list(usage)
    parts = dict.fromkeys(one.key.parts for one in found if one.key is not None)
    keys = {key.parts: key for key in group_keys(by, parts, totals)}
    return [one if one.key is None else replace(one, key=keys[one.key.parts]) for one in found]


def _placed(key: GroupKey, by: GroupBy, cluster: str, node: str) -> GroupKey:
    place: Parts = (cluster or None, node)
    parts = {
        "node": place,
        "cluster": place[:1],
        "pod": (*place, *key.parts),
        "job": (*(place if any(key.parts) else (None,))[:1], *key.parts),
        "device": (*place, *key.parts),
    }.get(by.kind, key.parts)
    return GroupKey(parts, "")
