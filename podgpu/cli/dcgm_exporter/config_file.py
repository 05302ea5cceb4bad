"""Read settings from dcgm-exporter's YAML configuration file, versions 1 and 2.

Version 1 has one `collection`, version 2 several `collections`. podgpu reads every file that
dcgm-exporter reads: keys that only configure DCGM are accepted, and have no effect.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final

import msgspec

from config.errors import ConfigError, Problem
from config.loader import parse_struct, read
from podgpu.cli.dcgm_exporter.go_arguments import Setting, milliseconds

_FIELDS_IN_FILE: Final = (
    "podgpu reads fields only from a counters file: write each field as a line NAME, type, help "
    "into a file, and set metrics.file to its path"
)


class Inline(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A row of a counters file, written in YAML. podgpu does not support such rows."""

    name: str
    prometheus_type: str
    help: str


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
        if self.metrics.fields:
            yield ("metrics", "fields"), _FIELDS_IN_FILE
        if sum(each.includes_all for each in self.collections) > 1:
            yield "collections", "only one of them can include all fields"


def settings(path: Path) -> tuple[dict[str, Setting], list[str]]:
    """Return the settings in the file, by option name, and warnings about ignored intervals.

    Raises:
        ConfigError: the file cannot be read or is invalid.
    """
    origin = str(path)
    document = parse_struct(read(path), Document, origin=origin)
    found: dict[str, Setting] = {}
    if file := document.metrics.file.strip():
        found["collectors"] = Setting(file, f"{origin}: metrics.file")
    if document.metrics.enable_exporter_metrics:
        place = f"{origin}: metrics.enableExporterMetrics"
        found["enable-exporter-metrics"] = Setting(True, place)
    for place, text in _intervals(document):
        try:
            number = milliseconds(text.strip())
        except ValueError as error:
            raise ConfigError(origin, [Problem(place, str(error))]) from None
        found["collect-interval"] = Setting(number, f"{origin}: {place}")
    warnings = [
        f"{origin}: {place}: podgpu reads all fields at one interval, so this has no effect"
        for place in _separate_intervals(document)
    ]
    return found, warnings


def _intervals(document: Document) -> list[tuple[str, str]]:
    if document.collection.interval.strip():
        return [("collection.interval", document.collection.interval)]
    return [
        (f"collections[{at}].every", each.every)
        for at, each in enumerate(document.collections)
        if each.includes_all
    ]


def _separate_intervals(document: Document) -> list[str]:
    groups = [
        f"collection.watchGroups[{at}]" for at in range(len(document.collection.watch_groups))
    ]
    named = [
        f"collections[{at}]"
        for at, each in enumerate(document.collections)
        if not each.includes_all
    ]
    return groups + named
