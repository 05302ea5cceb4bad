"""The page of all options, made from the classes that the loader reads; nothing is written by hand.

`docs/reference.md` is what `page()` returns; `tests/test_reference.py` holds it to that.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from config.converter import NAME
from config.option_docs import describe
from config.schema import Config
from config.type_shapes import Items, Maybe, Record, Scalar, Shape, Table, record
from config.value_limits import Limits
from pipeline.component.registry import ENTRIES, RegisteredKinds

_INTRO: Final = """\
# Every option

All keys of the [configuration file](configuration.md). This page is generated from the program;
`podgpu schema` prints the same as a JSON schema for editors. The page of each source and sink
explains its options. [Values](configuration.md#values) explains durations, sizes and patterns.

`name[]` is each entry of a list, and `name.*` each key of a mapping. `null` means no value. Every
value can come from an [environment variable](configuration.md#environment-variables). Some options
depend on each other, such as `interval` and `slow_interval`; `podgpu check` reports a contradiction.
"""
_COMPONENTS: Final = """\
A mapping from a name that you choose to a {role}. A name matches `{name}`. `kind` is one of
{kinds},
and the other keys are the options of that kind."""

_NOUNS: Final = {Items: ("entry", "entries"), Table: ("key", "keys")}


def page() -> str:
    """Return the whole page."""
    return "\n".join(_lines()) + "\n"


def anchor(role: str, kind: str) -> str:
    """Return where on the page the options of a kind are."""
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
            given_out = ENTRIES[role, kind].summary
            yield f"{given_out[0].upper()}{given_out[1:]}: [{kind}]({role}s/{kind}.md).\n"
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
    """Yield, by option, the bounds that its type's words don't tell: lengths, patterns, words."""
    for field in shape.fields:
        name, inner, given_out = prefix + field.key, field.shape, list[str]()
        suffix = ""
        while isinstance(inner, Items | Table | Maybe):
            if not isinstance(inner, Maybe):
                given_out += _sizes(inner.limits, _NOUNS[type(inner)])
                suffix += "[]" if isinstance(inner, Items) else ".*"
            inner = inner.inner
        given_out += _text(inner)
        yield name, given_out
        if isinstance(inner, Record):
            yield from _bounds(inner, f"{name}{suffix}.")


def _text(shape: Shape) -> list[str]:
    if not isinstance(shape, Scalar):
        return []
    limits = shape.limits
    given_out = _sizes(limits, ("character", "characters"))
    if limits.pattern is not None:
        given_out.append(f"matches `{limits.pattern}`")
    if limits.multiple_of is not None:
        given_out.append(f"a multiple of {limits.multiple_of}")
    if shape.known:
        given_out.append(f"each a known [{shape.known}](fields.md)")
    return given_out


def _sizes(limits: Limits, nouns: tuple[str, str]) -> list[str]:
    words = {"at least": limits.min_length, "at most": limits.max_length}
    given_out = {word: bound for word, bound in words.items() if bound is not None}
    return [f"{word} {bound} {nouns[bound != 1]}" for word, bound in given_out.items()]
