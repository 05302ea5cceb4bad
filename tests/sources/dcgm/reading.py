"""Helpers for the tests of the dcgm source: write lines of a page, and parse pages."""

from pathlib import Path

from pipeline.fields import FieldPlan
from pipeline.model import Attrs, Value
from sources.dcgm.page_parser import Page, parse_page
from tests.support.nodes import START, uuid_of

PAGES = Path(__file__).parent / "pages"
EVERYTHING = FieldPlan.everything()
A, B = uuid_of(0), uuid_of(1)

ReadingsBySeries = dict[tuple[str, str, Attrs], Value]


def line(name: str, value: object, gpu: int = 0, /, **labels: str) -> str:
    """Return a line about a GPU in dcgm-exporter's format."""
    all_labels = {"gpu": str(gpu), "UUID": uuid_of(gpu), **labels}
    rendered = ",".join(f'{label}="{text}"' for label, text in all_labels.items())
    return f"{name}{{{rendered}}} {value}\n"


def read(page: str | bytes, plan: FieldPlan = EVERYTHING) -> Page:
    data = page.encode() if isinstance(page, str) else page
    return parse_page(data, plan, START, 45)


def by_series(page: Page) -> ReadingsBySeries:
    """Return values by device, field and attributes. Each series occurs once."""
    found = {(r.device, r.field, r.attrs): r.value for r in page.readings}
    assert len(found) == len(page.readings)
    return found


def plain(page: Page, device: str = A) -> dict[str, Value]:
    """Return the values of one device by field, without attributes."""
    return {field: value for (uuid, field, _), value in by_series(page).items() if uuid == device}
