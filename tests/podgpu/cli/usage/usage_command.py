"""Run `podgpu usage` as a user does."""

import pytest

from podgpu.cli.commands import run_command

Result = tuple[int, str, str]
"""The exit status of a command, and its output on stdout and stderr."""


def run(capsys: pytest.CaptureFixture[str], *words: object) -> Result:
    try:
        code = run_command(["usage", *map(str, words)])
    except SystemExit as error:
        code = int(error.code or 0)
    out, err = capsys.readouterr()
    return code, out, err
