"""The page of all options, generated from the classes that the loader reads.

`docs/reference.md` is the result of `page()`; `tests/test_reference.py` compares them.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from config.converter import NAME
from config.option_docs import describe
from config.schema import Config
from config.type_shapes import Items, Limits, Maybe, Record, Scalar, Shape, Table, record
from pipeline.component.registry import KINDS, RegisteredKinds
from tests.docs.wrap import wrapped

_INTRO: Final = """\
# Every option

```yaml
sources:
  gpus: {kind: nvml, interval: 1s}
sinks:
  metrics: {kind: prometheus, listen: ":9400"}
```

All keys of the [configuration file](configuration.md). This page is generated from the program;
`podgpu schema` prints the same as a JSON schema for editors. The page of each source and sink
explains its options. [Values](configuration.md#values) explains durations, sizes and patterns.

`name[]` is each entry of a list, and `name.*` each key of a mapping. `null` means no value. Every
value can come from an [environment variable](configuration.md#environment-variables). Some options
depend on each other, such as `interval` and `slow_interval`; `podgpu check` reports
contradictions.
"""
_COMPONENTS: Final = """\
A mapping from a name that you choose to a {role}. A name matches `{name}`. `kind` is one of
{kinds},
and the other keys are the options of that kind."""

_NOUNS: Final = {Items: ("entry", "entries"), Table: ("key", "keys")}


def page() -> str:
    """Return the whole page."""
    return wrapped("\n".join(_lines()) + "\n")


def anchor(role: str, kind: str) -> str:
    """Return the anchor of the options of a kind on the page."""
    return f"{role}-{kind}"


def _lines() -> Iterator[str]:
    yield _INTRO
    yield "## The file\n"
    yield from _table(Config)
    kinds = RegisteredKinds()
    for role in ("source", "sink"):
        names = kinds.names(role)
        yield f"\n## {role.capitalize()}s\n"
        links = ", ".join(f"[{kind}](#{anchor(role, kind)})" for kind in names)
        yield _COMPONENTS.format(role=role, name=NAME, kinds=links)
        for kind in names:
            # The heading is the anchor.
            yield f"\n### {role} {kind}\n"
            summary = KINDS[role, kind].summary
            yield f"{summary[0].upper()}{summary[1:]}: [{kind}]({role}s/{kind}.md).\n"
            yield from _table(kinds.options(role, kind))


def _table(options: type[msgspec.Struct]) -> Iterator[str]:
    bounds = dict(_bounds(record(options), ""))
    rows = [("Option", "Type", "Default", "What it does")]
    for option in describe(options):
        default = "required" if option.default == "required" else f"`{option.default}`"
        kind = "; ".join([option.type, *bounds[option.name]])
        rows.append((f"`{option.name}`", kind, default, option.doc))
    yield from _as_markdown(rows)


def _as_markdown(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    for at, row in enumerate(rows):
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"
        if at == 0:
            yield "|" + "---|" * len(row)


def _bounds(shape: Record, prefix: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the limits of each option that its type does not show: lengths, patterns, words."""
    for field in shape.fields:
        name, inner, bounds = prefix + field.key, field.shape, list[str]()
        suffix = ""
        while isinstance(inner, Items | Table | Maybe):
            if not isinstance(inner, Maybe):
                bounds += _sizes(inner.limits, _NOUNS[type(inner)])
                suffix += "[]" if isinstance(inner, Items) else ".*"
            inner = inner.inner
        bounds += _text(inner)
        yield name, bounds
        if isinstance(inner, Record):
            yield from _bounds(inner, f"{name}{suffix}.")


def _text(shape: Shape) -> list[str]:
    if not isinstance(shape, Scalar):
        return []
    limits = shape.limits
    bounds = _sizes(limits, ("character", "characters"))
    if limits.pattern is not None:
        bounds.append(f"matches `{limits.pattern}`")
    if shape.known:
        bounds.append(f"each a known [{shape.known}](fields.md)")
    return bounds


def _sizes(limits: Limits, nouns: tuple[str, str]) -> list[str]:
    words = {"at least": limits.min_length, "at most": limits.max_length}
    bounds = {word: bound for word, bound in words.items() if bound is not None}
    return [f"{word} {bound} {nouns[bound != 1]}" for word, bound in bounds.items()]
