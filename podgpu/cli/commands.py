"""Defines the commands, parses their options, and runs `podgpu COMMAND`."""

import argparse
import sys
from collections.abc import Sequence

from config.errors import ConfigError
from pipeline.base.errors import ComponentError, PermanentError
from pipeline.base.version import VERSION
from podgpu.cli import arguments as options
from podgpu.cli.archive.archive_options import add_archive
from podgpu.cli.option_parser import Parser
from podgpu.cli.shared_options import add_allowed, add_command, add_file, address, duration
from podgpu.cli.terminal_text import complain, lines
from podgpu.cli.usage.options import add_usage

_EXIT_UNAVAILABLE = 1
_EXIT_INVALID = 2


def run_command(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status.

    Status 1 means that the requested information or server is not available now, status 2 an error
    that the user has to fix, status 130 Ctrl-C. All other statuses are those of the command.
    Without a command, the help is printed, and the status is 2: a container or a unit that starts
    podgpu without a command must not look successful.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        # This command parses its options as dcgm-exporter does, which argparse cannot do.
        if words[:1] == [options.DCGM_COMMAND]:
            from podgpu.cli.dcgm_exporter import command

            return command.run(words[1:])
        parser = command_parser()
        if not words:
            parser.print_help()
            return _EXIT_INVALID
        arguments = parser.parse_args(words)
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


def command_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands. Those of dcgm-exporter's options are not in it."""
    parser: argparse.ArgumentParser = Parser(
        prog="podgpu",
        description="GPU exporter for Kubernetes nodes: NVML readings, attributed to containers.",
        epilog="podgpu COMMAND --help shows its options. podgpu demo needs no GPU.",
    )
    parser.add_argument("--version", action="version", version=f"podgpu {VERSION}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def add(name: str, module: str, help_text: str) -> argparse.ArgumentParser:
        return add_command(commands, name, f"podgpu.cli.{module}:{name}", help=help_text)

    run = add("run", "config_commands", "run the daemon until SIGTERM")
    demo_help = "run the daemon on a recording, with four weeks of sample usage; needs no GPU"
    demo = add("demo", "demo.command", demo_help)
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
    add_file(record, "-o", "--output", help_text="the recording, a new file", required=True)
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
    kinds = add("kinds", "config_commands", "list the kinds of sources and sinks, with options")
    kinds.add_argument("names", nargs="*", metavar="NAME", help="only kinds with this name")
    fields = add(
        "fields",
        "field_table",
        "list all fields that podgpu can read, or what it answers for names of DCGM",
    )
    fields.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="only fields with this name, or with a name that contains it",
    )
    fields.add_argument(
        "--format", choices=("table", "markdown", "json"), default="table", help="default: table"
    )
    options.add_topology(commands)
    options.add_top(commands)
    add_usage(commands)
    add_archive(commands)
    options.add_doctor(commands)
    options.add_extender(commands)
    completion = add("completion", "completion", "print the completion script of a shell")
    completion.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell")
    return parser
