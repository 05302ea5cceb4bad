"""Finds the ledger file that the options of a command, or the podgpu that runs here, name."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, cast

from config.errors import ConfigError, Problem
from config.message_text import did_you_mean
from config.schema import Config
from pipeline.base.errors import PermanentError
from pipeline.diagnostics.process_lookup import Daemon
from podgpu.cli.demo.ledger_place import latest
from podgpu.cli.doctor.config_selection import (
    SeveralDaemonsError,
    config_of,
    configured,
    is_configured,
)
from podgpu.cli.terminal_text import complain


def found_ledger(arguments: argparse.Namespace, command: str = "usage") -> Path:
    """Return the ledger's path; if no option names it, say on stderr which ledger it is.

    Args:
        arguments: with the options `ledger`, `config` and `sink`.
        command: name of the command, for messages.

    Raises:
        ConfigError: the configuration cannot be read, is invalid, or has no such sink.
        PermanentError: several podgpu run here.
    """
    if arguments.ledger is not None:
        return Path(arguments.ledger)
    if arguments.config is not None:
        return ledger_of(*configured(arguments.config, ()), arguments.sink)
    if arguments.sink is None and not is_configured():
        demo = latest(os.environ)
        if demo is not None:
            complain(f"podgpu: reading {demo}, the ledger that podgpu demo wrote last")
            return demo
    try:
        config, origin = configured(None, ())
    except SeveralDaemonsError as error:
        raise PermanentError(_choices(error.daemons, arguments.sink, command)) from error
    path = ledger_of(config, origin, arguments.sink)
    complain(f"podgpu: reading {path}, the ledger of {origin}")
    return path


def _choices(daemons: Sequence[Daemon], sink: str | None, command: str) -> str:
    """Return the error about several daemons: each with its ledger, and how to choose it."""
    lines = [f"{len(daemons)} podgpu processes run here: choose the ledger of one of them"]
    for daemon in daemons:
        try:
            found = config_of(daemon)
            how = "its ledger is unknown: give the file as --ledger"
            if found is not None:
                how = f"podgpu {command} --ledger {ledger_of(*found, sink)}"
        except ConfigError as error:
            how = "; ".join(f"{each.path} {each.message}" for each in error.problems)
        lines.append(f"  {daemon}: {how}")
    return "\n".join(lines)


KIND: Final = "ledger"
"""The kind of sink that stores a ledger."""

_HINT: Final = (
    "add a sink of kind ledger, or give the file as --ledger. For example, add to sinks: "
    "usage: {kind: ledger, path: /var/lib/podgpu/usage.db}. podgpu demo writes a ledger of sample "
    "data"
)


def ledger_of(config: Config, origin: str, sink: str | None) -> Path:
    """Return the path of the ledger file that a configuration names.

    Args:
        config: the configuration.
        origin: where it comes from, for messages.
        sink: name of the sink; None for the first sink of kind `ledger`.

    Raises:
        ConfigError: the configuration has no such sink.
    """
    found = [name for name, each in config.sinks.items() if each.kind == KIND]
    if sink is None and not found:
        raise ConfigError(origin, [Problem("sinks", "has no ledger", _HINT)])
    if sink is not None and sink not in found:
        others = f"its ledgers are: {', '.join(found)}" if found else _HINT
        text = f"has no ledger with the name given by --sink; {others}"
        problem = Problem("sinks", text, did_you_mean(sink, found))
        raise ConfigError(origin, [problem])
    options = config.sinks[found[0] if sink is None else sink].options
    path: Path = cast("Any", options).path
    return path
