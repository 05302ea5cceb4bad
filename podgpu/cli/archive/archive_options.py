"""Options of `podgpu archive`. podgpu imports this module for every command."""

import argparse
from typing import Final

from podgpu.cli.archive.compact_options import add_compact
from podgpu.cli.shared_options import Commands, add_command, add_ledger, duration_between, matching

_cluster = matching(
    "[A-Za-z0-9](?:[-A-Za-z0-9._]{0,251}[A-Za-z0-9])?",
    "{} is not a name; write letters, digits, and - . _ between them, such as east-1",
)
_interval = duration_between("1m", "24h")
_grace = duration_between("1s", "10m")

_MISSING_CLUSTER: Final = (
    "--cluster is missing: give the cluster's name, such as --cluster east; it is part of each "
    "row, so choose one that no other cluster of the archive has"
)


def add_archive(commands: Commands) -> None:
    """Add `podgpu archive` and `podgpu archive compact`."""
    parser = add_command(
        commands,
        "archive",
        "podgpu.cli.archive.command:archive",
        _contradiction,
        help="write the ledger's usage to an archive: a bucket or a folder",
        description="Writes the closed hours and the ended holdings of a ledger as Parquet objects "
        "to an archive, from which podgpu usage --from reports over nodes and months. Runs until "
        "SIGTERM, and then writes once more. What cannot be written stays in the ledger and is "
        "written later. For example: podgpu archive --to s3://usage/gpus --cluster east",
        epilog="Credentials come from the environment, such as AWS_ACCESS_KEY_ID. The node needs "
        "only the right to write below v1/nodes/CLUSTER/NODE/.",
    )
    parser.add_argument(
        "--to",
        metavar="LOCATION",
        help="the archive: an absolute path, or a URL such as s3://BUCKET/PREFIX, "
        "gs://BUCKET/PREFIX or az://CONTAINER/PREFIX",
    )
    parser.add_argument(
        "--cluster", metavar="NAME", type=_cluster, help="name of the cluster, part of each row"
    )
    parser.add_argument(
        "--node",
        metavar="NAME",
        type=_cluster,
        help="name of the node, part of each row; default: the name in the ledger",
    )
    parser.add_argument(
        "--interval",
        metavar="DURATION",
        type=_interval,
        default=_interval("1h"),
        help="time between two writes, on average (default 1h); it varies by a quarter, so that "
        "nodes do not write at the same time",
    )
    parser.add_argument("--once", action="store_true", help="write once, and exit")
    parser.add_argument(
        "--grace",
        metavar="DURATION",
        type=_grace,
        default=_grace("20s"),
        help="time for the last write after SIGTERM (default 20s)",
    )
    add_ledger(parser)
    add_compact(parser.add_subparsers(title="subcommand", metavar="[compact]"))


def _contradiction(arguments: argparse.Namespace) -> str:
    """Return an error if an option is missing or contradicts another one; empty if none."""
    if arguments.to is None:
        return "--to is missing: give the archive, such as --to s3://BUCKET/PREFIX"
    if arguments.cluster is None:
        return _MISSING_CLUSTER
    if arguments.ledger is not None and (arguments.config is not None or arguments.sink):
        return f"--ledger already names the file: remove {'-c' if arguments.config else '--sink'}"
    return ""
