"""Options of `podgpu doctor`. All commands import this module, so it imports almost nothing."""

import argparse
from functools import partial
from pathlib import Path

from pipeline.component.code_permissions import LIBRARY, NOTHING, OPTION
from podgpu.cli.code_permission_options import add_allowed, allowed_of
from podgpu.cli.doctor import DCGM_COMMAND


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser of podgpu."""
    parser = commands.add_parser(
        "doctor",
        help="check this node, or a cluster, for problems and say how to fix them",
        usage="podgpu doctor [-h] [-c FILE] [--json] [--allow-configured-code] "
        "[--allow-library FILE]\n"
        "                     [dcgm-exporter OPTION ...]\n"
        "       podgpu doctor --cluster [--kubeconfig FILE] [--namespace NS] [--json]",
        description="Checks what the configuration needs, and changes nothing. Run it where podgpu "
        "runs: kubectl exec POD -- podgpu doctor. Exit status: 0 without problems, 1 for warnings, "
        "2 for failures, 3 if podgpu doctor itself fails.",
    )
    parser.add_argument(
        "-c",
        "--config",
        metavar="FILE",
        type=Path,
        help="configuration file, - for standard input; default: that of the podgpu running here, "
        "else the one that podgpu run would use, else dcgm-exporter's environment variables",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_allowed(parser)
    parser.add_argument(
        "words",
        nargs=argparse.REMAINDER,
        metavar="dcgm-exporter OPTION ...",
        help="check the configuration that these options of dcgm-exporter give; they come last",
    )
    cluster = parser.add_argument_group("the cluster, from any machine")
    cluster.add_argument(
        "--cluster", action="store_true", help="check podgpu's objects in a cluster instead"
    )
    cluster.add_argument(
        "--kubeconfig",
        metavar="FILE",
        type=Path,
        help="credentials; default: those of KUBECONFIG, else those of the pod",
    )
    cluster.add_argument(
        "--namespace", metavar="NS", default="", help="podgpu's namespace; default: all"
    )
    parser.set_defaults(command=partial(_doctor, parser))


def _doctor(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> int:
    if error := _contradiction(arguments):
        parser.error(error)
    from podgpu.cli.doctor import command

    return command.doctor(arguments)


def _contradiction(arguments: argparse.Namespace) -> str:
    """Return an error if arguments exclude each other or would be ignored; empty if none would."""
    words, config = arguments.words, arguments.config
    if words and words[0] != DCGM_COMMAND:
        return f"unrecognized arguments: {' '.join(words)}"
    if words and config is not None:
        return f"-c and {DCGM_COMMAND} exclude each other: give only one"
    if arguments.cluster and (config is not None or words):
        return f"--cluster reads no configuration: remove {'-c' if config else DCGM_COMMAND}"
    if arguments.cluster and allowed_of(arguments) != NOTHING:
        return f"--cluster reads no configuration: remove {OPTION} and {LIBRARY}"
    if not arguments.cluster and (arguments.kubeconfig is not None or arguments.namespace):
        name = "--kubeconfig" if arguments.kubeconfig is not None else "--namespace"
        return (
            f"{name} needs --cluster; the credentials of sources and sinks are in the "
            "configuration file"
        )
    return ""
