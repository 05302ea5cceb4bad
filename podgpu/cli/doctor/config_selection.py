"""Select the configuration of the podgpu here, for `podgpu doctor` and `podgpu usage`.

It is the configuration that a podgpu of this container runs with, or would run with. This includes
the case of the image's entrypoint without arguments: dcgm-exporter's environment variables. Without
any of these, it is the configuration of a running `podgpu demo`. If several podgpu run, the user
has to choose.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from config.errors import ConfigError, Problem
from config.loader import MAX_BYTES, parse
from config.schema import Config
from pipeline.base.errors import PermanentError
from pipeline.component.registry import RegisteredKinds
from pipeline.diagnostics.context import Roots
from pipeline.diagnostics.process_lookup import (
    NAMES_OF_STDIN,
    Daemon,
    environment,
    names_config_file,
    run_config_file,
    running_daemons,
)
from podgpu.cli.arguments import DCGM_COMMAND
from podgpu.cli.config_commands import PLACES, built_in, located
from podgpu.cli.dcgm_exporter import go_arguments
from podgpu.cli.dcgm_exporter.command import effective_config
from podgpu.cli.demo.command import running_config

DEMO_COMMAND: Final = "demo"

_PROC: Final = Roots().proc
_BUILT_IN: Final = "the built-in configuration"
_STDIN: Final = "standard input"


class SeveralDaemonsError(PermanentError):
    """Several podgpu run here, so that the user has to choose one.

    Attributes:
        daemons: the processes.
    """

    def __init__(self, daemons: Sequence[Daemon]) -> None:
        listed = ", ".join(map(str, daemons))
        super().__init__(f"{len(daemons)} podgpu processes run here: {listed}")
        self.daemons = daemons


def is_configured() -> bool:
    """Whether there is a configuration other than the built-in one, or a podgpu runs here."""
    return bool(running_daemons(_PROC)) or _is_set_up()


def _is_set_up() -> bool:
    return any(place.exists() for place in PLACES) or bool(go_arguments.variables(os.environ))


def configured(named: Path | None, words: Sequence[str]) -> tuple[Config, str]:
    """Return the configuration, and a text for messages about where it comes from.

    Args:
        named: path given with the option `-c`; `-` for standard input; None if it is not given.
        words: `dcgm-exporter` and its options; empty if they are not given.

    Raises:
        ConfigError: the configuration cannot be read or is invalid.
        SeveralDaemonsError: several podgpu run here, and none is given.
    """
    env = os.environ
    if words:
        return _dcgm(words[1:], env), " ".join([DCGM_COMMAND, *words[1:]])
    if named is not None and str(named) in NAMES_OF_STDIN:
        data = sys.stdin.buffer.read(MAX_BYTES + 1)
        return parse(data, RegisteredKinds(), env=env, origin=_STDIN), _STDIN
    if named is None:
        # A demo is less than a configuration, which its user may be writing.
        is_demo_less = _is_set_up()
        daemons = [
            each
            for each in running_daemons(_PROC)
            if not (is_demo_less and each.command == DEMO_COMMAND)
        ]
        if len(daemons) > 1:
            raise SeveralDaemonsError(daemons)
        if daemons and (found := config_of(daemons[0])):
            return found
        if not any(place.exists() for place in PLACES):
            given = sorted({each.origin for each in go_arguments.variables(env).values()})
            if given:
                return _dcgm([], env), f"dcgm-exporter's variables ({', '.join(given)})"
    config, path = located(named)
    return config, str(path or _BUILT_IN)


def config_of(daemon: Daemon) -> tuple[Config, str] | None:
    """Return the configuration of a running podgpu, and a text for messages about its origin.

    Returns:
        None if the configuration cannot be found, for example because it came from standard input.

    Raises:
        ConfigError: the configuration cannot be read or is invalid.
    """
    pid, options = daemon.pid, daemon.options
    if daemon.command == DCGM_COMMAND:
        words = " ".join([DCGM_COMMAND, *options])
        return _dcgm(options, os.environ), f"{words}, used by process {pid}"
    if daemon.command == DEMO_COMMAND:
        env = environment(pid, _PROC) or os.environ
        return running_config(options, env), f"podgpu demo, process {pid}"
    file = run_config_file(daemon, _PROC)
    if file is None and not names_config_file(daemon):
        try:
            folder = (_PROC / str(pid) / "cwd").readlink()
        except OSError:
            return None
        file = next((folder / each for each in PLACES if (folder / each).exists()), None)
        if file is None:
            config = built_in("default.yaml", environment(pid, _PROC) or os.environ)
            return config, f"{_BUILT_IN}, used by process {pid}"
    return None if file is None else (located(file)[0], f"{file}, used by process {pid}")


def _dcgm(words: Sequence[str], env: Mapping[str, str]) -> Config:
    line = go_arguments.read(words)
    if line.info:
        hint = f"run {go_arguments.COMMAND} --{line.info}"
        raise ConfigError(
            go_arguments.COMMAND, [Problem(f"--{line.info}", "is not a configuration", hint)]
        )
    return effective_config(line, env).config
