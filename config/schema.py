"""What a configuration file comes to once it is read."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from config.option_markers import AtLeast, Doc, LeadsTo, OneOf, Role
from config.value_types import Duration, ListenAddress


class Component(msgspec.Struct, frozen=True):
    """One source or sink of the file; equal if nothing about it has changed.

    Attributes:
        role: ``source`` or ``sink``.
        name: The key in the file, unique within the role.
        kind: Which implementation.
        options: The options of that kind, checked.
    """

    role: Literal["source", "sink"]
    name: str
    kind: str
    options: msgspec.Struct


class Log(msgspec.Struct, frozen=True, kw_only=True):
    """How the daemon logs."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"], Doc("The least severe messages to log.")
    ] = "info"
    format: Annotated[Literal["text", "json"], Doc("One line of text or of JSON per message.")] = (
        "text"
    )


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """Which readings are taken and shown."""

    file: Annotated[
        Path | None,
        Doc("A counters file of dcgm-exporter: its rows say which fields there are."),
    ] = None
    configmap: Annotated[
        str,
        msgspec.Meta(pattern=r"^([^:\s]+:[^:\s]+)?$"),
        Doc("A ConfigMap, as NAMESPACE:NAME, whose key metrics holds such a file."),
    ] = ""
    kubeconfig: Annotated[
        Path | None,
        LeadsTo("kubeconfig"),
        Doc(
            "Credentials for the API server that has the ConfigMap; none for those of the pod that "
            "podgpu runs in."
        ),
    ] = None
    own: Annotated[
        bool, Doc("Whether podgpu's own readings are shown beside the rows of a file.")
    ] = True
    also: Annotated[
        tuple[Annotated[str, OneOf("field or group")], ...],
        Doc(
            "Further fields by name, and groups: profiling, statistics, links, health, limits; "
            "all for everything."
        ),
    ] = ()

    def problems(self) -> Iterable[tuple[str, str]]:
        """One list at a time."""
        if self.file is not None and self.configmap:
            yield "configmap", "there is a file too: give one of the two"


class Http(msgspec.Struct, frozen=True, kw_only=True):
    """What all HTTP listeners have in common."""

    listen: Annotated[
        ListenAddress | None,
        Doc("Where health and the page at / are served, if no sink listens there anyway."),
    ] = None
    web_config: Annotated[
        Path | None,
        Doc(
            "A web configuration file as Prometheus' own exporters take it: TLS, client "
            "certificates, users and their passwords. It holds for every listener."
        ),
    ] = None
    allowed_hosts: Annotated[
        tuple[Annotated[str, msgspec.Meta(pattern=r"^(\*|(\*\.)?[A-Za-z0-9_.-]+)$")], ...],
        Doc(
            "Further names that a request may have as its host: *.example.com stands for all "
            "names below example.com, * for every name. Allowed without it are IP addresses, "
            "localhost, names without a dot, *.svc, *.cluster.local, the names of host and node, "
            "names whose first label is one of them, and the host that is listened on. It holds "
            "for every listener that asks for neither a password nor a client certificate."
        ),
    ] = ()


# A new top-level key is a new field here: the loader and the JSON Schema read this class.
class Config(msgspec.Struct, frozen=True, kw_only=True):
    """The whole file."""

    node: Annotated[str, Doc("The name of the node; empty takes the name of the host.")] = ""
    sources: Annotated[
        dict[str, Component],
        Role("source", "there is nothing to do: no source is configured"),
        Doc("Where readings come from, each under a name of its own."),
    ]
    sinks: Annotated[
        dict[str, Component],
        Role("sink", "readings would go nowhere: no sink is configured"),
        Doc("Where readings go to, each under a name of its own."),
    ]
    counters: Annotated[Counters, Doc("Which readings are taken and shown.")] = Counters()
    http: Annotated[Http, Doc("What all HTTP listeners have in common.")] = Http()
    log: Annotated[Log, Doc("How the daemon logs.")] = Log()
    shutdown_grace: Annotated[
        Duration,
        AtLeast("0s"),
        Doc("How long a stopping daemon waits for its sinks to finish."),
    ] = Duration.parse("10s")
