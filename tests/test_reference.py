"""`docs/reference.md` equals what the program generates, and all pages link to it."""

import os
import re
from pathlib import Path
from typing import Any

import pytest

from config.json_schema import json_schema
from pipeline.component.registry import KINDS, RegisteredKinds
from tests.reference import anchor, page

ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "docs" / "reference.md"
CELL = r"(?:[^|\\]|\\.)*"
ROW = re.compile(
    rf"^\| `(?P<name>[^`]+)` \| (?P<type>{CELL}) \| (?P<default>{CELL}) \| (?P<doc>{CELL}) \|$",
    re.MULTILINE,
)


def test_the_page_equals_what_the_program_generates() -> None:
    """`PODGPU_WRITE_GOLDEN=1` writes the page again."""
    if os.environ.get("PODGPU_WRITE_GOLDEN"):
        REFERENCE.write_text(page(), encoding="utf-8")
    assert REFERENCE.read_text(encoding="utf-8") == page()


def sections() -> dict[str, str]:
    parts = re.split(r"^##+ (.*)\n", REFERENCE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def keys(schema: dict[str, Any], prefix: str = "") -> set[str]:
    """Return the names of all options that a JSON Schema has, as the page writes them."""
    found = set()
    for key, inner in schema.get("properties", {}).items():
        if key == "kind" and "const" in inner:
            continue
        found.add(prefix + key)
        found |= keys(inner, f"{prefix}{key}.")
        for choice in inner.get("anyOf", ()):
            found |= keys(choice, f"{prefix}{key}.")
        found |= keys(inner.get("items", {}), f"{prefix}{key}[].")
    return found


def test_the_sections_have_exactly_the_keys_of_the_schema() -> None:
    schema: Any = json_schema(RegisteredKinds())
    expected = {"The file": keys(schema)}
    for role, kind in KINDS:
        expected[f"{role} {kind}"] = keys(schema["$defs"][f"{role}.{kind}"])
    rows = {name: {row["name"] for row in ROW.finditer(text)} for name, text in sections().items()}
    assert {name: found for name, found in rows.items() if found} == expected


@pytest.mark.parametrize(
    ("section", "option", "kind", "default"),
    [
        ("The file", "shutdown_grace", "duration, at least 0s", "`10s`"),
        ("The file", "counters.configmap", r"text; matches `^([^:\s]+:[^:\s]+)?$`", '`""`'),
        (
            "The file",
            "counters.also",
            "list of text; each a known [field or group](fields.md)",
            "`[]`",
        ),
        ("source nvml", "interval", "duration, at least 100ms", "`5s`"),
        (
            "source podresources",
            "drivers",
            "list of text; at least 1 entry",
            '`["*gpu*"]`',
        ),
        (
            "source nri",
            "index",
            "text; at most 2 characters; matches `^[0-9]{2}$`",
            "`90`",
        ),
        ("source replay", "path", "text; at least 1 character", "required"),
        ("sink otlp", "queue.max_size", "size, at least 1MiB, at most 1TiB", "`64MiB`"),
        ("sink jsonl", "queue.max_size", "size, at least 1MiB, at most 1TiB", "`64MiB`"),
        ("sink prometheus", "sharing", r"info \| claims \| copies", "`info`"),
    ],
)
def test_a_row_shows_type_bounds_and_default(
    section: str, option: str, kind: str, default: str
) -> None:
    found = [
        (row["type"], row["default"])
        for row in ROW.finditer(sections()[section])
        if row["name"] == option
    ]
    assert found == [(kind, default)]


@pytest.mark.parametrize("entry", KINDS, ids=":".join)
def test_the_page_of_each_kind_links_to_its_options(entry: tuple[str, str]) -> None:
    role, kind = entry
    path = ROOT / "docs" / f"{role}s" / f"{kind}.md"
    link = f"(../reference.md#{anchor(role, kind)})"
    assert link in path.read_text(encoding="utf-8"), f"{path} does not link to {link}"
    assert f"### {role} {kind}\n" in page()


def test_the_page_of_the_configuration_links_to_the_reference() -> None:
    assert "(reference.md)" in (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")


def test_every_option_is_documented() -> None:
    undocumented = [row["name"] for row in ROW.finditer(page()) if not row["doc"]]
    assert undocumented == []
