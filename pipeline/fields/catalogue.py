"""The catalogue of fields, in the order of the metrics page.

The tier of a field depends on the cost of reading it, measured on H100 cards: `docs/fields.md`.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from pipeline.fields.board_fields import BOARDS
from pipeline.fields.error_fields import FAULTS
from pipeline.fields.field import Field
from pipeline.fields.label_fields import LABELS
from pipeline.fields.link_fields import LINKS
from pipeline.fields.memory_fields import MEMORY
from pipeline.fields.profiling_fields import PROFILING
from pipeline.fields.statistics_fields import STATISTICS
from pipeline.fields.utilization_fields import WORK

CATALOGUE: tuple[Field, ...] = (
    *BOARDS,
    *WORK,
    *MEMORY,
    *FAULTS,
    *LINKS,
    *PROFILING,
    *STATISTICS,
)
"""All fields that have series; not labels."""

_BY_NAME: Mapping[str, Field] = MappingProxyType(
    {field.name: field for field in (*CATALOGUE, *LABELS)}
)


def _called() -> Mapping[str, tuple[Field, ...]]:
    found: defaultdict[str, list[Field]] = defaultdict(list)
    for field in _BY_NAME.values():
        names = (field.name, field.dcgm, field.dcgm_1x, field.podgpu_metric, *field.aliases)
        for name in dict.fromkeys(names):
            found[name].append(field)
    return MappingProxyType({name: tuple(fields) for name, fields in found.items() if name})


_CALLED: Final = _called()
"""Fields by any of their names, because a list may have many rows to look up."""


def by_name(name: str) -> Field | None:
    """Return the field or label field with podgpu's name `name`; None if there is none."""
    return _BY_NAME.get(name)


def called(name: str) -> Iterator[Field]:
    """Yield the fields that have a name in podgpu, DCGM, dcgm-exporter 1.x or as a metric.

    Two fields can share a name, as a rate and its counter do in DCGM. Their types differ.
    """
    yield from _CALLED.get(name, ())
