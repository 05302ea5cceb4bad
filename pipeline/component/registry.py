"""All kinds of source and sink.

A new kind is a package with a module `kind`, its tests, its page in `docs/`, one name here and one
row in `docs/troubleshooting.md`; see `docs/adding-a-source.md`. Other code of a kind is imported
only when it is used.
"""

import importlib
from collections.abc import Sequence
from typing import Final, cast

import msgspec

from pipeline.base.telemetry import FAMILIES
from pipeline.component.contracts import Sink, SinkContext, Source
from pipeline.component.kind import Kind, Role
from pipeline.fields import all_words
from pipeline.fields.name_answers import NameAnswers
from pipeline.model import SourceAdded

_SOURCES: Final = (
    "nvml",
    "podlist",
    "podresources",
    "checkpoint",
    "pods",
    "nri",
    "docker",
    "dcgm",
    "hostengine",
    "kernel",
    "slurm",
    "jobfiles",
    "replay",
)
_SINKS: Final = (
    "prometheus",
    "textfile",
    "jsonl",
    "otlp",
    "podlist",
    "pods",
    "ledger",
    "node",
    "events",
)


def load(dotted: str) -> object:
    """Import the object at a dotted path `module:name`."""
    module, _, name = dotted.partition(":")
    return cast("object", getattr(importlib.import_module(module), name))


KINDS: Final[dict[tuple[Role, str], Kind]] = {
    **{("source", name): cast("Kind", load(f"sources.{name}.kind:KIND")) for name in _SOURCES},
    **{("sink", name): cast("Kind", load(f"sinks.{name}.kind:KIND")) for name in _SINKS},
}


OWN_FAMILIES: Final = tuple(
    dict.fromkeys((*FAMILIES, *(each for kind in KINDS.values() for each in kind.families)))
)
"""All of podgpu's own metrics, in the order in which they are exported."""


class RegisteredKinds:
    """The registry in the form that `config` needs: names of kinds, and classes of options."""

    def names(self, role: str) -> Sequence[str]:
        """Return the names of all kinds of a role (`source` or `sink`)."""
        return [kind for known_role, kind in KINDS if known_role == role]

    def options(self, role: str, kind: str) -> type[msgspec.Struct]:
        """Return the options class of a kind.

        Raises:
            KeyError: there is no such kind.
        """
        return cast("type[msgspec.Struct]", load(KINDS[cast("Role", role), kind].options))

    def allowed_values(self, noun: str) -> Sequence[str]:
        """Return the values that an option with names of fields may have.

        Args:
            noun: what the option names; only "field or group" is supported.

        Returns:
            All names of fields and of groups of fields.

        Raises:
            KeyError: another noun.
        """
        return {"field or group": all_words}[noun]()

    def hint(self, noun: str, word: str) -> str:
        """Return how to correct a word that is not an allowed value; empty if that is unknown.

        Args:
            noun: what the option names; only "field or group" is supported.
            word: the word.

        Raises:
            KeyError: another noun.
        """
        return {"field or group": NameAnswers().hint}[noun](word)


def source_added(kind: str, options: msgspec.Struct, order: int) -> SourceAdded:
    """Return the event that announces a source to the join."""
    found = KINDS.get(("source", kind))
    resolves = found.resolves if found is not None else frozenset()
    if not getattr(options, "resource_slices", True):
        resolves -= {"names"}
    return SourceAdded(order, tuple(sorted(resolves)))


def build_source(kind: str, options: msgspec.Struct) -> Source:
    """Create a source of a registered kind."""
    factory = load(KINDS["source", kind].factory)
    return cast("Source", factory(options))  # type: ignore[operator]


def build_sink(kind: str, options: msgspec.Struct, ctx: SinkContext) -> Sink:
    """Create a sink of a registered kind."""
    factory = load(KINDS["sink", kind].factory)
    return cast("Sink", factory(options, ctx))  # type: ignore[operator]
