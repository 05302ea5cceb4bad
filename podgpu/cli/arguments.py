"""Options of the commands `topology`, `top`, `doctor` and `extender`.

podgpu imports this module for every command, so this module imports almost nothing.
"""

import argparse
from typing import Any, Final

from config.message_text import did_you_mean
from config.value_types import Duration, ListenAddress
from pipeline.component.code_permissions import LIBRARY, NOTHING, OPTION
from pipeline.kube.name_rules import key_problem
from podgpu.cli.client_options import LOCAL, add_access
from podgpu.cli.option_parser import UNKNOWN
from podgpu.cli.shared_options import (
    Commands,
    add_allowed,
    add_command,
    add_file,
    address,
    allowed_of,
    argument_type,
    duration_between,
    matching,
)

DCGM_COMMAND: Final = "dcgm-exporter"
"""The word after which `podgpu doctor` and `podgpu` accept dcgm-exporter's options."""

TOO_FEW: Final = 3
"""Exit status of `podgpu topology best` if there are too few GPUs to choose from."""

_interval = duration_between("500ms", "1h")
_count = matching("[1-9][0-9]{0,6}", "write a number from 1 to 9999999")
# A DNS prefix of at most 253 characters, a slash, and a name of at most 63 characters.
_name = matching(
    "[A-Za-z0-9](?:[-A-Za-z0-9._/]{0,315}[A-Za-z0-9])?",
    "{} is not a resource name; write for example example.com/gpu",
)
_host = matching(
    r"\*|(?:\*\.)?[A-Za-z0-9_.-]+", "{} is not a host name; write for example gpus.example"
)
# Less than ten seconds, the HTTP server's time limit for a handler.
_timeout = duration_between("10ms", "9s")


def add_topology(commands: Commands) -> None:
    """Add `podgpu topology` and `podgpu topology best`."""
    parser = add_command(
        commands,
        "topology",
        "podgpu.cli.topology.command:topology",
        help="show the topology of the GPUs and who holds them; `topology best` chooses some",
        description="Queries the daemon on this machine. If there is none, reads NVML once.",
    )
    _add_origin(parser, None)
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="print JSON, as the daemon's /topology")
    shape.add_argument("--dot", action="store_true", help="print a graph for Graphviz")

    best = add_command(
        parser.add_subparsers(title="subcommand", metavar="[best]"),
        "best",
        "podgpu.cli.topology.command:choose",
        help="choose the best N GPUs",
        description="Chooses the GPUs that are connected best and leave the best groups for later. "
        f"Exit status {TOO_FEW} if there are too few.",
    )
    # Options before `best` apply too, so the same options after `best` have no defaults.
    _add_origin(best, argparse.SUPPRESS)
    best.add_argument("-n", dest="count", metavar="N", required=True, help="number of GPUs")
    best.add_argument("--must", metavar="GPUS", default="", help="GPUs that must be chosen")
    best.add_argument(
        "--candidates",
        metavar="GPUS",
        default=None,
        help="GPUs to choose from; default: the free ones",
    )
    best.add_argument(
        "--json",
        action="store_true",
        default=argparse.SUPPRESS,
        help="print JSON, as the daemon's /topology/best",
    )


def _add_origin(parser: argparse.ArgumentParser, default: Any) -> None:
    origin = parser.add_mutually_exclusive_group()
    origin.add_argument("--url", default=default, help=f"address of a daemon, such as {LOCAL}")
    origin.add_argument(
        "--local",
        action="store_true",
        default=default or False,
        help="read NVML; the sources of a configuration report the holders",
    )
    recording = "read the state at the end of a recording; builtin:demo is the one in podgpu"
    add_file(origin, "--recording", help_text=recording, default=default)
    config = "configuration file, for --local"
    add_file(parser, "-c", "--config", help_text=config, default=default)
    add_access(parser, default)


def add_top(commands: Commands) -> None:
    """Add `podgpu top`."""
    parser = add_command(
        commands,
        "top",
        "podgpu.cli.top.command:top",
        help="show GPUs and their holders, live",
        description="Queries the daemon on this machine. The key ? lists the other keys. If stdout "
        "is not a terminal, prints a table once.",
    )
    parser.add_argument("--url", default=LOCAL, help=f"address of a daemon (default {LOCAL})")
    parser.add_argument(
        "--interval",
        metavar="DURATION",
        type=_interval,
        default=_interval("1s"),
        help="interval of the queries (default 1s)",
    )
    parser.add_argument("--once", action="store_true", help="print a table once, and exit")
    add_access(parser)


def add_doctor(commands: Commands) -> None:
    """Add `podgpu doctor`."""
    parser = add_command(
        commands,
        "doctor",
        "podgpu.cli.doctor.command:doctor",
        _doctor_contradiction,
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
        "here, else the one that podgpu run would use, else dcgm-exporter's environment variables, "
        "else that of a running podgpu demo",
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


def _doctor_contradiction(arguments: argparse.Namespace) -> str:
    """Return an error if arguments contradict each other or have no effect; empty if none."""
    words, config = arguments.words, arguments.config
    if words and words[0] != DCGM_COMMAND:
        if words[0].startswith("-"):
            return UNKNOWN + " ".join(words)
        hint = did_you_mean(words[0], [DCGM_COMMAND])
        return f"only {DCGM_COMMAND} and its options can follow here" + (
            f"; {hint}" if hint else ""
        )
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


def add_extender(commands: Commands) -> None:
    """Add `podgpu extender`."""
    parser = add_command(
        commands,
        "extender",
        "podgpu.cli.extender.command:run",
        help="run a scheduler extender, which selects nodes with suitable GPUs for kube-scheduler",
        description="Watches the topology that podgpu writes to each Node, and serves /filter and "
        "/prioritize for kube-scheduler until SIGTERM. Run one for a cluster.",
    )
    parser.add_argument(
        "--listen",
        metavar="ADDRESS",
        type=address,
        default=ListenAddress("", 9410),
        help="address to serve on (%(default)s)",
    )
    kubeconfig = "credentials; default: those of the pod that podgpu runs in"
    add_file(parser, "--kubeconfig", help_text=kubeconfig)
    parser.add_argument(
        "--annotation",
        metavar="KEY",
        type=argument_type(_key),
        default="podgpu.io/topology",
        help="annotation of the Nodes with the topology (%(default)s)",
    )
    parser.add_argument(
        "--resource",
        metavar="NAME",
        dest="resources",
        type=_name,
        action="append",
        help="resource whose devices are GPUs (nvidia.com/gpu); can be given several times",
    )
    web_config = "TLS, client certificates, users and their passwords"
    add_file(parser, "--web-config", help_text=web_config)
    parser.add_argument(
        "--allowed-host",
        metavar="NAME",
        dest="allowed_hosts",
        type=_host,
        action="append",
        help="additional host name that requests may use: *.example.com for all names below it, * "
        "for any. Always allowed: IP addresses, localhost, names without a dot, *.svc and "
        "*.cluster.local. Can be given several times",
    )
    parser.add_argument(
        "--timeout",
        metavar="DURATION",
        type=_timeout,
        default=Duration.parse("3s"),
        help="time limit of a response; less than the scheduler's httpTimeout (%(default)s)",
    )


def _key(text: str) -> str:
    if problem := key_problem(text):
        raise ValueError(problem)
    return text
