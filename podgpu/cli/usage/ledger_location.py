"""Find the ledger file of a configuration."""

from pathlib import Path
from typing import Final, Protocol, cast

from config.errors import ConfigError, Problem
from config.schema import Config
from podgpu.cli.doctor.config_selection import configured

KIND: Final = "ledger"
"""The kind of sink that stores a ledger."""

_HINT: Final = "add a sink of kind ledger, or give the file as --ledger"


class _LedgerOptions(Protocol):
    path: Path


def ledger_of(named: Path | None, sink: str | None) -> Path:
    """Return the file of a configuration's ledger.

    Args:
        named: the configuration file; None for that of the podgpu that runs here, or the one that
            `podgpu run` would use.
        sink: name of the sink; None for the first ledger.

    Raises:
        ConfigError: the configuration cannot be read or is invalid, or has no such ledger.
    """
    config, origin = configured(named, ())
    return _path(config, origin, sink)


def _path(config: Config, origin: str, sink: str | None) -> Path:
    found = [name for name, each in config.sinks.items() if each.kind == KIND]
    if sink is None and not found:
        raise ConfigError(origin, [Problem("sinks", "has no ledger", _HINT)])
    if sink is not None and sink not in found:
        others = f"its ledgers are: {', '.join(found)}" if found else _HINT
        problem = Problem("sinks", f"has no ledger with the name given by --sink; {others}")
        raise ConfigError(origin, [problem])
    options = config.sinks[found[0] if sink is None else sink].options
    return cast("_LedgerOptions", options).path
