"""Tests that need zsh, fish or systemd, with those of Debian's packages."""

import re
import subprocess
import sys

import pytest

from tests.deploy.places import ROOT
from tests.e2e import debian

TESTS = (
    "tests/podgpu/cli/test_completion.py",
    "tests/deploy/test_systemd.py",
    "tests/e2e/test_systemd_unit.py",
)
"""They are skipped on a machine without these programs."""


@pytest.mark.timeout(900)
def test_shells_and_systemd_of_debian_accept_what_podgpu_ships() -> None:
    """The programs need their files at the usual paths, so they are in a view of /usr that only
    this test has.
    """
    usr = debian.shells_and_systemd()
    tests = (sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider")
    options = ("--override-ini=addopts=", "--import-mode=importlib", "--override-ini=timeout=120")
    view = f'mount -t overlay -o "lowerdir={usr}:/usr" overlay /usr && exec "$@"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", view, "sh", *tests, *options, *TESTS],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert re.search(r"\d+ passed", done.stdout)
    assert "skipped" not in done.stdout, done.stdout[-4000:]
