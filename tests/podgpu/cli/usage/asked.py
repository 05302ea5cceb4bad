"""Asks the command, as a user does."""

import pytest

from podgpu.cli.commands import run_command

Said = tuple[int, str, str]


def run(capsys: pytest.CaptureFixture[str], *words: object) -> Said:
    """The exit status of the command, and what it says on stdout and stderr."""
    try:
        code = run_command(["usage", *map(str, words)])
    except SystemExit as error:
        code = int(error.code or 0)
    out, err = capsys.readouterr()
    return code, out, err
