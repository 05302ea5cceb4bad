"""Values of options, and what set each of them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from config.errors import ConfigError, Problem
from podgpu.cli.dcgm_exporter.option_table import BY_NAME, OPTIONS, Option, Value

COMMAND: Final = "podgpu dcgm-exporter"

T = TypeVar("T", str, int, bool, tuple[str, ...])


@dataclass(frozen=True, slots=True)
class Setting:
    """The value of an option.

    Attributes:
        value: the value, of the option's type.
        origin: what set it, for messages: `-c`, `DCGM_EXPORTER_INTERVAL`.
    """

    value: Value
    origin: str


class Settings:
    """The effective values of all options.

    Args:
        layers: settings by option name; the first layer that has an option takes precedence.
    """

    def __init__(self, *layers: Mapping[str, Setting]) -> None:
        self._given = {name: found for layer in reversed(layers) for name, found in layer.items()}

    def above(self, lower: Mapping[str, Setting]) -> "Settings":
        """Return these settings, with another layer for options that they do not set."""
        return Settings(self._given, lower)

    def text(self, name: str) -> str:
        """Return the value of a text option."""
        return self._value(name, str)

    def number(self, name: str) -> int:
        """Return the value of a number option."""
        return self._value(name, int)

    def switch(self, name: str) -> bool:
        """Return whether an option is switched on."""
        return self._value(name, bool)

    def list(self, name: str) -> tuple[str, ...]:
        """Return the value of a list option."""
        return self._value(name, tuple)

    def given(self, name: str) -> bool:
        """Return whether the option was set."""
        return name in self._given

    def origin(self, name: str) -> str:
        """Return what set the option; its shortest flag if it was not set."""
        found = self._given.get(name)
        return found.origin if found else BY_NAME[name].flags[-1]

    def changed(self) -> Iterator[Option]:
        """Yield the options whose value differs from the default."""
        for option in OPTIONS:
            found = self._given.get(option.name)
            if found is not None and found.value != option.default:
                yield option

    def refused(self, name: str, message: str, hint: str = "") -> ConfigError:
        """Return the error for an invalid value."""
        return ConfigError(COMMAND, [Problem(self.origin(name), message, hint)])

    def value(self, name: str) -> Value:
        """Return the value of an option of any type."""
        found = self._given.get(name)
        return found.value if found else BY_NAME[name].default

    def _value(self, name: str, type_: type[T]) -> T:
        value = self.value(name)
        assert isinstance(value, type_)  # noqa: S101 - ensured by the option table
        return value
