"""The configuration after reading, and the JSON Schema for editors."""

from typing import Any

import jsonschema

from config.json_schema import json_schema
from tests.config.samples import SINKS, Everything, Samples, options_of, read


def test_a_number_with_an_exponent_needs_no_decimal_point() -> None:
    assert options_of("rules: [{name: a, weight: 1e3}]").rules[0].weight == 1000


def test_a_change_of_one_component_leaves_the_others_equal() -> None:
    before = read(SINKS + "sources: {a: {kind: nvml}, b: {kind: everything, labels: {x: y}}}\n")
    after = read(SINKS + "sources: {b: {labels: {x: z}, kind: everything}, a: {kind: nvml}}\n")
    assert before.sources["a"] == after.sources["a"]
    assert before.sources["b"] != after.sources["b"]
    assert before.sinks == after.sinks


def test_the_schema_is_valid_and_has_descriptions_and_defaults() -> None:
    schema: Any = json_schema(Samples())
    jsonschema.Draft202012Validator.check_schema(schema)
    everything = schema["$defs"]["source.everything"]
    assert everything["description"] == "Every type once."
    assert everything["properties"]["ratio"]["description"] == "A share."
    assert set(everything["properties"]) == {"kind", *Everything.__struct_fields__}
    for definition in schema["$defs"]["source.nvml"]["properties"].values():
        assert "default" in definition or "const" in definition
