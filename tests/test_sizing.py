"""`docs/sizing.md` is consistent with itself, with the script that measures, and with the chart."""

import re
from typing import Any

import pytest
import yaml

from tests.bench.sizing import SIZES, Size
from tests.deploy.places import CHART, DOCS

PAGE = (DOCS / "sizing.md").read_text(encoding="utf-8")
VALUES: Any = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))


def tables() -> list[dict[str, list[str]]]:
    """Return the tables of the page: the other cells of each row, by its first cell."""
    found = []
    for block in re.findall(r"^(?:\|.*\n)+", PAGE, re.MULTILINE):
        _, _, *rows = (
            [cell.strip() for cell in line.split("|")[1:-1]] for line in block.splitlines()
        )
        found.append({first: cells for first, *cells in rows})
    return found


BY_SIZE, ALL_FIELDS = (table for table in tables() if SIZES[0].name in table)
PARTS = next(table for table in tables() if "podgpu itself" in table)
SERIES, OF_ALL = 0, 1


def test_each_measured_size_is_on_the_page() -> None:
    assert list(BY_SIZE) == [size.name for size in SIZES]


def counted(size: Size, column: int) -> int:
    """Return the number of series by the page's formula, with one holder for each device."""
    parts = {name: int(cells[column].split(";")[0]) for name, cells in PARTS.items()}
    total = parts["podgpu itself"]
    for count, name in (
        (size.gpus, "each GPU"),
        (size.instances, "each MIG instance"),
        (len(size.devices), "each holder of a device"),
    ):
        (each,) = (number for part, number in parts.items() if part.startswith(name))
        total += count * each
    return total


@pytest.mark.parametrize("size", SIZES, ids=lambda size: size.name)
def test_the_formula_of_the_page_results_in_the_measured_numbers(size: Size) -> None:
    measured = int(BY_SIZE[size.name][SERIES])
    assert counted(size, SERIES) == pytest.approx(measured, rel=0.02)
    # A single GPU has no NVLinks, which have many fields.
    assert counted(size, OF_ALL) == pytest.approx(
        int(ALL_FIELDS[size.name][0]), rel=0.05 if size.gpus > 1 else 0.2
    )


def test_the_values_of_the_chart_equal_those_of_the_page() -> None:
    resources = VALUES["resources"]
    assert resources["requests"] == {"cpu": "50m", "memory": "128Mi"}
    assert resources["limits"] == {"memory": "256Mi"}
    for text in ("`50m`", "`128Mi`", "`256Mi`"):
        assert text in PAGE
    extender = VALUES["extender"]["resources"]
    assert f"its request is `{extender['requests']['memory']}`" in PAGE
    assert f"its limit `{extender['limits']['memory']}`" in PAGE


def test_the_figures_of_the_archive_follow_from_those_of_a_day() -> None:
    nodes, writes_a_day, days = 1000, 24, (1, 30, 395)
    rows = next(table for table in tables() if "rows, millions" in table)

    def numbers(name: str) -> list[float]:
        cells = [cell.replace(",", "") for cell in rows[name]]
        return [float(cell) for cell in cells if cell != "not kept"]

    assert numbers("writes of objects (PUT), by all nodes") == [
        nodes * writes_a_day * count for count in days
    ]
    assert numbers("objects, compacted each day") == list(days)
    for name in ("rows, millions", "size, compacted, GB"):
        day, month, year = numbers(name)
        # The month is made of other nodes, of which some come later or go away.
        assert month == pytest.approx(30 * day, rel=0.1)
        assert year == pytest.approx(395 * day, rel=0.03)
    (raw,) = numbers("size as the nodes write it, GB")
    assert raw * 1e9 / (nodes * writes_a_day) == pytest.approx(12_000, rel=0.05)
    assert numbers("size, compacted, GB")[0] * 1e9 / nodes == pytest.approx(47_000, rel=0.05)
