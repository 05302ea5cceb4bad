"""Define the commands and their options, and dispatch `podgpu COMMAND`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from config.errors import ConfigError
from pipeline.base.version import VERSION
from podgpu.cli import config_commands, field_table, run_commands
from podgpu.cli.dcgm_exporter import command
from podgpu.cli.doctor import arguments as doctor
from podgpu.cli.extender import arguments as extender
from podgpu.cli.parser import Parser
from podgpu.cli.shared_options import add_allowed, add_file, address, duration
from podgpu.cli.top import arguments as top
from podgpu.cli.topology import arguments as topology
from podgpu.cli.usage import arguments as usage

_EXIT_CONFIG = 2
_DCGM_EXPORTER = "dcgm-exporter"


def run_command(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status.

    Status 1 means a bug or, for a command that queries something, that the information is not
    available now. Status 2 means an error that the user has to fix.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        # This command parses its options as dcgm-exporter does, which argparse cannot do.
        if words[:1] == [_DCGM_EXPORTER]:
            return command.run(words[1:])
        arguments = _parser().parse_args(words)
        status: int = arguments.command(arguments)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return _EXIT_CONFIG
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

    run = commands.add_parser("run", help="run the daemon until SIGTERM")
    _config_argument(run)
    add_allowed(run)
    run.set_defaults(command=run_commands.run)

    demo = commands.add_parser(
        "demo", help="run the daemon on a recording of a real node; needs no GPU"
    )
    demo.add_argument(
        "--listen",
        metavar="ADDRESS",
        type=address,
        help="address to serve /metrics on (default :9400)",
    )
    demo.set_defaults(command=run_commands.demo)

    check = commands.add_parser(
        "check", help="check a configuration file: exit 0, or 2 with errors"
    )
    _config_argument(check)
    add_allowed(check)
    check.set_defaults(command=config_commands.check)

    record = commands.add_parser(
        "record", help="record the events of the sources to a file, for the source replay"
    )
    _config_argument(record)
    add_allowed(record)
    record.add_argument("-o", "--output", metavar="FILE", type=Path, required=True)
    record.add_argument(
        "--for",
        dest="duration",
        metavar="DURATION",
        type=duration,
        help="stop after this time, such as 5m; default: at Ctrl-C or SIGTERM",
    )
    record.add_argument("-f", "--force", action="store_true", help="overwrite an existing file")
    record.set_defaults(command=run_commands.record)

    commands.add_parser(
        _DCGM_EXPORTER,
        help="run the daemon with dcgm-exporter's options; dcgm-exporter --help lists them",
    )

    schema = commands.add_parser("schema", help="print the JSON Schema of the configuration file")
    schema.set_defaults(command=config_commands.schema)

    kinds = commands.add_parser("kinds", help="list the kinds of sources and sinks, with options")
    kinds.set_defaults(command=config_commands.kinds)

    fields = commands.add_parser("fields", help="list all fields that podgpu can read")
    fields.add_argument("--format", choices=("table", "markdown", "json"), default="table")
    fields.set_defaults(command=field_table.fields)

    topology.add(commands)
    top.add(commands)
    usage.add(commands)
    doctor.add(commands)
    extender.add(commands)
    return parser


def _config_argument(parser: argparse.ArgumentParser) -> None:
    add_file(
        parser,
        "-c",
        "--config",
        help_text="configuration file; default: the first that exists of ./podgpu.yaml and "
        "/etc/podgpu/config.yaml, else a built-in one: this machine's GPUs on :9400",
    )
