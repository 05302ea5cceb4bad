"""Options of `podgpu extender`. All commands import this module, so it imports almost nothing."""

from config.value_types import Duration, ListenAddress
from pipeline.kube.name_rules import key_problem
from podgpu.cli.shared_options import (
    Commands,
    add_file,
    address,
    argument_type,
    duration_between,
    matching,
    run_later,
)

# A DNS prefix of at most 253 characters, a slash, and a name of at most 63 characters.
_name = matching(
    "[A-Za-z0-9](?:[-A-Za-z0-9._/]{0,315}[A-Za-z0-9])?",
    "{} is not a resource name; write for example example.com/gpu",
)
_host = matching(
    r"\*|(?:\*\.)?[A-Za-z0-9_.-]+", "{} is not a host name; write for example gpus.example"
)
# Less than ten seconds, the time limit of the server for a handler.
_timeout = duration_between("10ms", "9s")


def add(commands: Commands) -> None:
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
    kubeconfig = "credentials; default: those of the pod that it runs in"
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
    parser.set_defaults(command=run_later("podgpu.cli.extender.command:run"))


def _key(text: str) -> str:
    if problem := key_problem(text):
        raise ValueError(problem)
    return text
