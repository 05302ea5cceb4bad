"""Options classes: their description, and which type hints are programming errors."""

import json
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import msgspec
import pytest

from config.errors import ConfigError, Problem
from config.json_schema import json_schema
from config.loader import parse
from config.option_docs import Option, describe
from config.option_markers import AtLeast
from config.schema import Config
from config.type_shapes import record
from config.value_types import Duration
from tests.config.samples import SINKS, Everything, Gpus, Lines, Samples


def test_each_option_is_described() -> None:
    assert describe(Gpus) == [
        Option("interval", "duration, at least 100ms, at most 1h", "5s", "Time between readings."),
        Option("slow_interval", "duration", "30s", ""),
        Option("integers", "minor | index", "minor", "How devices are counted."),
        Option("devices", "list of text", "[]", ""),
    ]
    assert describe(Lines) == [
        Option("path", "text", "required", "Where the lines go; - is the standard output.")
    ]


def test_nested_options_are_described_below_their_mapping() -> None:
    rows = {row.name: (row.type, row.default) for row in describe(Everything)}
    assert rows["text"] == ("text", '""')
    assert rows["count"] == ("integer, at least 1, at most 10", "1")
    assert rows["ratio"] == ("number, at least 0.1, at most 0.9", "0.5")
    assert rows["mode"] == ("on | off | 3", "off")
    assert rows["maybe"] == ("text | null", "null")
    assert rows["limits"] == ("mapping of size", "{}")
    assert rows["listen"] == ("address", '":9400"')
    assert rows["tls"] == ("mapping | null", "null")
    assert rows["tls.cert"] == ("path", "required")
    assert rows["rules[].name"] == ("text", "required")


def test_the_top_level_is_described_in_the_same_way() -> None:
    rows = {row.name: (row.type, row.default) for row in describe(Config)}
    assert rows["sources"] == ("mapping of sources", "required")
    assert rows["log"] == ("mapping", "{}")
    assert rows["log.level"] == ("debug | info | warning | error", "info")


def test_the_schema_has_only_json_types() -> None:
    text = json.dumps(json_schema(Samples()))
    assert json.loads(text)["properties"]["shutdown_grace"]["default"] == "10s"


@pytest.mark.parametrize(
    ("hint", "message"),
    [
        (bytes, "is not a type that options can have"),
        (int | str, "a union must consist of one type and None"),
        (dict[int, str], "is neither"),
        (tuple[int, str], "is neither"),
        (Annotated[int, msgspec.Meta(multiple_of=2)], "write inclusive bounds: ge and le"),
        (Annotated[float, msgspec.Meta(gt=0)], "write inclusive bounds: ge and le"),
        (Annotated[Literal["a"], AtLeast(1)], "takes no bounds"),
    ],
)
def test_an_unsupported_type_hint_raises_type_error(hint: Any, message: str) -> None:
    options = msgspec.defstruct("Options", [("field", hint)])
    with pytest.raises(TypeError, match=message):
        record(options)


class Checked(msgspec.Struct, frozen=True, rename="camel"):
    """Options with additional checks."""

    low_mark: int = 0
    high_mark: int = 1

    def __post_init__(self) -> None:
        if self.low_mark < 0:
            raise ValueError("marks are\nnot negative")

    def problems(self) -> Iterable[tuple[str, str]]:
        if self.low_mark > self.high_mark:
            yield "low_mark", "must not be above highMark"
            yield "", "the marks are the wrong way round"


class CheckedKinds:
    def names(self, role: str) -> list[str]:
        return ["it"] if role == "source" else ["jsonl"]

    def options(self, role: str, kind: str) -> type[msgspec.Struct]:
        return Checked if role == "source" else Lines

    def allowed_values(self, noun: str) -> list[str]:
        return []

    def hint(self, noun: str, word: str) -> str:
        return ""


@pytest.mark.parametrize(
    ("options", "problems"),
    [
        ("lowMark: -1", ["f:2:14: sources.a: marks are not negative"]),
        (
            "lowMark: 5",
            [
                "f:2:14: sources.a: the marks are the wrong way round",
                "f:2:34: sources.a.lowMark: must not be above highMark",
            ],
        ),
        ("low_mark: 5", ['f:2:25: sources.a.low_mark: unknown key; did you mean "lowMark"?']),
    ],
)
def test_problems_from_the_checks_of_options_have_their_position(
    options: str, problems: list[str]
) -> None:
    text = f"{SINKS}sources: {{a: {{kind: it, {options}}}}}\n"
    with pytest.raises(ConfigError) as caught:
        parse(text, CheckedKinds(), env={}, origin="f")
    assert str(caught.value).splitlines() == problems


class Size(msgspec.Struct, frozen=True):
    wait: Annotated[Duration, msgspec.Meta(ge=1)] = Duration(1)


def test_bounds_may_be_plain_numbers() -> None:
    assert describe(Size)[0].type == "duration, at least 1s"


def test_a_problem_is_rendered_on_one_line() -> None:
    problem = Problem("a.b", "is wrong", "fix it", 3, 7)
    assert problem.render("f.yaml") == "f.yaml:3:7: a.b: is wrong; fix it"
    assert Problem("", "is wrong").render("<built-in>") == "<built-in>: is wrong"
    error = ConfigError("f.yaml", [problem, Problem("", "is wrong")])
    assert str(error) == "f.yaml: is wrong\nf.yaml:3:7: a.b: is wrong; fix it"
