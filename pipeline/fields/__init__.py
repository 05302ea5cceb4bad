"""The catalogue of all fields that podgpu can read, and the selection of fields."""

from pipeline.fields.field import Field, Group, Tier
from pipeline.fields.field_plan import (
    CATALOGUE,
    FieldPlan,
    LabelRow,
    Row,
    all_words,
    by_name,
    called,
    chosen,
    in_group,
)
from pipeline.fields.label_fields import BOARD_LABELS, LABELS

__all__ = [
    "BOARD_LABELS",
    "CATALOGUE",
    "LABELS",
    "Field",
    "FieldPlan",
    "Group",
    "LabelRow",
    "Row",
    "Tier",
    "all_words",
    "by_name",
    "called",
    "chosen",
    "in_group",
]
