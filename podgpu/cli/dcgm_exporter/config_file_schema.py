"""The YAML file of dcgm-exporter's newest releases, as far as it has a meaning here.

Version 1 has one `collection`, version 2 several `collections`. What only tunes DCGM is read, so
that a file that dcgm-exporter takes is taken, and goes no further.
"""

from collections.abc import Iterable
from typing import Annotated, Final

import msgspec

_FROM_A_FILE: Final = (
    "podgpu reads fields from a file: write each as a line NAME, type, help into one, and its path "
    "as metrics.file"
)


class Inline(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A row of a counters file, written out."""

    name: str
    prometheus_type: str
    help: str


class Metrics(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Which fields."""

    file: str = ""
    fields: tuple[Inline, ...] = ()
    enable_exporter_metrics: bool = False


class Retention(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How long DCGM keeps samples."""

    max_age: str = ""
    max_samples: int = 0


class WatchGroup(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Fields with an interval of their own."""

    name: str
    interval: str
    fields: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    retention: Retention = Retention()


class Collection(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How often, in version 1."""

    interval: str = ""
    retention: Retention = Retention()
    watch_groups: tuple[WatchGroup, ...] = ()


class Watch(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How long DCGM keeps samples, in version 2."""

    max_keep_age: str = ""
    max_keep_samples: int = 0


class Detection(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Whether DCGM is asked for GPUs that come and go."""

    enabled: bool = False
    poll_interval: str = ""


class Dcgm(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How DCGM is asked."""

    watch: Watch = Watch()
    detect_bind_unbind: Detection = Detection()


class Sources(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How sources are asked; there is one."""

    dcgm: Dcgm = Dcgm()


class Included(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Fields by name or pattern."""

    include: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]


class NamedCollection(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Fields and how often they are read; `*` alone stands for all others."""

    name: str
    every: str
    metrics: Included
    sources: Sources = Sources()

    @property
    def of_all(self) -> bool:
        """Whether it holds for every field without one of its own."""
        return self.metrics.include == ("*",)


class Server(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How many are served at once."""

    max_concurrent_scrapes: int = 16


class Document(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The whole file."""

    version: int
    metrics: Metrics = Metrics()
    collection: Collection = Collection()
    collections: tuple[NamedCollection, ...] = ()
    sources: Sources = Sources()
    server: Server = Server()

    def problems(self) -> Iterable[tuple[str | tuple[str, ...], str]]:
        """The versions can't be mixed, and fields come from a file."""
        if self.version not in {1, 2}:
            yield "version", "there are versions 1 and 2"
        if self.version == 1 and self.collections:
            yield "collections", "version 1 has collection; write version: 2"
        if self.version == 2 and self.collection != Collection():
            yield "collection", "version 2 has collections; write version: 1"
        if self.metrics.fields:
            yield ("metrics", "fields"), _FROM_A_FILE
        if sum(each.of_all for each in self.collections) > 1:
            yield "collections", "two of them are of all fields"
