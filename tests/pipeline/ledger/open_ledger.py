"""A ledger for tests: an accumulator, its real file, and snapshots of accounts for it."""

import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from pipeline.ledger.account_state import to_current_clock
from pipeline.ledger.batch_writer import BatchWriter
from pipeline.ledger.change_tracker import LedgerAccumulator
from pipeline.ledger.file_open import open_readonly
from pipeline.ledger.queries import read_window
from pipeline.ledger.writer_open import StoredState, open_readwrite, read_stored_state
from pipeline.model import NS, Device, DeviceUsage, Holding, Instant, Snapshot, Usage
from pipeline.model.ledger_usage import UsageWindow
from tests.support.nodes import START, Node, gpu
from tests.support.usage import account

FOREVER = 1 << 62
_MEMORY = Path("/dev/shm")


@contextmanager
def folder_in_memory() -> Iterator[Path]:
    """Yield a folder on a file system in memory, if there is one: it flushes in no time."""
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
        yield Path(folder)


class OpenLedger:
    """An accumulator and its ledger file.

    Args:
        path: the file.
        born: when the accumulator starts.
        now: when the file is opened; `born` if None.
    """

    def __init__(self, path: Path, born: Instant = START, now: Instant | None = None) -> None:
        self.path = path
        self._connection = open_readwrite(path, "normal")
        self.store = BatchWriter(self._connection)
        self.stored: StoredState = read_stored_state(self._connection, str(path))
        states = {
            one.device: one
            for one in to_current_clock(self.stored.accounts.values(), now or born).devices
        }
        self.accumulator = LedgerAccumulator(born, states, self.stored.open_holdings)

    def commit(self) -> None:
        """Write what has accumulated."""
        self.store.write_batch(self.accumulator.take_batch())

    def close(self) -> None:
        self._connection.close()

    def rows(self, query: str, *given: object) -> list[tuple[object, ...]]:
        return self._connection.execute(query, given).fetchall()

    def window(self, start_ns: int = 0, end_ns: int = FOREVER) -> UsageWindow:
        return window_of(self.path, start_ns, end_ns)


def window_of(path: Path, start_ns: int = 0, end_ns: int = FOREVER) -> UsageWindow:
    with closing(open_readonly(path)) as connection:
        return read_window(connection, start_ns, end_ns)


def query(path: Path, text: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(text).fetchall()


def _layout(*devices: Device) -> Snapshot:
    node = Node()
    node.has(*devices)
    return node.snapshot()


@dataclass
class Snapshots:
    """Make snapshots of accounts, all with the same layout."""

    base: Snapshot = field(default_factory=lambda: _layout(gpu(0), gpu(1)))

    @classmethod
    def of(cls, *devices: Device) -> "Snapshots":
        """Make snapshots with other devices."""
        return cls(_layout(*devices))

    def __call__(
        self, *devices: DeviceUsage, ended: Iterable[Holding] = (), lost: int = 0
    ) -> Snapshot:
        usage = Usage({one.device: one for one in devices}, 0, tuple(ended), lost)
        at = max((one.at for one in devices), default=self.base.at)
        return replace(self.base, usage=usage, at=at)


def moved(moment: Instant, seconds: float, *, wall: float = 0) -> Instant:
    """Return a later moment; the wall clock may have been set in between."""
    ns = round(seconds * NS)
    return Instant(moment.mono_ns + ns, moment.wall_ns + ns + round(wall * NS))


def assert_adds_up(window: UsageWindow) -> None:
    """Check that all amounts in a window sum exactly to the totals of the devices."""
    for total in window.totals:
        parts = [one for one in window.usage if one.device == total.device]
        assert sum(one.held_ns for one in parts) == total.accounted_ns
        assert sum(one.busy_ns or 0 for one in parts) == (total.busy_ns or 0)
        assert sum(one.energy_mj or 0 for one in parts) == (total.energy_mj or 0)
        amounts = [(one.held_ns, one.busy_ns or 0, one.energy_mj or 0) for one in parts]
        assert min(map(min, amounts), default=0) >= 0
        assert total.gap_ns >= 0


__all__ = [
    "FOREVER",
    "OpenLedger",
    "Snapshots",
    "account",
    "assert_adds_up",
    "moved",
    "query",
    "window_of",
]
