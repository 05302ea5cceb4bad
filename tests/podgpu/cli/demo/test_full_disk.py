"""The demo's ledger on a disk that becomes full while it is written."""

import subprocess
import sys
from pathlib import Path

import pytest

from podgpu.cli.demo.ledger_file import write
from tests.podgpu.cli.demo.sample_nodes import NODE, NOW
from tests.support.mounts import MAY_MOUNT, ROOT, UNSHARE

LOOK = """\
import os, sqlite3, subprocess, sys
path = sys.argv[1]
before = os.stat(path).st_ino
done = subprocess.run([sys.executable, "-P", "-m", "podgpu.cli.demo", path], capture_output=True)
with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as ledger:
    assert ledger.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
replaced = os.stat(path).st_ino != before
assert replaced == (done.returncode == 0), done.stderr
print(sorted(os.listdir(os.path.dirname(path))), replaced)
"""


@MAY_MOUNT
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kilobytes", "replaced"), [(900, False), (1500, False), (2200, None), (6000, True)]
)
def test_the_old_ledger_stays_whole_and_nothing_else_is_left(
    tmp_path: Path, kilobytes: int, replaced: bool | None
) -> None:
    old, disk = tmp_path / "demo.db", tmp_path / "disk"
    write(old, NODE, NOW)
    disk.mkdir()
    mount = f'mount -t tmpfs -o size={kilobytes}k tmpfs "$1" && cp "$0" "$1/demo.db" && '
    program = 'exec "$2" -c "$3" "$1/demo.db"'
    done = subprocess.run(
        [*UNSHARE, "sh", "-c", mount + program, str(old), str(disk), sys.executable, LOOK],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("['demo.db', 'demo.db.lock'] ")
    assert replaced is None or done.stdout.endswith(f" {replaced}\n")
