"""The catalogue: every field that podgpu can read, as data, and the choice among them."""

from pipeline.fields.catalogue import CATALOGUE, by_name
from pipeline.fields.field import Field, Tier
from pipeline.fields.plan import FieldPlan

__all__ = ["CATALOGUE", "Field", "FieldPlan", "Tier", "by_name"]
