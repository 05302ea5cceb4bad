"""Options of `podgpu extender`. All commands import this module, so it imports almost nothing."""

import argparse
import re
from pathlib import Path
from typing import Final

from config.value_types import Duration, ListenAddress
from pipeline.kube.name_rules import key_problem
from podgpu.cli.argument_types import address, duration

_NAME: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9._/]{0,315}[A-Za-z0-9])?")
"""A DNS prefix of at most 253 characters, a slash, and a name of at most 63 characters."""

_HOST: Final = re.compile(r"\*|(?:\*\.)?[A-Za-z0-9_.-]+")
_MIN_TIMEOUT: Final = Duration.parse("10ms")
_MAX_TIMEOUT: Final = Duration.parse("9s")
"""Less than ten seconds, the time limit of the server for a handler."""


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser of podgpu."""
    parser = commands.add_parser(
        "extender",
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
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        type=Path,
        help="credentials; default: those of the pod that it runs in",
    )
    parser.add_argument(
        "--annotation",
        metavar="KEY",
        type=_key,
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
    parser.add_argument(
        "--web-config",
        metavar="FILE",
        type=Path,
        help="TLS, client certificates, users and their passwords",
    )
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
    parser.set_defaults(command=_extender)


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise argparse.ArgumentTypeError(
            f"{text[:60]!r} is not a resource name; write for example example.com/gpu"
        )
    return text


def _host(text: str) -> str:
    if not _HOST.fullmatch(text):
        raise argparse.ArgumentTypeError(
            f"{text[:60]!r} is not a host name; write for example gpus.example"
        )
    return text


def _key(text: str) -> str:
    if problem := key_problem(text):
        raise argparse.ArgumentTypeError(problem)
    return text


def _timeout(text: str) -> Duration:
    value = duration(text)
    if not _MIN_TIMEOUT <= value <= _MAX_TIMEOUT:
        raise argparse.ArgumentTypeError(f"{text} is not between {_MIN_TIMEOUT} and {_MAX_TIMEOUT}")
    return value


def _extender(arguments: argparse.Namespace) -> int:
    from podgpu.cli.extender import command

    return command.run(arguments)
