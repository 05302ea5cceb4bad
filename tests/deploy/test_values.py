"""The chart's values: each has its meaning, its type, and a place on the page of values."""

import json
import os
import re
import tomllib
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import yaml

from config.loader import parse
from pipeline.component.registry import RegisteredKinds
from tests.deploy import reference, schema
from tests.deploy.places import CHART, DOCS, ROOT

VALUES = (CHART / "values.yaml").read_text(encoding="utf-8")
SCHEMA = CHART / "values.schema.json"
TABLE = re.compile(r"^\| Value \| Default \|.*?(?=^[^|])", re.MULTILINE | re.DOTALL)
PRESETS = sorted(path.stem for path in (CHART / "files" / "presets").iterdir())


def loaded() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(SCHEMA.read_text(encoding="utf-8"))
    return found


def test_the_schema_knows_podgpu_s_own_configuration() -> None:
    """`PODGPU_WRITE_GOLDEN=1` writes its part of the schema anew."""
    made = schema.dumped(schema.completed(loaded()))
    if os.environ.get("PODGPU_WRITE_GOLDEN"):
        SCHEMA.write_text(made, encoding="utf-8")
    assert SCHEMA.read_text(encoding="utf-8") == made


def test_the_chart_s_defaults_are_those_of_its_values() -> None:
    """`PODGPU_WRITE_GOLDEN=1` writes them anew."""
    path = CHART / "files" / "defaults.yaml"
    made = schema.defaults(VALUES)
    if os.environ.get("PODGPU_WRITE_GOLDEN"):
        path.write_text(made, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == made


def test_every_template_begins_with_what_makes_the_values_whole() -> None:
    """Else one fails, or says nothing, where a file of values leaves something empty."""
    begin = '{{- include "podgpu.values" . -}}\n'
    made = [*CHART.glob("templates/*.yaml"), CHART / "templates" / "NOTES.txt"]
    assert [path.name for path in made if not path.read_text().startswith(begin)] == []


def test_the_schema_s_patterns_are_such_as_go_has() -> None:
    """Helm is a Go program: its regular expressions look neither ahead nor back."""
    assert not re.findall(r"\(\?<?[=!]", SCHEMA.read_text(encoding="utf-8"))


def test_the_defaults_are_of_the_schema() -> None:
    jsonschema.validate(yaml.safe_load(VALUES), loaded())


def groups(shape: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    if "properties" in shape:
        yield ".".join(path), shape
        for name, part in shape["properties"].items():
            yield from groups(part, (*path, name))


@pytest.mark.parametrize(("path", "shape"), list(groups(loaded())), ids=lambda it: str(it)[:40])
def test_no_group_of_values_takes_what_it_does_not_know(path: str, shape: dict[str, Any]) -> None:
    # What of a Kubernetes object is looked at is not all of it.
    if not path.startswith("config."):
        assert shape["additionalProperties"] is False, path


def leaves(shape: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[str]:
    if path and not reference.heading(loaded(), list(path)):
        yield ".".join(path)
        return
    for name, part in shape["properties"].items():
        yield from leaves(part, (*path, name))


def test_values_and_schema_know_the_same() -> None:
    # Helm's own, and what dcgm-exporter's chart has for dumps.
    beyond = {"global", "debugDump.directory", "debugDump.retention", "debugDump.compression"}
    ours = {value.path for value in reference.values(VALUES, loaded())}
    assert set(leaves(loaded())) - ours == beyond
    assert ours <= set(leaves(loaded()))


def test_every_value_has_its_meaning_above_it() -> None:
    silent = [value.path for value in reference.values(VALUES, loaded()) if not value.text]
    assert silent == []


def test_the_page_of_values_is_the_chart_s() -> None:
    """`PODGPU_WRITE_GOLDEN=1` writes its table anew."""
    path = DOCS / "chart.md"
    page = path.read_text(encoding="utf-8")
    table = reference.table(VALUES, loaded())
    if os.environ.get("PODGPU_WRITE_GOLDEN"):
        page = TABLE.sub(lambda _: table, page)
        path.write_text(page, encoding="utf-8")
    assert TABLE.findall(page) == [table]


BAD: list[tuple[dict[str, Any], str]] = [
    ({"servceMonitor": {}}, "'servceMonitor' was unexpected"),
    ({"distribution": "openShift"}, "'openShift' is not one of"),
    ({"preset": "all"}, "'all' is not one of"),
    ({"service": {"port": "9400"}}, "'9400' is not of type 'integer'"),
    ({"service": {"address": "9400"}}, "'9400' does not match"),
    ({"driverRoot": "run/nvidia"}, "'run/nvidia' does not match"),
    ({"serviceMonitor": {"enabled": "yes"}}, "'yes' is not one of"),
    ({"config": {"source": {}}}, "'source' was unexpected"),
    ({"config": {"sources": {"gpus": {"kind": "nvlm"}}}}, "'nvlm'"),
    ({"config": {"sources": {"gpus": {"kind": "nvml", "intervall": "1s"}}}}, "'intervall'"),
    ({"config": {"sinks": {"Metrics": {"kind": "prometheus"}}}}, "'Metrics' does not match"),
]


@pytest.mark.parametrize(("values", "said"), BAD, ids=[said for _, said in BAD])
def test_a_wrong_value_is_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(jsonschema.ValidationError, match=re.escape(said)) as caught:
        jsonschema.validate(values, loaded())
    assert caught.value.absolute_path or "unexpected" in said


GOOD: list[dict[str, Any]] = [
    {"config": {"sources": {"gpus": {"interval": "1s"}}}},
    {"config": {"sources": {"checkpoint": None}}},
    {"config": {"sources": {"engine": {"kind": "hostengine", "address": "/tmp/nv-hostengine"}}}},
    {"config": {"sources": {"gpus": {"kind": "nvml", "interval": "1m30s"}}}},
    {"config": {"sources": {"gpus": {"kind": "nvml", "interval": "${INTERVAL:-5s}"}}}},
    {"config": {"log": {"level": "debug"}, "shutdown_grace": "500ms"}},
    {"arguments": ["-f", "/etc/dcgm-exporter/dcp-metrics-included.csv", "-c", 10000]},
    {"dcgmExporter": True, "kubernetes": {"podLabelAllowlistRegex": "^team$"}},
    {"rollingUpdate": {"maxUnavailable": "10%"}},
    {"serviceMonitor": {"enabled": True}},
]


@pytest.mark.parametrize("values", GOOD, ids=[str(each)[:60] for each in GOOD])
def test_a_good_value_is_taken(values: dict[str, Any]) -> None:
    jsonschema.validate(values, loaded())


def test_the_schema_offers_the_presets_and_distributions_that_there_are() -> None:
    known = loaded()["properties"]
    assert known["preset"]["enum"] == PRESETS
    places = yaml.safe_load((CHART / "files" / "distributions.yaml").read_text(encoding="utf-8"))
    assert known["distribution"]["enum"] == list(places)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_a_good_configuration(name: str) -> None:
    text = (CHART / "files" / "presets" / f"{name}.yaml").read_text(encoding="utf-8")
    parse(text, RegisteredKinds(), env={"NODE_NAME": "node1"}, origin=name)


def test_the_preset_kubernetes_is_the_shipped_configuration() -> None:
    found = [
        parse(path.read_text(encoding="utf-8"), RegisteredKinds(), env={}, origin=path.name)
        for path in (
            CHART / "files" / "presets" / "kubernetes.yaml",
            ROOT / "config" / "kubernetes.yaml",
        )
    ]
    assert found[0] == found[1]


def test_the_chart_s_default_counters_are_podgpu_s() -> None:
    ours = ROOT / "config" / "counters" / "default-counters.csv"
    assert (CHART / "files" / "default-counters.csv").read_bytes() == ours.read_bytes()


def test_the_chart_is_of_podgpu_s_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["appVersion"] == chart["version"] == project["version"]


def test_the_page_of_installation_has_the_distributions_places() -> None:
    places = yaml.safe_load((CHART / "files" / "distributions.yaml").read_text(encoding="utf-8"))
    page = (DOCS / "install.md").read_text(encoding="utf-8")
    for name, place in places.items():
        row = f"| `{name}` | `{place['podResources']}` | `{place['devicePlugins']}` |"
        assert row in page, name
