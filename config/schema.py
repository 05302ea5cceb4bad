"""The structure of the configuration file: its top-level options."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from config.option_markers import AtLeast, Doc, LeadsTo, OneOf, Role
from config.value_types import Duration, ListenAddress


class Component(msgspec.Struct, frozen=True):
    """One source or sink of the file. Two components are equal if all their options are equal.

    Attributes:
        role: ``source`` or ``sink``.
        name: The key in the file, unique within the role.
        kind: The implementation that it uses, such as ``nvml``.
        options: The checked options of the kind.
    """

    role: Literal["source", "sink"]
    name: str
    kind: str
    options: msgspec.Struct


class Log(msgspec.Struct, frozen=True, kw_only=True):
    """How the daemon logs."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"], Doc("The lowest severity to log.")
    ] = "info"
    format: Annotated[Literal["text", "json"], Doc("One line of text or of JSON per message.")] = (
        "text"
    )


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """Which fields are read and exported."""

    file: Annotated[
        Path | None,
        Doc("A counters file in dcgm-exporter's format: its rows are the fields to export."),
    ] = None
    configmap: Annotated[
        str,
        msgspec.Meta(pattern=r"^([^:\s]+:[^:\s]+)?$"),
        Doc("A ConfigMap with such a file in its key metrics, as NAMESPACE:NAME."),
    ] = ""
    rows: Annotated[
        tuple[str, ...], Doc("The rows of such a file, written here: NAME, type, help.")
    ] = ()
    kubeconfig: Annotated[
        Path | None,
        LeadsTo("kubeconfig"),
        Doc(
            "Credentials for the API server with the ConfigMap; by default those of podgpu's "
            "own pod."
        ),
    ] = None
    own: Annotated[
        bool, Doc("Whether podgpu's own fields are exported in addition to the rows of a file.")
    ] = True
    also: Annotated[
        tuple[Annotated[str, OneOf("field or group")], ...],
        Doc(
            "Additional fields, by name or by group: profiling, statistics, links, health, "
            "limits, details; all for every field."
        ),
    ] = ()

    def problems(self) -> Iterable[tuple[str, str]]:
        """Return a problem for each list of fields that is set in addition to another one."""
        given = [name for name in ("file", "configmap", "rows") if getattr(self, name)]
        for name in given[1:]:
            yield name, f"{given[0]} is set too: remove one of the two"


class Http(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of all HTTP listeners."""

    listen: Annotated[
        ListenAddress | None,
        Doc("Address of health checks and the page at /; needed only if no sink listens on it."),
    ] = None
    web_config: Annotated[
        Path | None,
        Doc(
            "A web configuration file in the format of Prometheus exporters: TLS, client "
            "certificates, users and passwords. It applies to every listener."
        ),
    ] = None
    allowed_hosts: Annotated[
        tuple[Annotated[str, msgspec.Meta(pattern=r"^(\*|(\*\.)?[A-Za-z0-9_.-]+)$")], ...],
        Doc(
            "Further host names that requests may use: *.example.com means all names below "
            "example.com, * means every name. Always allowed are IP addresses, localhost, names "
            "without a dot, *.svc, *.cluster.local, the names of the host and the node, names "
            "with one of these as first label, and the host of the listen address. It applies to "
            "every listener without passwords and client certificates."
        ),
    ] = ()


# A new top-level key is a new field here: the loader and the JSON Schema read this class.
class Config(msgspec.Struct, frozen=True, kw_only=True):
    """The top level of the configuration file."""

    node: Annotated[str, Doc("The node's name; if empty, the host name.")] = ""
    sources: Annotated[
        dict[str, Component],
        Role("source", "no source is configured: add at least one"),
        Doc("Sources of readings, each under its own name."),
    ]
    sinks: Annotated[
        dict[str, Component],
        Role("sink", "no sink is configured: add at least one"),
        Doc("Sinks, which receive all readings, each under its own name."),
    ]
    counters: Annotated[Counters, Doc("Which fields are read and exported.")] = Counters()
    http: Annotated[Http, Doc("Settings of all HTTP listeners.")] = Http()
    log: Annotated[Log, Doc("How the daemon logs.")] = Log()
    shutdown_grace: Annotated[
        Duration,
        AtLeast("0s"),
        Doc("How long podgpu waits for its sinks when it stops."),
    ] = Duration.parse("10s")
