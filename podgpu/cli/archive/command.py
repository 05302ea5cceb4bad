"""Run `podgpu archive`."""

import argparse
import os
import sys
from typing import NoReturn

from podgpu.cli.archive.extra import check_extra


def archive(arguments: argparse.Namespace) -> int:
    """`podgpu archive`: write the archive of a ledger until SIGTERM, or once.

    Without `--once`, this process becomes `resident`, a program that imports little. Each write is
    a child process, whose memory is free after its end.

    Raises:
        TransientError: with `--once`, the ledger or the archive cannot be used now.
        PermanentError: with `--once`, the ledger is damaged or the archive refuses the write; or
            the packages of `podgpu[archive]` are not installed.
        ConfigError: with `--once`, the configuration that names the ledger is invalid.
    """
    check_extra()
    if not arguments.once:
        _become_resident(arguments)
    from podgpu.cli.archive.node_write import write

    return write(arguments)


def _become_resident(arguments: argparse.Namespace) -> NoReturn:
    # With our search path, and without the present folder, which may belong to others.
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    program = [sys.executable, "-P", "-m", "podgpu.cli.archive.resident"]
    times = [str(float(arguments.interval)), str(float(arguments.grace))]
    os.execve(program[0], [*program, *times, *child_command(arguments)], env)  # noqa: S606


def child_command(arguments: argparse.Namespace) -> list[str]:
    """Return the command of a child process that writes once."""
    command = [sys.executable, "-P", "-m", "podgpu", "archive", "--once"]
    for name in ("to", "cluster", "node", "ledger", "config", "sink"):
        value = getattr(arguments, name)
        if value is not None:
            command += [f"--{name}", str(value)]
    return command
