"""The archive of the examples in docs/fleet-reports.md: three nodes of two clusters, two days."""

from pathlib import Path
from typing import Final

from pipeline.archive.object_store import ObjectStore
from pipeline.ledger.schema import HOUR_NS
from tests.pipeline.archive.report.fleet import NOON, LedgerNode, compact_all

HOURS: Final = 48
_KWH_MJ: Final = 3_600_000_000
_DOWN_HOUR: Final = 20
_DOWN_NS: Final = HOUR_NS // 4

USES: Final = (
    # Node, GPU, pod, first hour, last hour, share, busy part, kilowatts.
    ("gpu-node-1", 0, "a", 0, 40, 1, 0.9, 0.6),
    ("gpu-node-1", 1, "b", 4, 30, 0.5, 0.25, 0.3),
    ("gpu-node-2", 0, "a", 10, 48, 1, 0.8, 0.55),
    ("gpu-node-2", 1, "c", 0, 48, 1, 0.3, 0.25),
    ("gpu-node-3", 0, "c", 6, 20, 0.5, None, None),
)
_CLUSTERS: Final = {"gpu-node-1": "east", "gpu-node-2": "east", "gpu-node-3": "west"}
_TEAMS: Final = {"a": "vision", "b": "nlp"}


def write_example(folder: Path) -> Path:
    """Write the archive and the ledgers; return the folder of the archive."""
    (location := folder / "archive").mkdir()
    (work := folder / "work").mkdir()
    store = ObjectStore(str(location))
    for name, cluster in _CLUSTERS.items():
        node = LedgerNode(name, folder, cluster)
        for hour in range(HOURS):
            for gpu in (0, 1):
                _write_hour(node, gpu, hour)
        for _, gpu, pod, first, last, share, busy, kilowatts in [u for u in USES if u[0] == name]:
            subject = node.subject(pod)
            team = {"team": _TEAMS[pod]} if pod in _TEAMS else {}
            node.describe(subject, {"a": "train", "b": "", "c": "serve"}[pod], team)
            start, end = (NOON + first) * HOUR_NS, (NOON + last) * HOUR_NS
            node.hold(
                pod,
                start,
                min(end, (NOON + HOURS) * HOUR_NS - 1),
                gpu,
                held=round((end - start) * share),
                busy=None if busy is None else round((end - start) * busy),
                energy=None if kilowatts is None else round((last - first) * kilowatts * _KWH_MJ),
            )
        if name == "gpu-node-2":
            for gpu in (0, 1):
                start = (NOON + _DOWN_HOUR) * HOUR_NS
                node.gap(f"down-{gpu}", start, start + _DOWN_NS, "down", gpu)
        node.now_ns += (HOURS + 1) * HOUR_NS
        node.archive(store, work)
        node.close()
    compact_all(store, work)
    return location


def _write_hour(node: LedgerNode, gpu: int, hour: int) -> None:
    """Write an hour in which at most one container holds the GPU."""
    at = NOON + hour
    found = [u for u in USES if u[0] == node.name and u[1] == gpu and u[3] <= hour < u[4]]
    idle = round(0.07 * _KWH_MJ)
    if not found:
        node.use(at, None, (0, 0, 0), gpu, (HOUR_NS, 0, idle))
        return
    _, _, pod, _, _, share, busy, kilowatts = found[0]
    gap = _DOWN_NS if (node.name, hour) == ("gpu-node-2", _DOWN_HOUR) else 0
    held = round((HOUR_NS - gap) * share)
    gain = (
        held,
        None if busy is None else round((HOUR_NS - gap) * busy),
        None if kilowatts is None else round(kilowatts * _KWH_MJ),
    )
    rest = HOUR_NS - gap - held, None if busy is None else 0, None if kilowatts is None else 0
    node.use(at, node.subject(pod), gain, gpu, rest, unknown=rest[0] if pod == "c" else 0, gap=gap)
