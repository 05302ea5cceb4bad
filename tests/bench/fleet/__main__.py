"""Write the ledgers and the archive of a simulated fleet. A run that was ended continues."""

import argparse
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.bench.fleet.archive_objects import write_node
from tests.bench.fleet.copied_nodes import copy_nodes
from tests.bench.fleet.node_plan import plan_node


@dataclass(frozen=True, slots=True)
class Fleet:
    """The arguments of a run.

    Attributes:
        nodes: number of nodes.
        days: length of the history.
        seed: seed of all random choices.
        clusters: number of clusters.
        step_hours: hours between two writes of a node to the archive.
        out: folder of the results: `archive` is the location, `ledgers` has the ledgers that are
            kept, and `done` a file for each finished node.
        keep: whether ledgers are kept.
    """

    nodes: int
    days: int
    seed: int
    clusters: int
    step_hours: int
    out: Path
    keep: bool = False

    @property
    def location(self) -> Path:
        """Folder of the archive."""
        return self.out / "archive"

    @property
    def ledgers(self) -> Path:
        """Folder of the ledgers."""
        return self.out / "ledgers"


def write_fleet(fleet: Fleet, workers: int = 1) -> int:
    """Write what is missing of a fleet; return the number of rows that were written."""
    for folder in (fleet.location, fleet.ledgers, fleet.out / "done"):
        folder.mkdir(parents=True, exist_ok=True)
    missing = [n for n in range(fleet.nodes) if not (fleet.out / "done" / str(n)).exists()]
    if workers == 1:
        return sum(_write(fleet, number) for number in missing)
    count, started = 0, time.monotonic()
    with ProcessPoolExecutor(workers) as pool:
        for at, rows in enumerate(pool.map(partial(_write, fleet), missing), 1):
            count += rows
            if at % 50 == 0:
                print(f"{at} nodes, {count} rows, {time.monotonic() - started:.0f} s", flush=True)
    return count


def _write(fleet: Fleet, number: int) -> int:
    plan = plan_node(number, fleet.days, fleet.seed, fleet.clusters)
    rows = write_node(
        plan, fleet.seed, fleet.step_hours, fleet.location, fleet.ledgers, keep=fleet.keep
    )
    (fleet.out / "done" / str(number)).touch()
    return rows


def main(words: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.fleet", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clusters", type=int, default=1)
    parser.add_argument(
        "--step-hours",
        type=int,
        default=24,
        choices=[1, 2, 3, 4, 6, 8, 12, 24],
        help="hours between two writes of a node; podgpu's default is 1 (default here: 24)",
    )
    parser.add_argument(
        "--copies",
        type=int,
        default=1,
        help="also write OUT/copied: an archive with this many copies of each node, compacted",
    )
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--keep-ledgers", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(words)
    fleet = Fleet(
        given.nodes,
        given.days,
        given.seed,
        given.clusters,
        given.step_hours,
        given.out.absolute(),
        given.keep_ledgers,
    )
    started = time.monotonic()
    rows = write_fleet(fleet, given.workers)
    print(f"{rows} rows in {time.monotonic() - started:.0f} s; the archive is {fleet.location}")
    if given.copies > 1:
        target = fleet.out / "copied"
        copy_nodes(fleet.location, target, fleet.nodes, given.copies, fleet.ledgers)
        print(f"copied in {time.monotonic() - started:.0f} s; the archive is {target}")


if __name__ == "__main__":
    main()
