"""Write a configuration as YAML. Reading the YAML gives the same values."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

Path: TypeAlias = tuple[str, ...]

# Words, durations and paths that every YAML parser reads as text. All others are quoted.
_PLAIN: Final = re.compile(
    r"[a-z]+(?:[-_][a-z0-9]+)*|(?:[0-9]+(?:d|h|ms|m|s))+|(?:/[A-Za-z0-9_.-]+)+"
)
_WORDS: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
_UNPRINTABLE: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


class Verbatim(str):
    """A text whose `${NAME}` is a placeholder. In other texts `$` is escaped."""

    __slots__ = ()


Leaf: TypeAlias = str | bool | int | Sequence[str]
Tree: TypeAlias = "dict[str, Leaf | Tree]"


@dataclass(slots=True)
class ConfigDraft:
    """A configuration under construction.

    Attributes:
        tree: the content of the file.
        origins: what set a value, by its path.
    """

    tree: Tree = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)

    def put(self, place: str, value: Leaf, origin: str = "") -> None:
        """Set the value at a path such as `sources.gpus.interval`."""
        *outer, key = place.split(".")
        table = self.tree
        for step in outer:
            inner = table.setdefault(step, {})
            assert isinstance(inner, dict)  # noqa: S101 - all paths are constants of podgpu
            table = inner
        table[key] = value
        if origin:
            self.origins[place] = origin

    def add_component(self, place: str, kind: str, origin: str) -> None:
        """Add a source or a sink."""
        self.put(f"{place}.kind", kind)
        self.origins[place] = origin

    def origin(self, place: str) -> str:
        """Return what set the value at a path or its nearest parent; empty if nothing did."""
        paths = (p for p in self.origins if place == p or place.startswith((f"{p}.", f"{p}[")))
        return self.origins.get(max(paths, key=len, default=""), "")


def text(draft: ConfigDraft, head: Sequence[str] = ()) -> str:
    """Return the text of the file. A comment after each value says what set it.

    Args:
        draft: the configuration.
        head: lines of a comment at the top.
    """
    lines = [f"# {_on_one_line(line)}" for line in head]
    _add(draft.tree, (), draft.origins, lines)
    return "\n".join(lines) + "\n"


def _add(tree: "Tree", path: Path, origins: Mapping[str, str], lines: list[str]) -> None:
    for key, value in tree.items():
        here = (*path, key)
        origin = origins.get(".".join(here), "")
        comment = f"  # {_on_one_line(origin)}" if origin else ""
        indent = "  " * len(path)
        if isinstance(value, dict):
            lines.append(f"{indent}{key}:{comment}")
            _add(value, here, origins, lines)
        else:
            lines.append(f"{indent}{key}: {_leaf(value)}{comment}")


def _leaf(value: Leaf) -> str:
    if isinstance(value, int):  # a number or a switch
        return str(value).lower()
    if isinstance(value, str):
        return _scalar(value)
    return f"[{', '.join(map(_scalar, value))}]"


def _scalar(value: str) -> str:
    escaped = value if isinstance(value, Verbatim) else value.replace("${", "$${")
    if _PLAIN.fullmatch(escaped) and escaped not in _WORDS:
        return escaped
    quoted = json.dumps(escaped, ensure_ascii=False)
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", quoted)


def _on_one_line(text_: str) -> str:
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text_)
