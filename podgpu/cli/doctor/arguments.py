"""What the command takes. It loads next to nothing: the other commands load it too."""

import argparse
from functools import partial
from pathlib import Path

from pipeline.component.code_permissions import LIBRARY, NOTHING, OPTION
from podgpu.cli.code_permission_options import add_allowed, allowed_of
from podgpu.cli.doctor import BEHIND


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to podgpu's."""
    parser = commands.add_parser(
        "doctor",
        help="say what is wrong on this node, or in a cluster, and what mends it",
        usage="podgpu doctor [-h] [-c FILE] [--json] [--allow-configured-code] "
        "[--allow-library FILE]\n"
        "                     [dcgm-exporter OPTION ...]\n"
        "       podgpu doctor --cluster [--kubeconfig FILE] [--namespace NS] [--json]",
        description="Looks at what the configuration needs, and changes nothing. Run it where "
        "podgpu runs: kubectl exec POD -- podgpu doctor. Exit status 0, 1 for warnings, 2 for "
        "failures, 3 if podgpu doctor itself fails.",
    )
    parser.add_argument(
        "-c",
        "--config",
        metavar="FILE",
        type=Path,
        help="configuration file, - for standard input; without it that of the podgpu which runs "
        "here, or the one that podgpu run would take, or in its absence what dcgm-exporter's "
        "variables come to",
    )
    parser.add_argument("--json", action="store_true", help="for programs")
    add_allowed(parser)
    parser.add_argument(
        "words",
        nargs=argparse.REMAINDER,
        metavar="dcgm-exporter OPTION ...",
        help="look at what these options of dcgm-exporter's come to; they come last",
    )
    cluster = parser.add_argument_group("the cluster, from anywhere")
    cluster.add_argument(
        "--cluster", action="store_true", help="look at podgpu's objects in a cluster instead"
    )
    cluster.add_argument(
        "--kubeconfig",
        metavar="FILE",
        type=Path,
        help="credentials; else those of KUBECONFIG, else those of the pod",
    )
    cluster.add_argument(
        "--namespace", metavar="NS", default="", help="podgpu's namespace; else all are looked at"
    )
    parser.set_defaults(command=partial(_doctor, parser))


def _doctor(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> int:
    if fault := _contradiction(arguments):
        parser.error(fault)
    from podgpu.cli.doctor import command

    return command.doctor(arguments)


def _contradiction(arguments: argparse.Namespace) -> str:
    """Return which arguments would be ignored; empty if none would."""
    words, config = arguments.words, arguments.config
    if words and words[0] != BEHIND:
        return f"unrecognized arguments: {' '.join(words)}"
    if words and config is not None:
        return f"-c names a file, {BEHIND} options: give one of the two"
    if arguments.cluster and (config is not None or words):
        return f"--cluster looks at no configuration: leave out {'-c' if config else BEHIND}"
    if arguments.cluster and allowed_of(arguments) != NOTHING:
        return f"--cluster looks at no configuration: leave out {OPTION} and {LIBRARY}"
    if not arguments.cluster and (arguments.kubeconfig is not None or arguments.namespace):
        name = "--kubeconfig" if arguments.kubeconfig is not None else "--namespace"
        return (
            f"{name} is for --cluster, which is missing; the credentials of sources and sinks "
            "stand in the configuration file"
        )
    return ""
