"""Which configuration is looked at: a file's, that on standard input, or dcgm-exporter's options.

It is the one that podgpu runs with here, or would if it were started: what the image's entrypoint
makes of a container without words is heeded.
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
from podgpu.cli.config_location import PLACES, located
from podgpu.cli.dcgm_exporter import go_arguments
from podgpu.cli.dcgm_exporter.command import effective_config
from podgpu.cli.dcgm_exporter.settings import COMMAND
from podgpu.cli.doctor import BEHIND

_PROC: Final = Roots().proc
_BUILT_IN: Final = "the built-in configuration"
_STDIN: Final = "standard input"


def configured(
    named: Path | None, words: Sequence[str], env: Mapping[str, str] | None = None
) -> tuple[Config, str]:
    """Return the configuration and where it comes from, for people.

    Args:
        named: the file after `-c`.
        words: `dcgm-exporter` and options of its own; empty for none.
        env: variables of the environment.

    Raises:
        ConfigError: it can't be read or is wrong.
    """
    env = os.environ if env is None else env
    if words:
        return _dcgm(words[1:], env), " ".join([BEHIND, *words[1:]])
    if named is not None and str(named) in NAMES_OF_STDIN:
        data = sys.stdin.buffer.read(MAX_BYTES + 1)
        return parse(data, RegisteredKinds(), env=env, origin=_STDIN), _STDIN
    if named is None and (running := command_options(BEHIND, _PROC)) is not None:
        number, options = running
        told = " ".join([BEHIND, *options])
        return _dcgm(options, env), f"{told}, as process {number} runs"
    if named is None and (behind := run_config_file(_PROC)) is not None:
        number, file = behind
        return located(file)[0], f"{file}, as process {number} runs"
    if named is None and not any(place.exists() for place in PLACES):
        given = sorted({each.origin for each in go_arguments.variables(env).values()})
        if given:
            return _dcgm([], env), f"dcgm-exporter's variables ({', '.join(given)})"
    config, path = located(named)
    return config, str(path or _BUILT_IN)


def _dcgm(words: Sequence[str], env: Mapping[str, str]) -> Config:
    line = go_arguments.read(words)
    if line.asks:
        hint = f"{COMMAND} --{line.asks} tells it"
        raise ConfigError(COMMAND, [Problem(f"--{line.asks}", "is nothing to look at", hint)])
    return effective_config(line, env).config
