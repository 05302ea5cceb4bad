"""What a configuration file comes to once it is read."""

from typing import Annotated, Literal

import msgspec

from config.markers import AtLeast, Doc, Role
from config.types import Duration


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
    log: Annotated[Log, Doc("How the daemon logs.")] = Log()
    shutdown_grace: Annotated[
        Duration,
        AtLeast("0s"),
        Doc("How long a stopping daemon waits for its sinks to finish."),
    ] = Duration.parse("10s")
