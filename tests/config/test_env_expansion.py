"""Expansion of `${NAME}` placeholders in a single string."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.env_expansion import MAX_EXPANDED, Environment, ExpansionError

ENV = Environment({"A": "1", "B_2": "two words", "EMPTY": "", "LOOP": "${A}", "BAD": "\udcff"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("${A}", "1"),
        ("x${A}y${B_2}z", "x1ytwo wordsz"),
        ("${EMPTY}", ""),
        ("${EMPTY:-d}", "d"),
        ("${NO:-d}", "d"),
        ("${NO:-}", ""),
        ("${NO:-a:-b $ c{}", "a:-b $ c{"),
        ("${A:-d}", "1"),
        ("$${A}", "${A}"),
        ("$$${A}", "$${A}"),
        ("$A $(A) $$ $", "$A $(A) $$ $"),
        ("${LOOP}", "${A}"),  # a value is not expanded again
    ],
)
def test_placeholders_are_expanded(text: str, expected: str) -> None:
    assert ENV.expand(text) == expected


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("${NO}", ["the environment variable NO is not set"]),
        (
            "${NO}${NO}${NO2}",
            [f"the environment variable {name} is not set" for name in ("NO", "NO2")],
        ),
        ("${", ["a placeholder is malformed"]),
        ("${}", ["a placeholder is malformed"]),
        ("${A", ["a placeholder is malformed"]),
        ("${1A}", ["a placeholder is malformed"]),
        ("${A:?x}", ["a placeholder is malformed"]),
        ("${A:-${B}}", ["a placeholder is malformed", "the environment variable B is not set"]),
        ("${BAD}", ["the environment variable BAD is not UTF-8"]),
    ],
)
def test_placeholders_that_cannot_be_expanded_are_reported(text: str, messages: list[str]) -> None:
    with pytest.raises(ExpansionError) as caught:
        ENV.expand(text)
    assert [message for message, _ in caught.value.faults] == messages


def test_the_total_length_of_expanded_values_is_limited() -> None:
    environment = Environment({"X": "x" * (MAX_EXPANDED // 2)})
    environment.expand("${X}")
    environment.expand("${X}")
    with pytest.raises(ExpansionError, match="too long"):
        environment.expand("${X}")


@pytest.mark.slow
@given(st.text())
def test_a_string_without_placeholder_stays_unchanged(text: str) -> None:
    if "${" not in text:
        assert ENV.expand(text) == text


@given(st.text())
def test_an_escaped_placeholder_becomes_literal(text: str) -> None:
    escaped = text.replace("${", "$${")
    if "$$${" not in escaped:
        assert ENV.expand(escaped) == text
