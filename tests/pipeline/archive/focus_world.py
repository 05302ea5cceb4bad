"""A small archive for tests of FOCUS exports: its rows, and the export of a price file."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from config.loader import parse_struct
from config.price_file import PriceFile
from config.time_zones import zone
from pipeline.archive.database import Database, open_database
from pipeline.archive.focus_rows import FocusExport, columns, create_focus, focus_rows
from pipeline.archive.parquet_file import read_query, write_rows
from pipeline.archive.row_columns import canonical_line, day_of_hour, hour_text
from pipeline.ledger.reports.price_list import PriceList

HOUR: Final = 3_600 * 10**9
H200: Final = "NVIDIA H200"

PRICES: Final = """
currency: EUR
provider: Example GPU platform
gpu_hour:
  - model: NVIDIA H200
    prices: {2026-01-01: 2.50, 2026-10-03: 2.8}
  - prices: {2026-01-01: 1.15}
free_gpu_hour:
  - cluster: lab
    prices: {2026-01-01: 0}
kwh:
  - prices: {2026-01-01: 0.31}
"""


def hour(*parts: int) -> int:
    """Return the number of an hour since the Unix epoch."""
    return int(datetime(*parts, tzinfo=UTC).timestamp()) // 3600  # type: ignore[misc, arg-type]


class Rows:
    """Rows of one ledger, with serials."""

    def __init__(self, cluster: str = "prod", node: str = "node-1", ledger: str = "a" * 16) -> None:
        self.rows: list[dict[str, Any]] = []
        self._origin = {"cluster": cluster, "node": node, "ledger": ledger}

    def add(self, row: str, at: int, **values: Any) -> None:
        """Add a row; values that are None are left out."""
        known = {key: value for key, value in values.items() if value is not None}
        base = {"serial": len(self.rows) + 1, "row": row, "day": f"{day_of_hour(at)}"}
        self.rows.append(self._origin | base | known)

    def hour(
        self,
        at: int,
        device: Mapping[str, Any],
        users: Iterable[tuple[str, int, int | None, int | None]],
        *,
        unheld_ns: int = 0,
        unknown_ns: int = 0,
        energy_mj: int | None = None,
    ) -> None:
        """Add the rows of a device in an hour.

        Args:
            at: the hour.
            device: the columns of the device.
            users: of each container `namespace/pod`, held time, busy time and energy.
            unheld_ns: time that no container held.
            unknown_ns: the part of it with an unknown holder.
            energy_mj: energy of no container.
        """
        when = {"hour": hour_text(at), **device}
        for name, held, busy, energy in users:
            pod = _pod(name)
            self.add("usage", at, **when, **pod, held_ns=held, busy_ns=busy, energy_mj=energy)
        self.add("usage", at, **when, held_ns=unheld_ns, energy_mj=energy_mj)
        self.add("device", at, **when, accounted_ns=HOUR, gap_ns=0, unknown_ns=unknown_ns)

    def container(self, at: int, name: str, owner: str = "", labels: str = "{}") -> None:
        """Add the facts of a container, whose owner is `Kind/name` or empty."""
        kind, _, own = owner.partition("/")
        facts = {"owner_kind": kind, "owner_name": own, "labels": labels, "labels_cut": 0}
        self.add("container", at, **_pod(name), **facts)


def _pod(name: str) -> dict[str, str]:
    namespace, pod = name.split("/")
    return {"namespace": namespace, "pod": pod, "container": "main", "pod_uid": f"u-{pod}"}


def gpu(index: int, model: str = H200) -> dict[str, Any]:
    """Return the columns of a GPU."""
    uuid = f"GPU-{index:08}"
    return {"device": uuid, "gpu": uuid, "gpu_index": index, "model": model, "profile": ""}


def instance(index: int, number: int, profile: str, model: str = H200) -> dict[str, Any]:
    """Return the columns of a MIG instance."""
    return gpu(index, model) | {"device": f"MIG-{index:08}-{number}", "profile": profile}


def prices_of(text: str = PRICES) -> PriceList:
    """Return the prices of a price file."""
    return PriceList.of_file(parse_struct(text, PriceFile, origin="prices.yaml"))


def export_of(
    start: int = hour(2026, 10, 1), end: int = hour(2026, 11, 1), **changes: Any
) -> FocusExport:
    """Return an export of a span of hours."""
    tz = zone(changes.pop("tz", "UTC"))
    prices = prices_of(changes.pop("prices", PRICES))
    hourly = bool(changes.pop("hourly", False))
    return FocusExport(start * HOUR, end * HOUR, tz, hourly, prices)


class Archive(NamedTuple):
    """An open archive.

    Attributes:
        database: a database.
        days: the query of the rows of each day.
    """

    database: Database
    days: Mapping[date, str]


@contextmanager
def archive_of(folder: Path, *ledgers: Rows) -> Iterator[Archive]:
    """Open an archive with the rows of some ledgers."""
    with open_database(folder) as database:
        files: dict[date, list[Path]] = {}
        for number, each in enumerate(ledgers):
            for day in {row["day"] for row in each.rows}:
                path = folder / f"{number}-{day}.parquet"
                lines = [canonical_line(row) for row in each.rows if row["day"] == day]
                write_rows(database, lines, path)
                files.setdefault(date.fromisoformat(day), []).append(path)
        yield Archive(database, {day: read_query(paths) for day, paths in files.items()})


def exported(archive: Archive, export: FocusExport) -> list[dict[str, Any]]:
    """Return the rows of an export, by column."""
    create_focus(archive.database, archive.days, export)
    names = columns(archive.database)
    found = focus_rows(archive.database, export)
    return [dict(zip(names, row, strict=True)) for part in found for row in part]


def month_of_two_clusters() -> tuple[Rows, Rows]:
    """Return usage of two clusters in October 2026: shared GPUs, MIG, free and unknown time."""
    prod, lab = Rows(), Rows("lab", "node-7", "b" * 16)
    labels = '{"team":"nlp","app.kubernetes.io/name":"train"}'
    for day in (1, 2, 3, 31):
        at = hour(2026, 10, day, 12)
        prod.container(at, "ml/train-0", "StatefulSet/train", labels)
        prod.hour(
            at, gpu(0),
            [("ml/train-0", HOUR // 3, HOUR // 4, 700_001), ("web/serve", HOUR // 3, None, None)],
            unheld_ns=HOUR - 2 * (HOUR // 3), energy_mj=33,
        )  # fmt: skip
        prod.hour(at + 1, gpu(0), [], unheld_ns=HOUR, unknown_ns=HOUR // 5, energy_mj=250_000)
        prod.hour(at, instance(1, 7, "2g.35gb"), [("ml/train-0", HOUR, 7, None)])
        prod.hour(at, gpu(1), [], energy_mj=1_400_000)
        short = [("dev/=cmd", 1, 1, 1), ("dev/shell", HOUR // 7, None, 5)]
        lab.hour(at, gpu(0, "NVIDIA L4"), short, unheld_ns=HOUR - HOUR // 7 - 1)
    return prod, lab
