"""Who reads in the writer's own process, as the status page does, takes none of its locks away.

Locks of POSIX are the process's: whoever closes a file there drops all that SQLite has on it
(https://www.sqlite.org/howtocorrupt.html#_posix_advisory_locks_canceled_by_a_separate_thread_doing_close_).
"""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from pipeline.ledger.errors import LedgerError
from pipeline.ledger.file_open import open_readonly
from tests.pipeline.ledger.keeping import window_of
from tests.pipeline.ledger.test_file_open import add, filled, seconds_of

OTHER = """
import sqlite3, sys
with sqlite3.connect(sys.argv[1]) as other:
    other.execute("SELECT count(*) FROM hours").fetchall()
other.close()
"""


def locks(path: Path) -> list[str]:
    """The kernel's word on who has locks on a file."""
    inode = str(path.stat().st_ino)
    lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    return sorted(line.split(": ", 1)[1] for line in lines if line.split()[5].endswith(f":{inode}"))


def refused(path: Path) -> None:
    with pytest.raises(LedgerError):
        open_readonly(path.with_name("none.db"))
    os.mkfifo(path.with_name("pipe"))
    with pytest.raises(LedgerError, match="is not a regular file"):
        open_readonly(path.with_name("pipe"))


@pytest.mark.parametrize(
    "reads",
    [
        pytest.param(window_of, id="a window"),
        pytest.param(lambda path: open_readonly(path).close(), id="nothing"),
        pytest.param(refused, id="what isn't there"),
    ],
)
def test_the_writer_keeps_its_locks_and_its_log(
    tmp_path: Path, reads: Callable[[Path], object]
) -> None:
    path = tmp_path / "usage.db"
    with closing(filled(path, 10)) as kept:
        before = locks(path)
        assert before, "the kernel tells of locks here"
        reads(path)
        assert locks(path) == before
        subprocess.run([sys.executable, "-c", OTHER, str(path)], check=True)
        assert (tmp_path / "usage.db-wal").exists(), "the other one knew that it isn't alone"
        add(kept, 20)
        assert seconds_of(path) == 20
