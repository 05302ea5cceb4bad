"""Counters lists of users work: each row is exported, or a message says what to do.

The lists in `users/counters` have the rows and the layout of lists in public repositories, with
other comments and help texts. `PODGPU_WRITE_GOLDEN=1` writes the golden file of the messages; check
the difference before you commit it.
"""

import os
import re
from pathlib import Path

import pytest
import yaml

from config.schema import Counters
from pipeline.counters.csv_rows import CsvRow, read
from pipeline.counters.list_source import ListConfigMap, ListUnavailableError
from pipeline.counters.plan_builder import Reading, planned
from pipeline.kube.sessions import Sessions
from tests.pipeline.counters.configmaps import ConfigMap, served

LISTS = Path(__file__).parent / "users" / "counters"
GOLDEN = Path(__file__).parents[2] / "golden" / "counters" / "users.txt"

INVENTED = {"DCGM_FI_PROF_TENSOR_ACTIVE", "DCGM_FI_DEV_GMEM_USED"}
"""Names in these lists that no release of DCGM has."""


def text_of(name: str) -> str:
    """Return the list in a file; in a ConfigMap, it is the only value."""
    text = (LISTS / name).read_text(encoding="utf-8")
    if name.endswith(".yaml"):
        (text,) = yaml.safe_load(text)["data"].values()
    return text


def reading_of(name: str) -> Reading:
    return planned(text_of(name), Counters(own=False))


def files() -> list[str]:
    return sorted(each.name for each in LISTS.iterdir())


@pytest.mark.parametrize("name", files())
def test_each_row_is_exported_under_its_name_or_named_in_a_message(name: str) -> None:
    reading = reading_of(name)
    assert reading.plan is not None
    exported = {row.metric for row in reading.plan.rows} | {
        row.label for row in reading.plan.labels
    }
    named = {word for line in reading.complaints for word in re.findall(r"\w+", line.split(":")[1])}
    rows = [row for row in read(text_of(name)) if isinstance(row, CsvRow)]
    assert {row.name for row in rows} <= exported | named
    assert exported <= {row.name for row in rows}


@pytest.mark.parametrize("name", files())
def test_help_and_type_are_those_of_the_row(name: str) -> None:
    plan = reading_of(name).plan
    assert plan is not None
    rows: dict[str, CsvRow] = {}
    for row in read(text_of(name)):
        if isinstance(row, CsvRow):
            rows.setdefault(row.name, row)
    for found in plan.rows:
        assert (found.type, found.help) == (rows[found.metric].type, rows[found.metric].help)


@pytest.mark.parametrize("name", files())
def test_a_message_about_a_name_of_dcgm_never_suggests_another_name(name: str) -> None:
    """All names in these lists are DCGM's, except two that are invented."""
    for line in reading_of(name).complaints:
        about = line.split()[2]
        unknown = "is no known field" in line or "did you mean" in line
        assert not unknown or about in INVENTED or ";" in about, line


def test_messages_are_those_of_the_golden_file() -> None:
    lines: list[str] = []
    for name in files():
        reading = reading_of(name)
        assert reading.plan is not None
        rows, labels = len(reading.plan.rows), len(reading.plan.labels)
        lines += [f"{name}: {rows} metrics and {labels} labels", *map(str, reading.complaints), ""]
    text = "\n".join(lines)
    if os.environ.get("PODGPU_WRITE_GOLDEN"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")


async def test_a_configmap_with_another_key_names_the_keys_that_it_has(tmp_path: Path) -> None:
    """dcgm-exporter's `-m` reads the key `metrics`; the GPU operator mounts any key as a file."""
    data = yaml.safe_load((LISTS / "configmap-other-key.yaml").read_text())["data"]
    async with served(ConfigMap(**data)).serving() as server:
        config = server.kubeconfig(tmp_path / "config")
        origin = ListConfigMap("gpu:counters", config, Sessions().session)
        with pytest.raises(ListUnavailableError) as caught:
            await origin.read()
    assert "the key metrics with the counters list is missing; its keys: metrics.csv" in str(
        caught.value
    )


async def test_a_configmap_with_the_key_metrics_is_read(tmp_path: Path) -> None:
    data = yaml.safe_load((LISTS / "configmap.yaml").read_text())["data"]
    async with served(ConfigMap(**data)).serving() as server:
        config = server.kubeconfig(tmp_path / "config")
        origin = ListConfigMap("gpu:counters", config, Sessions().session)
        assert await origin.read() == text_of("configmap.yaml")
