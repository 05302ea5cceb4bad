"""Read settings from dcgm-exporter's YAML configuration file, versions 1 and 2.

Version 1 has one `collection`, version 2 several `collections`. podgpu reads every file that
dcgm-exporter reads: keys that only configure DCGM are accepted, and have no effect.

The file may give fields an interval of their own. podgpu reads all fields at one interval: the
shortest of the file, so that no reading is older than the file says.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import msgspec

from config.errors import ConfigError, Problem
from config.loader import parse_struct, read
from podgpu.cli.dcgm_exporter.go_arguments import Setting, Settings, milliseconds

_QUOTE: Final = '"'
_DEFAULT_INTERVAL: Final = Settings().number("collect-interval")


class Inline(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A row of a counters file, written in YAML."""

    name: str
    prometheus_type: str
    help: str

    @property
    def row(self) -> str:
        """The row as in a counters file."""
        cells = (self.name.strip(), self.prometheus_type.strip(), self.help)
        return ", ".join(f'"{cell.replace(_QUOTE, _QUOTE * 2)}"' for cell in cells)


class Metrics(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Which fields and metrics are exported."""

    file: str = ""
    fields: tuple[Inline, ...] = ()
    enable_exporter_metrics: bool = False


class Retention(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How long DCGM keeps samples."""

    max_age: str = ""
    max_samples: int = 0


class WatchGroup(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Fields with their own interval."""

    name: str
    interval: str
    fields: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    retention: Retention = Retention()


class Collection(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How often fields are read, in version 1."""

    interval: str = ""
    retention: Retention = Retention()
    watch_groups: tuple[WatchGroup, ...] = ()


class Watch(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How long DCGM keeps samples, in version 2."""

    max_keep_age: str = ""
    max_keep_samples: int = 0


class Detection(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Whether DCGM watches for added and removed GPUs."""

    enabled: bool = False
    poll_interval: str = ""


class Dcgm(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Settings of DCGM."""

    watch: Watch = Watch()
    detect_bind_unbind: Detection = Detection()


class Sources(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Settings of the sources of readings; DCGM is the only one in this file."""

    dcgm: Dcgm = Dcgm()


class Included(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The fields of a collection, by name or pattern."""

    include: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]


class NamedCollection(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Fields, and how often they are read. A single `*` includes all other fields."""

    name: str
    every: str
    metrics: Included
    sources: Sources = Sources()

    @property
    def includes_all(self) -> bool:
        """Whether the collection includes every field that no other collection includes."""
        return self.metrics.include == ("*",)


class Server(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Limits of the HTTP server."""

    max_concurrent_scrapes: int = 16


class Document(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The whole configuration file."""

    version: int
    metrics: Metrics = Metrics()
    collection: Collection = Collection()
    collections: tuple[NamedCollection, ...] = ()
    sources: Sources = Sources()
    server: Server = Server()

    def problems(self) -> Iterable[tuple[str | tuple[str, ...], str]]:
        """Yield problems: keys that do not fit the version, rows of fields, several `*`."""
        if self.version not in {1, 2}:
            yield "version", "must be 1 or 2"
        if self.version == 1 and self.collections:
            yield "collections", "belongs to version 2; write version: 2"
        if self.version == 2 and self.collection != Collection():
            yield "collection", "belongs to version 1; write version: 1"
        if self.metrics.fields and self.metrics.file:
            yield ("metrics", "fields"), "file is set too: remove one of the two"
        if sum(each.includes_all for each in self.collections) > 1:
            yield "collections", "only one of them can include all fields"


@dataclass(frozen=True, slots=True)
class FileSettings:
    """What a file says.

    Attributes:
        options: settings by option name. `collectors` is a list of rows if the file contains them.
        intervals: each interval of the file in milliseconds, by its place in the file.
    """

    options: dict[str, Setting]
    intervals: dict[str, int]

    def unmet(self, interval: int) -> list[str]:
        """Return a warning for each interval of the file that is shorter than the one in use."""
        return [
            f"{place}: {asked} ms is shorter than the interval in use, {interval} ms: podgpu reads "
            "all fields at one interval"
            for place, asked in self.intervals.items()
            if asked < interval
        ]


def settings(path: Path) -> FileSettings:
    """Return the settings in the file.

    Raises:
        ConfigError: the file cannot be read or is invalid.
    """
    origin = str(path)
    document = parse_struct(read(path), Document, origin=origin)
    found: dict[str, Setting] = {}
    if file := document.metrics.file.strip():
        found["collectors"] = Setting(file, f"{origin}: metrics.file")
    elif document.metrics.fields:
        rows = tuple(field.row for field in document.metrics.fields)
        found["collectors"] = Setting(rows, f"{origin}: metrics.fields")
    if document.metrics.enable_exporter_metrics:
        place = f"{origin}: metrics.enableExporterMetrics"
        found["enable-exporter-metrics"] = Setting(True, place)
    intervals: dict[str, int] = {}
    for place, text in _intervals(document):
        try:
            intervals[f"{origin}: {place}"] = milliseconds(text.strip())
        except ValueError as error:
            raise ConfigError(origin, [Problem(place, str(error))]) from None
    if intervals:
        shortest = min(intervals, key=lambda place: intervals[place])
        # Without an interval for all fields, the others have the default interval of the option.
        if _has_interval_for_all(document) or intervals[shortest] < _DEFAULT_INTERVAL:
            found["collect-interval"] = Setting(intervals[shortest], shortest)
    return FileSettings(found, intervals)


def _has_interval_for_all(document: Document) -> bool:
    return bool(document.collection.interval.strip()) or any(
        each.includes_all for each in document.collections
    )


def _intervals(document: Document) -> Iterator[tuple[str, str]]:
    if document.collection.interval.strip():
        yield "collection.interval", document.collection.interval
    for at, group in enumerate(document.collection.watch_groups):
        yield f"collection.watchGroups[{at}].interval", group.interval
    for at, named in enumerate(document.collections):
        yield f"collections[{at}].every", named.every
