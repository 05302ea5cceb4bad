"""Options of `podgpu usage` for a server with Prometheus' HTTP API.

podgpu imports this module for every command, so this module imports almost nothing.
`server_access` reads the files that the options name.
"""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pipeline.base.errors import PermanentError
from podgpu.cli.client_options import add_access
from podgpu.cli.shared_options import add_file, argument_type, duration_between, matching

if TYPE_CHECKING:
    import ssl

EXAMPLE: Final = "http://prometheus.monitoring:9090"

_timeout = duration_between("1s", "1h")
_label = matching("[a-zA-Z_][a-zA-Z0-9_]{0,99}", "{} is not the name of a label")
_SET_BY_PODGPU: Final = ("accept", "accept-encoding", "content-length", "content-type", "host")


@dataclass(frozen=True, slots=True)
class Server:
    """A server with Prometheus' HTTP API.

    Attributes:
        url: the address before `/api/v1`, without a slash at the end.
        headers: headers of each request. `repr` does not show them: they may contain a password.
        timeout: seconds for one query.
        context: verifies the server; None for the certificates of the system, and without TLS.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout: float = 120.0
    context: "ssl.SSLContext | None" = None


def add_prometheus(parser: argparse.ArgumentParser) -> None:
    """Add the options for a server to `podgpu usage`."""
    group = parser.add_argument_group(
        "a Prometheus server instead of a ledger",
        "Prometheus, VictoriaMetrics, Thanos or Mimir, with or without podgpu's recording rules. "
        "The report says how exact it is.",
    )
    group.add_argument(
        "--prometheus",
        metavar="URL",
        help=f"address of the server, such as {EXAMPLE}: the part before /api/v1",
    )
    group.add_argument(
        "--cluster-label",
        metavar="NAME",
        type=_label,
        default="cluster",
        help="label that names the cluster of a node, such as an external label (%(default)s)",
    )
    group.add_argument(
        "--header",
        metavar="'NAME: VALUE'",
        dest="headers",
        type=argument_type(_header),
        action="append",
        help="header of each request, such as 'X-Scope-OrgID: TENANT'; can be given several times",
    )
    token = "file with a token for the header Authorization"  # noqa: S105 -- a help text
    add_file(group, "--bearer-token-file", help_text=token)
    group.add_argument(
        "--query-timeout",
        metavar="DURATION",
        type=_timeout,
        default=_timeout("2m"),
        help="time limit for one query (%(default)s)",
    )
    add_access(parser, title="a server with TLS or a password")


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    name, value = name.strip(), value.strip()
    if not colon or not name.isascii() or not name.replace("-", "").replace("_", "").isalnum():
        raise ValueError("write a header such as 'X-Scope-OrgID: TENANT'")
    if not value.isascii() or not value.isprintable():
        raise ValueError(f"the value of {name} has characters that a header cannot have")
    if name.lower() in ("authorization", "proxy-authorization"):
        raise ValueError(
            "other users of this machine could read it: use --bearer-token-file, or --user"
        )
    if name.lower() in _SET_BY_PODGPU:
        raise ValueError(f"podgpu sets {name} itself")
    return name, value


def checked_url(text: str) -> str:
    """Return the address of a server without a slash at the end.

    Raises:
        PermanentError: the text is no such address. The message does not repeat it, because it may
            contain a password.
    """
    from urllib.parse import urlsplit  # for this command only

    if "@" in text:
        raise PermanentError(
            "--prometheus: do not put a user name or password in the address, because other users "
            "could read them: give --user and --password-file"
        )
    try:
        where = urlsplit(text)
        _ = where.port  # raises ValueError if it is invalid
    except ValueError:
        where = urlsplit("")
    if where.scheme not in ("http", "https") or not where.hostname:
        raise PermanentError(f"--prometheus: not a valid address: give one such as {EXAMPLE}")
    if where.query or where.fragment:
        raise PermanentError("--prometheus: the address must have no query and no fragment")
    path = where.path.rstrip("/").removesuffix("/graph").removesuffix("/api/v1")
    return f"{where.scheme}://{where.netloc}{path.rstrip('/')}"
