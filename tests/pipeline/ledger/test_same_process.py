"""A reader in the writer's process, such as the status page, does not drop the writer's locks.

POSIX locks belong to the process: closing any descriptor of a file drops SQLite's locks on it
(https://www.sqlite.org/howtocorrupt.html#_posix_advisory_locks_canceled_by_a_separate_thread_doing_close_).
"""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from pipeline.ledger.file_open import LedgerError, open_readonly
from tests.pipeline.ledger.open_ledger import window_of
from tests.pipeline.ledger.test_file_open import add, filled, seconds_of

OTHER = """
import sqlite3, sys
with sqlite3.connect(sys.argv[1]) as other:
    other.execute("SELECT count(*) FROM hours").fetchall()
other.close()
"""


def locks(path: Path) -> list[str]:
    """Return the kernel's list of locks on a file."""
    inode = str(path.stat().st_ino)
    lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    return sorted(line.split(": ", 1)[1] for line in lines if line.split()[5].endswith(f":{inode}"))


def open_invalid_files(path: Path) -> None:
    with pytest.raises(LedgerError):
        open_readonly(path.with_name("none.db"))
    os.mkfifo(path.with_name("pipe"))
    with pytest.raises(LedgerError, match="is not a regular file"):
        open_readonly(path.with_name("pipe"))


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(window_of, id="read a window"),
        pytest.param(lambda path: open_readonly(path).close(), id="only open"),
        pytest.param(open_invalid_files, id="missing file and pipe"),
    ],
)
def test_the_writer_keeps_its_locks_and_its_log(
    tmp_path: Path, read: Callable[[Path], object]
) -> None:
    path = tmp_path / "usage.db"
    with closing(filled(path, 10)) as ledger:
        before = locks(path)
        assert before, "the kernel lists the locks"
        read(path)
        assert locks(path) == before
        subprocess.run([sys.executable, "-c", OTHER, str(path)], check=True)
        assert (tmp_path / "usage.db-wal").exists(), "the other process saw that it is not the last"
        add(ledger, 20)
        assert seconds_of(path) == 20
