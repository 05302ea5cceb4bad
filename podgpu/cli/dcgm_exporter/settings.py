"""What the options were set to, and by what."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from config.errors import ConfigError, Problem
from podgpu.cli.dcgm_exporter.option import Option, Value
from podgpu.cli.dcgm_exporter.option_table import BY_NAME, OPTIONS

COMMAND: Final = "podgpu dcgm-exporter"

T = TypeVar("T", str, int, bool, tuple[str, ...])


@dataclass(frozen=True, slots=True)
class Setting:
    """One value.

    Attributes:
        value: by the type of its option.
        origin: what set it, for people: `-c`, `DCGM_EXPORTER_INTERVAL`.
    """

    value: Value
    origin: str


class Settings:
    """The options as they are in force.

    Args:
        layers: settings by the names of their options; the first that has one counts.
    """

    def __init__(self, *layers: Mapping[str, Setting]) -> None:
        self._given = {name: found for layer in reversed(layers) for name, found in layer.items()}

    def above(self, lower: Mapping[str, Setting]) -> "Settings":
        """Return these, and where they set nothing those of another layer."""
        return Settings(self._given, lower)

    def text(self, name: str) -> str:
        """Return the value of an option that takes a text."""
        return self._value(name, str)

    def number(self, name: str) -> int:
        """Return the value of an option that takes a whole number."""
        return self._value(name, int)

    def switch(self, name: str) -> bool:
        """Return whether an option is switched on."""
        return self._value(name, bool)

    def list(self, name: str) -> tuple[str, ...]:
        """Return the value of an option that may be given several times."""
        return self._value(name, tuple)

    def given(self, name: str) -> bool:
        """Tell whether anything has set it."""
        return name in self._given

    def origin(self, name: str) -> str:
        """Return what set it; the flag where nothing did."""
        found = self._given.get(name)
        return found.origin if found else BY_NAME[name].flags[-1]

    def changed(self) -> Iterator[Option]:
        """Yield the options that have another value than their default."""
        for option in OPTIONS:
            found = self._given.get(option.name)
            if found is not None and found.value != option.default:
                yield option

    def refused(self, name: str, message: str, hint: str = "") -> ConfigError:
        """Return the error of a value that can't be taken."""
        return ConfigError(COMMAND, [Problem(self.origin(name), message, hint)])

    def _value(self, name: str, type_: type[T]) -> T:
        found = self._given.get(name)
        value = found.value if found else BY_NAME[name].default
        assert isinstance(value, type_)  # noqa: S101 - the table says so
        return value
