"""`podgpu dcgm-exporter`: from words and variables to the running daemon."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from config.errors import ConfigError, Problem
from config.loader import parse
from config.schema import Config
from pipeline.base.version import VERSION
from pipeline.component.registry import RegisteredKinds
from podgpu.cli import run_commands
from podgpu.cli.dcgm_exporter import (
    config_builder,
    config_file,
    go_arguments,
    option_help,
    yaml_writer,
)
from podgpu.cli.dcgm_exporter.option_warnings import Remark, remarks
from podgpu.cli.dcgm_exporter.settings import COMMAND, Settings

# What a source finds wrong in its options as a whole comes from this one: all others that it weighs
# against each other are set alike.
_WHOLE = {"sources.gpus": "sources.gpus.devices"}


@dataclass(frozen=True, slots=True)
class EffectiveConfig:
    """What a command line and its environment come to.

    Attributes:
        config: the configuration.
        text: the file that gives the same one.
        remarks: for the log.
    """

    config: Config
    text: str
    remarks: tuple[Remark, ...]


def run(command_line: Sequence[str]) -> int:
    """Run the command; return its exit status.

    Raises:
        ConfigError: an option or a value that can't be taken.
    """
    line = go_arguments.read(command_line)
    if line.asks == "help":
        print(option_help.help_text())
        return 0
    if line.asks == "version":
        print(f"podgpu {VERSION}")
        return 0
    found = effective_config(line, os.environ)
    if Settings(line.settings).switch("print-config"):
        print(found.text, end="")
        return 0
    return run_commands.serve(found.config, None, found.remarks)


def effective_config(line: go_arguments.Line, env: Mapping[str, str]) -> EffectiveConfig:
    """Return what the options come to.

    Raises:
        ConfigError: an option or a value that can't be taken, named by what set it.
    """
    given = Settings(line.settings, go_arguments.variables(env))
    warnings: list[str] = []
    if path := given.text("config-file"):
        from_file, warnings = config_file.settings(Path(path))
        given = given.above(from_file)
    made = config_builder.made(given)
    said = tuple(remarks(given, line.ignored, warnings))
    text = yaml_writer.text(made, [f"made by {COMMAND}", *(each.text for each in said)])
    try:
        config = parse(text, RegisteredKinds(), env=env, origin=COMMAND)
    except ConfigError as error:
        raise ConfigError(
            COMMAND, [_problem_of_option(each, made) for each in error.problems]
        ) from None
    return EffectiveConfig(config, text, said)


def _problem_of_option(problem: Problem, made: yaml_writer.Made) -> Problem:
    """Name the option that a problem comes from, instead of a place in a file that isn't there."""
    place = _WHOLE.get(problem.path, problem.path)
    return Problem(made.origin(place) or place, problem.message, problem.hint)
