"""The options of nri; a runtime refuses other names and indexes without an error message."""

import pytest

from config.errors import ConfigError
from config.loader import parse
from pipeline.component.registry import RegisteredKinds
from sources.nri.options import Options


def options(text: str) -> Options:
    config = parse(
        f"node: n\nsources:\n  runtime: {{kind: nri, {text}}}\nsinks:\n  lines: {{kind: jsonl}}\n",
        RegisteredKinds(),
        env={},
        origin="f.yaml",
    )
    found = config.sources["runtime"].options
    assert isinstance(found, Options)
    return found


@pytest.mark.parametrize("index", ["00", "05", "90", '"07"'])
def test_an_index_has_two_digits(index: str) -> None:
    assert options(f"index: {index}").index == index.strip('"')


@pytest.mark.parametrize("name", ["podgpu", "a.b_c+d-E9", "x" * 63])
def test_a_name_may_have_letters_digits_and_some_signs(name: str) -> None:
    assert options(f"name: {name}").name == name


@pytest.mark.parametrize(
    "text",
    [
        "index: 1",
        "index: 100",
        "index: ab",
        "index: -1",
        'index: "\u0661\u0662"',
        'index: "90\\n"',
        'name: ""',
        "name: a b",
        "name: a/b",
        "name: \u00e9",
        f"name: {'x' * 64}",
        "inject: on",
        "inject: HAMi",
        "max_age: 30s",
    ],
)
def test_an_invalid_option_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        options(text)


def test_nothing_is_injected_by_default() -> None:
    assert options("index: 90").inject == "off"
    assert options("inject: off").inject == "off"
    assert options("inject: koordinator").inject == "koordinator"
