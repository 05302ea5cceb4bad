"""The catalogue: every field that podgpu can read, as data, and the choice among them."""

from pipeline.fields.catalogue import CATALOGUE, by_name, called
from pipeline.fields.choosing import chosen, words
from pipeline.fields.field import Field, Group, Tier
from pipeline.fields.labels import LABELS
from pipeline.fields.plan import FieldPlan, LabelRow, Row, in_group

__all__ = [
    "CATALOGUE",
    "LABELS",
    "Field",
    "FieldPlan",
    "Group",
    "LabelRow",
    "Row",
    "Tier",
    "by_name",
    "called",
    "chosen",
    "in_group",
    "words",
]
