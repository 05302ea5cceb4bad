"""What is known of an option."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

Value: TypeAlias = str | int | bool | tuple[str, ...]
"""What an option was set to, by its type: text, number, switch, list."""


class Type(StrEnum):
    """What an option takes."""

    TEXT = "text"
    NUMBER = "number"
    SWITCH = "switch"
    LIST = "list"


class Fate(StrEnum):
    """What becomes of an option of dcgm-exporter."""

    SAME = "same"
    RENAMED = "renamed"
    """What it gives is there, under another name or in another form."""
    NOT_NEEDED = "not needed"
    NOT_SUPPORTED = "not supported"
    OWN = "podgpu's own"


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    Attributes:
        name: without its dashes.
        short: a shorter name, likewise; may be empty.
        variable: the environment variable; may be empty.
        type: what it takes.
        default: what holds if it isn't given.
        fate: what podgpu makes of it.
        becomes: key of the configuration file that it sets; empty for none.
        why: a sentence for the person who has it on a command line.
    """

    name: str
    short: str
    variable: str
    type: Type
    default: Value
    fate: Fate
    becomes: str
    why: str

    @property
    def flags(self) -> tuple[str, ...]:
        """Its names as they are written, the long one first."""
        return (f"--{self.name}", f"-{self.short}") if self.short else (f"--{self.name}",)

    @property
    def written_default(self) -> str:
        """The default as one would write it."""
        if isinstance(self.default, bool):
            return str(self.default).lower()
        return ",".join(self.default) if isinstance(self.default, tuple) else str(self.default)
