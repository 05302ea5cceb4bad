"""Permission to run code that the configuration names: libraries, and programs of kubeconfigs.

Without this, anyone who can write the configuration could run any code as podgpu. Only the command
line gives permission, because the same person could set an option in the configuration.
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
from config.yaml_composer import ListNode, MapNode, Node, ScalarNode, compose

OPTION: Final = "--allow-configured-code"
LIBRARY: Final = "--allow-library"

FIX: Final = (
    f"start podgpu with {OPTION} if everyone who can write these files may run programs as "
    "podgpu; otherwise use a kubeconfig with a token or a certificate"
)

GIVE_BOTH: Final = "give podgpu doctor the same option"
"""The fix in findings of `podgpu doctor`, which also runs such code only with these options."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """Code that the command line allows.

    Attributes:
        everything: whether all code that the configuration names may run.
        libraries: paths of the libraries that podgpu may load.
    """

    everything: bool = False
    libraries: frozenset[Path] = frozenset()

    def library(self, path: Path) -> bool:
        """Return whether podgpu may load a library that the configuration names."""
        return self.everything or path in self.libraries


NOTHING: Final = Allowed()
"""The default: no code is allowed."""


def names_kubeconfig(config: Config) -> bool:
    """Return whether the configuration names a kubeconfig; then `plugins` has to read files."""
    return any(kind == "kubeconfig" for _, kind, _ in _leading(config))


def libraries(config: Config, allowed: Allowed) -> list[Problem]:
    """Return a problem for each configured library that the command line does not allow."""
    return [
        Problem(
            place,
            f"{shown(str(path))} is a library named in the configuration; podgpu does not load it",
            f"start podgpu with {LIBRARY} {path}, or with {OPTION} for everything the file names",
        )
        for place, kind, path in _leading(config)
        if kind == "library" and not allowed.library(path)
    ]


def plugins(config: Config, allowed: Allowed) -> list[Problem]:
    """Return a problem for each option whose kubeconfig names a program that is not allowed.

    It reads the kubeconfigs: call it in a thread. A kubeconfig that is missing or unreadable has no
    problem here; the component that uses it reports that. `pipeline.kube.credentials` checks the
    permission again, because the file may change after this check.
    """
    if allowed.everything:
        return []
    return [
        Problem(place, f"{path}{where}; podgpu does not run it", FIX)
        for place, kind, path in _leading(config)
        if kind == "kubeconfig" and (where := _plugin(path))
    ]


def refused(config: Config, allowed: Allowed) -> list[Problem]:
    """Return the problems of `libraries` and of `plugins`. Call it in a thread."""
    return libraries(config, allowed) + plugins(config, allowed)


def _leading(config: Config) -> Iterator[tuple[str, str, Path]]:
    """Yield place, kind (`library` or `kubeconfig`) and path of each option that leads to code."""
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
    """Return `:LINE: TEXT` if the kubeconfig's current user names a program; empty if not."""
    try:
        root, _ = compose(read(path).decode("utf-8", "replace"))
    except ConfigError:
        return ""
    context = _called(_at(root, "contexts"), _text(_at(root, "current-context")))
    user = _called(_at(root, "users"), _text(_at(context, "context", "user")))
    for *steps, name in (
        ("user", "exec", "command", "exec"),
        ("user", "auth-provider", "config", "cmd-path", "auth-provider"),
    ):
        node = _at(user, *steps)
        if node is not None:
            return f":{node.line}: {name} of the current user names a program for credentials"
    return ""


def _at(node: Node | None, *steps: str) -> Node | None:
    for step in steps:
        entry = node.entries.get(step) if isinstance(node, MapNode) else None
        node = entry.value if entry is not None else None
    return node


def _called(nodes: Node | None, name: str) -> Node | None:
    """Return the entry of a list whose key `name` has this value; None if there is none."""
    entries = nodes.items if isinstance(nodes, ListNode) else []
    return next((each for each in entries if _text(_at(each, "name")) == name), None)


def _text(node: Node | None) -> str:
    return node.text if isinstance(node, ScalarNode) else ""
