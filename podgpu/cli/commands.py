"""Defines the commands, parses their options, and runs `podgpu COMMAND`.

Error messages about options do not repeat texts that may be secret.
"""

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from config.errors import ConfigError
from pipeline.base.errors import ComponentError, PermanentError
from pipeline.base.version import VERSION
from podgpu.cli import arguments as options
from podgpu.cli.shared_options import add_allowed, add_command, add_file, address, duration
from podgpu.cli.terminal_text import complain, lines

_EXIT_UNAVAILABLE = 1
_EXIT_INVALID = 2

_OPTION_NAME: Final = re.compile(r"--[A-Za-z][-A-Za-z0-9]*|-[A-Za-z]")
"""Matches an option name, without a value that is appended to it, such as in -pVALUE."""

_UNKNOWN: Final = "unrecognized arguments: "
_REPLACEMENTS: Final = (
    (re.compile(r"invalid choice: .* (?=\(choose from )", re.DOTALL), "invalid choice "),
    (re.compile(r"ignored explicit argument .*", re.DOTALL), "takes no value"),
    (re.compile(r"(invalid \w+ value): .*", re.DOTALL), r"\1"),
)
"""Parts of argparse's messages that repeat the user's input, and their replacements."""


def run_command(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status.

    Status 1 means that the requested information or server is not available now, status 2 an error
    that the user has to fix, status 130 Ctrl-C. All other statuses are those of the command.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        # This command parses its options as dcgm-exporter does, which argparse cannot do.
        if words[:1] == [options.DCGM_COMMAND]:
            from podgpu.cli.dcgm_exporter import command

            return command.run(words[1:])
        arguments = _parser().parse_args(words)
        status: int = arguments.command(arguments)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return _EXIT_INVALID
    except ComponentError as error:
        complain(lines(f"podgpu: {error}"))
        return _EXIT_INVALID if isinstance(error, PermanentError) else _EXIT_UNAVAILABLE
    except BrokenPipeError:  # `podgpu fields | head`
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        return 130
    return status


def _parser() -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = Parser(
        prog="podgpu",
        description="GPU exporter for Kubernetes nodes: NVML readings, attributed to containers.",
    )
    parser.add_argument("--version", action="version", version=f"podgpu {VERSION}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def add(name: str, module: str, help_text: str) -> argparse.ArgumentParser:
        return add_command(commands, name, f"podgpu.cli.{module}:{name}", help=help_text)

    run = add("run", "config_commands", "run the daemon until SIGTERM")
    demo_help = "run the daemon on a recording of a real node; needs no GPU"
    demo = add("demo", "config_commands", demo_help)
    demo.add_argument(
        "--listen",
        metavar="ADDRESS",
        type=address,
        help="address to serve /metrics on (default :9400)",
    )
    check_help = "check a configuration file: exit 0, or 2 with errors"
    check = add("check", "config_commands", check_help)
    record_help = "record the events of the sources to a file, for the source replay"
    record = add("record", "config_commands", record_help)
    for parser_of_config in (run, check, record):
        add_file(
            parser_of_config,
            "-c",
            "--config",
            help_text="configuration file; default: the first that exists of ./podgpu.yaml and "
            "/etc/podgpu/config.yaml, else a built-in one: this machine's GPUs on :9400",
        )
        add_allowed(parser_of_config)
    record.add_argument("-o", "--output", metavar="FILE", type=Path, required=True)
    record.add_argument(
        "--for",
        dest="duration",
        metavar="DURATION",
        type=duration,
        help="stop after this time, such as 5m; default: at Ctrl-C or SIGTERM",
    )
    record.add_argument("-f", "--force", action="store_true", help="overwrite an existing file")
    commands.add_parser(
        options.DCGM_COMMAND,
        help="run the daemon with dcgm-exporter's options; dcgm-exporter --help lists them",
    )
    add("schema", "config_commands", "print the JSON Schema of the configuration file")
    add("kinds", "config_commands", "list the kinds of sources and sinks, with options")
    fields = add("fields", "field_table", "list all fields that podgpu can read")
    fields.add_argument("--format", choices=("table", "markdown", "json"), default="table")
    options.add_topology(commands)
    options.add_top(commands)
    options.add_usage(commands)
    options.add_doctor(commands)
    options.add_extender(commands)
    return parser


class Parser(argparse.ArgumentParser):
    """An argument parser that differs from argparse's in two ways.

    * Options cannot be abbreviated: a mistyped --pass would be taken for another option.
    * An error message shows at most the name of the first unknown option: other words may be the
      password.

    The parsers of subcommands are of this class too.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False} | options)
        self._arguments: Sequence[str] = ()

    def parse_known_args(
        self, args: Iterable[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parse arguments as argparse does. argparse calls this method for subcommands too.

        A subcommand reports its unknown arguments itself, so that its own usage is shown.
        """
        self._arguments = () if args is None else list(args)
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(_UNKNOWN + " ".join(unknown))
        return found, unknown

    def error(self, message: str) -> NoReturn:
        """Print the error without secrets, and end the process with exit status 2.

        Args:
            message: the message of argparse.
        """
        if message.startswith(_UNKNOWN):
            super().error(_unknown(message.removeprefix(_UNKNOWN)))
        if "invalid choice" in message and (option := self._first_unknown()):
            super().error(_unknown(option))
        for pattern, replacement in _REPLACEMENTS:
            message = pattern.sub(replacement, message)
        super().error(message)

    def _first_unknown(self) -> str:
        """Return the unknown option before the first positional argument; empty if there is none.

        argparse takes the value of an unknown option for that positional argument, and reports it.
        """
        words = iter(self._arguments)
        for word in words:
            if not word.startswith("-") or word in ("-", "--"):
                break
            action = self._option_string_actions.get(word.partition("=")[0])
            if action is None and word[:2] not in self._option_string_actions:
                return word
            if action is not None and action.nargs != 0 and "=" not in word:
                next(words, None)
        return ""


def _unknown(word: str) -> str:
    name = _OPTION_NAME.match(word)
    return _UNKNOWN + (name[0] if name is not None else "an argument that belongs to no option")
