"""Selects fields by name or by group."""

from typing import Final, get_args

from pipeline.fields.catalogue import CATALOGUE, called
from pipeline.fields.field import Field, Group
from pipeline.fields.field_plan import in_group
from pipeline.fields.label_fields import LABELS

EVERYTHING: Final = "all"
GROUPS: Final[tuple[str, ...]] = tuple(group for group in get_args(Group) if group != "labels")


def all_words() -> tuple[str, ...]:
    """Return every word that `chosen` accepts."""
    names = (name for field in (*CATALOGUE, *LABELS) for name in _names(field))
    return (EVERYTHING, *GROUPS, *dict.fromkeys(names))


def chosen(word: str) -> tuple[Field, ...]:
    """Return the fields that a word selects; none if it is not in `all_words`.

    If two fields share a name, DCGM's first field of that name is selected.
    """
    if word == EVERYTHING:
        return CATALOGUE
    if word in GROUPS:
        names = in_group(word)
        return tuple(field for field in CATALOGUE if field.name in names)
    found = list(called(word))
    return tuple(sorted(found, key=lambda field: word in field.aliases)[:1])


def _names(field: Field) -> tuple[str, ...]:
    names = (field.name, field.dcgm, field.dcgm_1x, *field.aliases)
    own = () if field.type == "label" else (field.podgpu_metric,)
    return tuple(name for name in (*names, *own) if name)
