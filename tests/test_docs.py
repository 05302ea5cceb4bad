"""The documentation is correct: its YAML is valid, its tables equal the code, its links exist."""

import os
import re
from pathlib import Path

import pytest

from config.loader import parse
from config.option_docs import describe
from config.schema import Config
from pipeline.base.telemetry import FAMILIES
from pipeline.component.registry import KINDS, RegisteredKinds
from pipeline.fields import CATALOGUE
from podgpu.cli.field_table import markdown
from tests.support import dcgm_page

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
YAML = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)


MODULE = re.compile(r"`([\w/]+\.py)`")


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_the_modules_that_a_page_for_developers_names_exist(name: str) -> None:
    """A page may omit the folder of a module."""
    tops = ("config", "deploy", "pipeline", "podgpu", "sinks", "sources", "tests")
    modules = [f"/{path.relative_to(ROOT)}" for top in tops for path in (ROOT / top).rglob("*.py")]
    named = MODULE.findall((ROOT / name).read_text(encoding="utf-8"))
    assert named
    assert [one for one in named if not any(path.endswith(f"/{one}") for path in modules)] == []


ROW = re.compile(r"^\| .* \| (?P<verdict>[^|]*) \| `(?P<file>[\w/]+\.py)::(?P<name>\w+)` \|$")
VERDICT = re.compile(r"same|(?:better|missing) \([^|]+\)")


def test_the_comparison_with_dcgm_exporter_names_verdicts_and_existing_tests() -> None:
    page = (ROOT / "docs" / "dcgm-exporter-comparison.md").read_text(encoding="utf-8")
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    rows = [line for line in lines if not line.startswith(("| dcgm-exporter |", "| --- "))]
    for row in rows:
        found = ROW.match(row)
        assert found, row
        assert VERDICT.fullmatch(found["verdict"]), row
        source = (ROOT / "tests" / found["file"]).read_text(encoding="utf-8")
        named = rf"^ *(?:async )?(?:def|class) {found['name']}\b"
        assert re.search(named, source, re.MULTILINE), row
    assert len(rows) > 80


def blocks() -> list[tuple[str, str]]:
    keys = tuple(f"{name}:" for name in Config.__struct_fields__)
    return [
        (f"{page.relative_to(ROOT)}:{text[: block.start()].count(chr(10)) + 1}", block.group(1))
        for page in PAGES
        for text in [page.read_text(encoding="utf-8")]
        for block in YAML.finditer(text)
        # A block without any key of podgpu is a manifest of Kubernetes.
        if any(line.startswith(keys) for line in block.group(1).splitlines())
    ]


@pytest.mark.parametrize(("place", "block"), blocks(), ids=[place for place, _ in blocks()])
def test_every_yaml_block_is_a_valid_configuration(place: str, block: str) -> None:
    """A block with only sources or only sinks is completed with the other part."""
    text = block
    if "sources:" not in text:
        text += "\nsources:\n  gpus: {kind: nvml}\n"
    if "sinks:" not in text:
        text += "\nsinks:\n  lines: {kind: jsonl}\n"
    parse(text, RegisteredKinds(), env={"NODE_NAME": "node-1"}, origin=place)


@pytest.mark.parametrize("entry", KINDS, ids=":".join)
def test_every_kind_has_a_page_that_names_all_its_options(entry: tuple[str, str]) -> None:
    role, kind = entry
    path = ROOT / "docs" / f"{role}s" / f"{kind}.md"
    assert path.exists(), path
    page = path.read_text(encoding="utf-8")
    for option in describe(RegisteredKinds().options(role, kind)):
        assert f"`{option.name}`" in page, f"{path} does not name the option `{option.name}`"


def test_the_page_of_fields_names_all_fields() -> None:
    page = (ROOT / "docs" / "fields.md").read_text(encoding="utf-8")
    for field in CATALOGUE:
        assert f"`{field.name}`" in page, field.name
        assert f"`{field.metric}`" in page, field.metric


TABLE = re.compile(r"^\| name \| group \|.*?(?=^[^|])", re.MULTILINE | re.DOTALL)


def test_the_table_of_fields_equals_the_output_of_the_command() -> None:
    """`PODGPU_WRITE_GOLDEN=1` writes the table again."""
    path = ROOT / "docs" / "fields.md"
    page = path.read_text(encoding="utf-8")
    table = "\n".join(markdown()) + "\n"
    if os.environ.get("PODGPU_WRITE_GOLDEN"):
        page = TABLE.sub(lambda _: table, page)
        path.write_text(page, encoding="utf-8")
    assert TABLE.findall(page) == [table]


def test_the_page_of_dcgm_s_names_has_the_answer_for_each() -> None:
    """`PODGPU_WRITE_GOLDEN=1` writes the part below the last heading again."""
    path = ROOT / "docs" / "dcgm-names.md"
    head, heading, rest = path.read_text(encoding="utf-8").rpartition("## All names\n")
    table = "\n" + "\n".join(dcgm_page.table()) + "\n"
    if os.environ.get("PODGPU_WRITE_GOLDEN"):
        path.write_text(head + heading + table, encoding="utf-8")
        rest = table
    assert rest == table


def test_the_page_of_podgpu_s_own_metrics_lists_them_all() -> None:
    page = (ROOT / "docs" / "own-metrics.md").read_text(encoding="utf-8")
    for family in FAMILIES:
        assert f"| `{family.name}` | {family.type} | {family.help} |" in page


@pytest.mark.parametrize("name", ["default.yaml", "demo.yaml", "kubernetes.yaml", "node.yaml"])
def test_the_shipped_configurations_are_valid(name: str) -> None:
    text = (ROOT / "config" / name).read_text(encoding="utf-8")
    parse(text, RegisteredKinds(), env={}, origin=name)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_existing_files(page: Path) -> None:
    """Text in code is an example of another page."""
    for target in LINK.findall(CODE.sub("", page.read_text(encoding="utf-8"))):
        if "://" not in target:
            assert (page.parent / target).exists(), target
