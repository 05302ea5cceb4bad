"""What the command takes. It loads next to nothing: the other commands load it too."""

import argparse
import re
from pathlib import Path
from typing import Final

from config.value_types import Duration, ListenAddress
from pipeline.kube.name_rules import key_problem
from podgpu.cli.argument_types import address, duration

_NAME: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9._/]{0,315}[A-Za-z0-9])?")
"""A prefix of at most 253 characters, a slash, and a name of at most 63."""

_HOST: Final = re.compile(r"\*|(?:\*\.)?[A-Za-z0-9_.-]+")
_LEAST: Final = Duration.parse("10ms")
_MOST: Final = Duration.parse("9s")
"""A listener gives up after ten seconds."""


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to podgpu's."""
    parser = commands.add_parser(
        "extender",
        help="answer kube-scheduler: which nodes have the GPUs that a pod wants",
        description="Follows the topology that each node's podgpu writes on its Node, and answers "
        "kube-scheduler at /filter and /prioritize until SIGTERM. One for a cluster.",
    )
    parser.add_argument(
        "--listen",
        metavar="ADDRESS",
        type=address,
        default=ListenAddress("", 9410),
        help="where the scheduler asks (%(default)s)",
    )
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        type=Path,
        help="credentials; without it those of the pod it runs in",
    )
    parser.add_argument(
        "--annotation",
        metavar="KEY",
        type=_key,
        default="podgpu.io/topology",
        help="of the Nodes (%(default)s)",
    )
    parser.add_argument(
        "--resource",
        metavar="NAME",
        dest="resources",
        type=_name,
        action="append",
        help="whose devices are GPUs (nvidia.com/gpu); may be given again",
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
        help="a further name by which the scheduler may ask, *.example.com for all below it, * for "
        "any; allowed without it are IP addresses, localhost, names without a dot, *.svc and "
        "*.cluster.local; may be given again",
    )
    parser.add_argument(
        "--timeout",
        metavar="DURATION",
        type=_timeout,
        default=Duration.parse("3s"),
        help="in which there is an answer; less than the scheduler's httpTimeout (%(default)s)",
    )
    parser.set_defaults(command=_extender)


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text[:60]!r} is no name; write such as example.com/gpu")
    return text


def _host(text: str) -> str:
    if not _HOST.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text[:60]!r} is no name; write such as gpus.example")
    return text


def _key(text: str) -> str:
    if wrong := key_problem(text):
        raise argparse.ArgumentTypeError(wrong)
    return text


def _timeout(text: str) -> Duration:
    value = duration(text)
    if not _LEAST <= value <= _MOST:
        raise argparse.ArgumentTypeError(f"{text} is not between {_LEAST} and {_MOST}")
    return value


def _extender(arguments: argparse.Namespace) -> int:
    from podgpu.cli.extender import command

    return command.run(arguments)
