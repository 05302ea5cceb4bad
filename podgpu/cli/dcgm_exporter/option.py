"""Types that describe a command-line option."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

Value: TypeAlias = str | int | bool | tuple[str, ...]
"""Value of an option, according to its type: text, number, switch or list."""


class Type(StrEnum):
    """Type of an option's value."""

    TEXT = "text"
    NUMBER = "number"
    SWITCH = "switch"
    LIST = "list"


class Support(StrEnum):
    """How podgpu treats an option of dcgm-exporter."""

    SAME = "same"
    RENAMED = "renamed"
    """podgpu has the same function under another name or in another form."""
    NOT_NEEDED = "not needed"
    NOT_SUPPORTED = "not supported"
    OWN = "podgpu's own"


@dataclass(frozen=True, slots=True)
class Option:
    """A command-line option.

    Attributes:
        name: the name without its dashes.
        short: a short name without its dash; may be empty.
        variable: the environment variable; may be empty.
        type: type of the value.
        default: the value if the option is not given.
        support: how podgpu treats it.
        config_key: the key of podgpu's configuration file that it sets; empty for none.
        why: a sentence of explanation, for users of the option.
    """

    name: str
    short: str
    variable: str
    type: Type
    default: Value
    support: Support
    config_key: str
    why: str

    @property
    def flags(self) -> tuple[str, ...]:
        """All names with their dashes, the long one first."""
        return (f"--{self.name}", f"-{self.short}") if self.short else (f"--{self.name}",)

    @property
    def written_default(self) -> str:
        """The default as it is written on a command line."""
        if isinstance(self.default, bool):
            return str(self.default).lower()
        return ",".join(self.default) if isinstance(self.default, tuple) else str(self.default)
