"""Sample components with options of every supported type, and helpers to read a file."""

import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
import yaml

from config.errors import ConfigError
from config.loader import parse
from config.message_text import did_you_mean
from config.option_markers import AtLeast, AtMost, Doc
from config.schema import Config
from config.value_types import ByteSize, Duration, ListenAddress


class Gpus(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the nvml source."""

    interval: Annotated[Duration, AtLeast("100ms"), AtMost("1h"), Doc("Time between readings.")] = (
        Duration.parse("5s")
    )
    slow_interval: Duration = Duration.parse("30s")
    integers: Annotated[Literal["minor", "index"], Doc("How devices are counted.")] = "minor"
    devices: tuple[str, ...] = ()

    def problems(self) -> Iterable[tuple[str, str]]:
        if self.slow_interval < self.interval:
            yield "slow_interval", f"must not be shorter than interval, {self.interval}"


class Tls(msgspec.Struct, frozen=True, kw_only=True):
    """A nested mapping."""

    cert: pathlib.Path
    key: pathlib.Path | None = None


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """A mapping within a list."""

    name: Annotated[str, msgspec.Meta(min_length=1, pattern="^[a-z]+$")]
    weight: float = 1.0


class Everything(msgspec.Struct, frozen=True, kw_only=True):
    """Every type once."""

    text: str = ""
    flag: bool = False
    count: Annotated[int, msgspec.Meta(ge=1, le=10)] = 1
    ratio: Annotated[float, msgspec.Meta(ge=0.1, le=0.9), Doc("A share.")] = 0.5
    mode: Literal["on", "off", "3"] = "off"
    maybe: str | None = None
    wait: Duration | None = None
    names: tuple[Annotated[str, msgspec.Meta(min_length=1)], ...] = ()
    numbers: Annotated[tuple[int, ...], msgspec.Meta(max_length=3)] = ()
    labels: dict[str, str] = {}
    limits: dict[str, ByteSize] = {}
    buffer: Annotated[ByteSize, AtLeast("1KiB"), AtMost("1GiB")] = ByteSize.parse("1MiB")
    listen: ListenAddress = ListenAddress("", 9400)
    path: pathlib.Path = pathlib.Path("/tmp/x")
    tls: Tls | None = None
    rules: tuple[Rule, ...] = ()


class Lines(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the jsonl sink."""

    path: Annotated[str, Doc("Where the lines go; - is the standard output.")]


class Samples:
    """The registered kinds: the classes above."""

    _kinds: Mapping[str, Mapping[str, type[msgspec.Struct]]] = {
        "source": {"nvml": Gpus, "everything": Everything},
        "sink": {"jsonl": Lines},
    }

    def names(self, role: str) -> Sequence[str]:
        return list(self._kinds[role])

    def options(self, role: str, kind: str) -> type[msgspec.Struct]:
        return self._kinds[role][kind]

    def allowed_values(self, noun: str) -> Sequence[str]:
        return ["energy", "power", "everything"]

    def hint(self, noun: str, word: str) -> str:
        return did_you_mean(word, self.allowed_values(noun))


ENV = {
    "NODE_NAME": "node-1",
    "PORT": "7",
    "EMPTY": "",
    "FLAG": "yes",
    "INJECT": "{a: 1}",
    "SECS": "3s",
}
SINKS = "sinks: {out: {kind: jsonl, path: '-'}}\n"


def read(text: str | bytes, env: Mapping[str, str] = ENV) -> Config:
    return parse(text, Samples(), env=env, origin="f.yaml")


def problems_of(text: str | bytes, env: Mapping[str, str] = ENV) -> list[str]:
    try:
        read(text, env)
    except ConfigError as error:
        return str(error).splitlines()
    return []


def with_options(options: str) -> str:
    """Return a file with one source that has these options, one per line; they start at 4:5."""
    lines = "".join(f"    {line}\n" for line in options.splitlines())
    return f"{SINKS}sources:\n  it:\n{lines}    kind: everything\n"


def options_of(options: str, env: Mapping[str, str] = ENV) -> Any:
    return read(with_options(options), env).sources["it"].options


class _EditorLoader(yaml.SafeLoader):
    """Loads YAML as an editor does: dates are strings."""


_EditorLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if not tag.endswith(":timestamp")]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def as_editor_sees(text: str) -> Any:
    """Return YAML as JSON types, as an editor has it before it applies a schema."""
    return _text_keys(yaml.load(text, Loader=_EditorLoader))  # noqa: S506 - a safe loader


def _text_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _text_keys(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_text_keys(item) for item in value]
    return value
