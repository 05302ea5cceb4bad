"""The chart's values: each has a description, a type, and a row in the README of the chart."""

import json
import os
import re
import tomllib
from collections.abc import Iterator
from functools import cache
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
PRESETS = sorted(path.stem for path in (CHART / "files" / "presets").iterdir())


def loaded() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(SCHEMA.read_text(encoding="utf-8"))
    return found


def test_the_schema_includes_podgpus_configuration() -> None:
    """`PODGPU_WRITE_GOLDEN=1` writes that part of the schema."""
    made = schema.dumped(schema.completed(loaded()))
    if os.environ.get("PODGPU_WRITE_GOLDEN"):
        SCHEMA.write_text(made, encoding="utf-8")
    assert SCHEMA.read_text(encoding="utf-8") == made


def test_the_defaults_for_the_templates_are_those_of_values_yaml() -> None:
    """`PODGPU_WRITE_GOLDEN=1` writes them."""
    path = CHART / "files" / "defaults.yaml"
    made = schema.defaults(VALUES)
    if os.environ.get("PODGPU_WRITE_GOLDEN"):
        path.write_text(made, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == made


def test_every_template_first_completes_the_values() -> None:
    """Otherwise a template fails or ignores a value if a values file leaves a key empty."""
    begin = '{{- include "podgpu.values" . -}}\n'
    made = [*CHART.glob("templates/*.yaml"), CHART / "templates" / "NOTES.txt"]
    assert [path.name for path in made if not path.read_text().startswith(begin)] == []


def test_the_patterns_of_the_schema_have_go_syntax() -> None:
    """Helm is a Go program: its regular expressions have no lookahead or lookbehind."""
    assert not re.findall(r"\(\?<?[=!]", SCHEMA.read_text(encoding="utf-8"))


@pytest.mark.slow
def test_the_default_values_match_the_schema() -> None:
    jsonschema.validate(yaml.safe_load(VALUES), loaded())


@cache
def validator() -> Any:
    """Return a validator of the schema, which `test_the_default_values_match_the_schema` checks."""
    schema = loaded()
    return jsonschema.validators.validator_for(schema)(schema)


def first_error(values: dict[str, Any]) -> Any:
    """Return the error that `jsonschema.validate` would raise, or None."""
    return jsonschema.exceptions.best_match(validator().iter_errors(values))


def groups(shape: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    if "properties" in shape:
        yield ".".join(path), shape
        for name, part in shape["properties"].items():
            yield from groups(part, (*path, name))


@pytest.mark.parametrize(("path", "shape"), list(groups(loaded())), ids=lambda it: str(it)[:40])
def test_no_group_of_values_accepts_unknown_keys(path: str, shape: dict[str, Any]) -> None:
    # The part below `config.` is generated from podgpu's own schema.
    if not path.startswith("config."):
        assert shape["additionalProperties"] is False, path


def leaves(shape: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[str]:
    if path and not reference.heading(loaded(), list(path)):
        yield ".".join(path)
        return
    for name, part in shape["properties"].items():
        yield from leaves(part, (*path, name))


@pytest.mark.slow
def test_values_yaml_and_the_schema_have_the_same_keys() -> None:
    # Helm's key, keys of dcgm-exporter's chart for debug dumps, and keys of other charts, for which
    # the chart names the fix.
    beyond = {"global", "debugDump.directory", "debugDump.retention", "debugDump.compression"}
    beyond |= {"dcgm-exporter", "gpu-operator", "serviceMonitor.labels"}
    ours = {value.path for value in reference.values(VALUES, loaded())}
    assert set(leaves(loaded())) - ours == beyond
    assert ours <= set(leaves(loaded()))


def test_every_value_has_a_comment() -> None:
    uncommented = [value.path for value in reference.values(VALUES, loaded()) if not value.text]
    assert uncommented == []


def test_the_readme_of_the_chart_is_up_to_date() -> None:
    """`PODGPU_WRITE_GOLDEN=1` writes it."""
    path = CHART / "README.md"
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    made = reference.readme(VALUES, loaded(), chart)
    if os.environ.get("PODGPU_WRITE_GOLDEN"):
        path.write_text(made, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == made
    links = re.findall(r"\]\(([^)]+)\)", made)
    assert links
    assert [link for link in links if not (CHART / link).is_file()] == []


INVALID: list[tuple[dict[str, Any], str]] = [
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


@pytest.mark.parametrize(("values", "message"), INVALID, ids=[message for _, message in INVALID])
def test_an_invalid_value_is_refused(values: dict[str, Any], message: str) -> None:
    error = first_error(values)
    assert error is not None
    assert message in error.message
    assert error.absolute_path or "unexpected" in message


VALID: list[dict[str, Any]] = [
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


@pytest.mark.parametrize("values", VALID, ids=[str(each)[:60] for each in VALID])
def test_a_valid_value_is_accepted(values: dict[str, Any]) -> None:
    assert first_error(values) is None


def test_the_schema_lists_the_existing_presets_and_distributions() -> None:
    known = loaded()["properties"]
    assert known["preset"]["enum"] == PRESETS
    places = yaml.safe_load((CHART / "files" / "distributions.yaml").read_text(encoding="utf-8"))
    assert known["distribution"]["enum"] == list(places)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_a_valid_configuration(name: str) -> None:
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


def test_the_default_counters_of_the_chart_are_those_of_podgpu() -> None:
    ours = ROOT / "config" / "counters" / "default-counters.csv"
    assert (CHART / "files" / "default-counters.csv").read_bytes() == ours.read_bytes()


def test_the_chart_has_the_version_of_podgpu() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["appVersion"] == chart["version"] == project["version"]


def test_the_page_install_has_the_paths_of_each_distribution() -> None:
    places = yaml.safe_load((CHART / "files" / "distributions.yaml").read_text(encoding="utf-8"))
    page = (DOCS / "install.md").read_text(encoding="utf-8")
    for name, place in places.items():
        row = f"| `{name}` | `{place['podResources']}` | `{place['devicePlugins']}` |"
        assert row in page, name
