"""Options of `podgpu doctor`. All commands import this module, so it imports almost nothing."""

import argparse
from typing import Final

from pipeline.component.code_permissions import LIBRARY, NOTHING, OPTION
from podgpu.cli.shared_options import Commands, add_allowed, add_file, allowed_of, run_later

DCGM_COMMAND: Final = "dcgm-exporter"
"""The argument after which all options are those of dcgm-exporter."""


def add(commands: Commands) -> None:
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
    add_file(
        parser,
        "-c",
        "--config",
        help_text="configuration file, - for standard input; default: that of the podgpu running "
        "here, else the one that podgpu run would use, else dcgm-exporter's environment variables",
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
    kubeconfig = "credentials; default: those of KUBECONFIG, else those of the pod"
    add_file(cluster, "--kubeconfig", help_text=kubeconfig)
    cluster.add_argument(
        "--namespace", metavar="NS", default="", help="podgpu's namespace; default: all"
    )
    parser.set_defaults(
        command=run_later("podgpu.cli.doctor.command:doctor", parser, _contradiction)
    )


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
