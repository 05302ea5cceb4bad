"""Select the configuration that `podgpu doctor` checks.

It is the configuration that a podgpu of this container runs with, or would run with. This includes
the case of the image's entrypoint without arguments: dcgm-exporter's environment variables. Without
any of these, it is the configuration of a running `podgpu demo`.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from config.errors import ConfigError, Problem
from config.loader import MAX_BYTES, parse
from config.schema import Config
from pipeline.component.registry import RegisteredKinds
from pipeline.diagnostics.context import Roots
from pipeline.diagnostics.process_lookup import NAMES_OF_STDIN, command_options, run_config_file
from podgpu.cli.arguments import DCGM_COMMAND
from podgpu.cli.config_commands import PLACES, located
from podgpu.cli.dcgm_exporter import go_arguments
from podgpu.cli.dcgm_exporter.command import effective_config
from podgpu.cli.demo.command import running_config

DEMO_COMMAND: Final = "demo"

_PROC: Final = Roots().proc
_BUILT_IN: Final = "the built-in configuration"
_STDIN: Final = "standard input"


def is_configured() -> bool:
    """Whether there is a configuration other than the built-in one."""
    return (
        command_options(DCGM_COMMAND, _PROC) is not None
        or run_config_file(_PROC) is not None
        or any(place.exists() for place in PLACES)
        or bool(go_arguments.variables(os.environ))
    )


def configured(named: Path | None, words: Sequence[str]) -> tuple[Config, str]:
    """Return the configuration, and a text for messages about where it comes from.

    Args:
        named: path given with the option `-c`; `-` for standard input; None if it is not given.
        words: `dcgm-exporter` and its options; empty if they are not given.

    Raises:
        ConfigError: the configuration cannot be read or is invalid.
    """
    env = os.environ
    if words:
        return _dcgm(words[1:], env), " ".join([DCGM_COMMAND, *words[1:]])
    if named is not None and str(named) in NAMES_OF_STDIN:
        data = sys.stdin.buffer.read(MAX_BYTES + 1)
        return parse(data, RegisteredKinds(), env=env, origin=_STDIN), _STDIN
    if named is None and (running := command_options(DCGM_COMMAND, _PROC)) is not None:
        pid, options = running
        options_text = " ".join([DCGM_COMMAND, *options])
        return _dcgm(options, env), f"{options_text}, used by process {pid}"
    if named is None and (running_file := run_config_file(_PROC)) is not None:
        pid, file = running_file
        return located(file)[0], f"{file}, used by process {pid}"
    if named is None and not any(place.exists() for place in PLACES):
        given = sorted({each.origin for each in go_arguments.variables(env).values()})
        if given:
            return _dcgm([], env), f"dcgm-exporter's variables ({', '.join(given)})"
        if (demo := command_options(DEMO_COMMAND, _PROC)) is not None:
            pid, options = demo
            return running_config(options, env), f"podgpu demo, process {pid}"
    config, path = located(named)
    return config, str(path or _BUILT_IN)


def _dcgm(words: Sequence[str], env: Mapping[str, str]) -> Config:
    line = go_arguments.read(words)
    if line.info:
        hint = f"run {go_arguments.COMMAND} --{line.info}"
        raise ConfigError(
            go_arguments.COMMAND, [Problem(f"--{line.info}", "is not a configuration", hint)]
        )
    return effective_config(line, env).config
