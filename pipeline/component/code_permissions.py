"""Code that a configuration leads to: a library to load, a program that a kubeconfig names.

Whoever may write the configuration could run anything as podgpu by it, so that the command line
alone allows it: an option in the file could be set by whoever writes the file.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from config.errors import ConfigError, Problem
from config.loader import read
from config.message_text import shown
from config.schema import Config
from config.type_shapes import Maybe, Record, Scalar, record
from config.yaml_composer import compose
from config.yaml_nodes import ListNode, MapNode, Node, ScalarNode

OPTION: Final = "--allow-configured-code"
LIBRARY: Final = "--allow-library"

FIX: Final = (
    f"start podgpu with {OPTION} if everybody who may write these files may run programs as "
    "podgpu, or name a kubeconfig with a token or a certificate"
)

GIVE_BOTH: Final = "give podgpu doctor the same option"
"""For the doctor: it runs no such code by itself either."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """What the command line allows.

    Attributes:
        everything: whatever the configuration leads to.
        libraries: these files may be loaded.
    """

    everything: bool = False
    libraries: frozenset[Path] = frozenset()

    def library(self, path: Path) -> bool:
        """Return whether a file that the configuration names may be loaded."""
        return self.everything or path in self.libraries


NOTHING: Final = Allowed()
"""What is allowed by itself."""


def names_kubeconfig(config: Config) -> bool:
    """Return whether there is anything for `plugins` to look at."""
    return any(kind == "kubeconfig" for _, kind, _ in _leading(config))


def libraries(config: Config, allowed: Allowed) -> list[Problem]:
    """Return the libraries that a configuration names and that may not be loaded."""
    return [
        Problem(
            place,
            f"{shown(str(path))} is code that the configuration names, and is not loaded",
            f"start podgpu with {LIBRARY} {path}, or with {OPTION} for whatever the file names",
        )
        for place, kind, path in _leading(config)
        if kind == "library" and not allowed.library(path)
    ]


def plugins(config: Config, allowed: Allowed) -> list[Problem]:
    """Return the programs that kubeconfigs name and that may not be run. Blocking.

    A kubeconfig that isn't there or can't be read names none here; whoever reads it says so. What
    is in force is what `pipeline.kube.credential_plugins` refuses: the file may be another one by
    then.
    """
    if allowed.everything:
        return []
    return [
        Problem(place, f"{path}{where}, which is not run", FIX)
        for place, kind, path in _leading(config)
        if kind == "kubeconfig" and (where := _plugin(path))
    ]


def refused(config: Config, allowed: Allowed) -> list[Problem]:
    """Return all code that a configuration leads to and that may not run. Blocking."""
    return libraries(config, allowed) + plugins(config, allowed)


def _leading(config: Config) -> Iterator[tuple[str, str, Path]]:
    """Yield the place, the kind and the value of each option that leads to code."""
    yield from _of(config.counters, "counters")
    yield from _of(config.http, "http")
    for role, components in (("sources", config.sources), ("sinks", config.sinks)):
        for name, component in components.items():
            yield from _of(component.options, f"{role}.{name}")


def _of(options: msgspec.Struct, place: str) -> Iterator[tuple[str, str, Path]]:
    for field in record(type(options)).fields:
        value = getattr(options, field.name)
        shape = field.shape.inner if isinstance(field.shape, Maybe) else field.shape
        if value is None:
            continue
        if isinstance(shape, Record):
            yield from _of(value, f"{place}.{field.key}")
        elif isinstance(shape, Scalar) and shape.leads_to:
            yield f"{place}.{field.key}", shape.leads_to, value


def _plugin(path: Path) -> str:
    """Return where a kubeconfig names a program for its current user, for people; else nothing."""
    try:
        root, _ = compose(read(path).decode("utf-8", "replace"))
    except ConfigError:
        return ""
    context = _called(_at(root, "contexts"), _text(_at(root, "current-context")))
    user = _called(_at(root, "users"), _text(_at(context, "context", "user")))
    for *steps, told in (
        ("user", "exec", "command", "exec"),
        ("user", "auth-provider", "config", "cmd-path", "auth-provider"),
    ):
        node = _at(user, *steps)
        if node is not None:
            return f":{node.line}: {told} of the current user names a program for its credentials"
    return ""


def _at(node: Node | None, *steps: str) -> Node | None:
    for step in steps:
        entry = node.entries.get(step) if isinstance(node, MapNode) else None
        node = entry.value if entry is not None else None
    return node


def _called(nodes: Node | None, name: str) -> Node | None:
    """Return the entry of a list of named ones."""
    entries = nodes.items if isinstance(nodes, ListNode) else []
    return next((each for each in entries if _text(_at(each, "name")) == name), None)


def _text(node: Node | None) -> str:
    return node.text if isinstance(node, ScalarNode) else ""
