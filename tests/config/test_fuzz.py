"""Fuzz tests: for any content of the file only ConfigError is raised."""

import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.config.samples import ENV, SINKS, options_of, problems_of, with_options
from tests.support.examples import examples

KEYS = ["sources", "sinks", "kind", "nvml", "everything", "jsonl", "path", "interval", "count"]
KEYS += ["labels", "rules", "name", "tls", "mode"]
PIECES = [
    *KEYS,
    *(
        ": ",
        ":",
        "\n",
        "\n  ",
        "\n    ",
        "- ",
        "[",
        "]",
        "{",
        "}",
        ", ",
        "'",
        '"',
        "&a ",
        "*a",
        "<<",
    ),
    *("!!str ", "!x ", "? ", "|\n", ">-\n", "#", "%", "@", "${", "${PORT}", "${UNSET}", "$${"),
    *("1", "1s", "010", "1:30", "0x", "1e9", ".inf", ".nan", "null", "~", "yes", "2024-01-01", "="),
    *("---\n", "...\n", "\t", "\\", "\u2028", "\x85", "\N{LATIN SMALL LETTER E WITH ACUTE}"),
]

yaml_like = st.lists(st.sampled_from(PIECES), max_size=40).map("".join)
scalars = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.dates()
)
trees = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5), inner, max_size=5)
    ),
    max_leaves=10,
)


def check(text: str | bytes) -> None:
    for line in problems_of(text):
        assert line.startswith("f.yaml:")
        assert line.isprintable()


@settings(deadline=None)
@given(st.text() | st.binary())
def test_any_text_is_read_or_refused(text: str | bytes) -> None:
    check(text)


@settings(max_examples=examples(200), deadline=None)
@given(yaml_like)
@example("? [a]\n: b")
@example("a: ! b")
@example("count: !!int x")
def test_any_text_that_resembles_yaml_is_read_or_refused(text: str) -> None:
    check(text)
    check(SINKS + "sources:\n  a:\n    kind: everything\n    labels:\n      " + text)


@settings(max_examples=examples(100), deadline=None)
@given(trees)
def test_any_tree_in_any_place_is_read_or_refused(tree: object) -> None:
    check(yaml.safe_dump(tree))
    check(yaml.safe_dump({"sources": {"a": tree}, "sinks": tree}))
    option = {"kind": "everything", "rules": tree, "labels": tree, "tls": tree, "mode": tree}
    check(yaml.safe_dump({"sources": {"a": option}}))


@settings(deadline=None)
@given(
    st.sampled_from(["count", "ratio", "flag", "mode", "wait", "buffer", "listen", "path"]), scalars
)
def test_any_value_of_any_option_is_read_or_refused(key: str, value: object) -> None:
    check(with_options(yaml.safe_dump({key: value})))


@settings(deadline=None)
@given(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0")))
@example("a: 1\nb: 2")
@example("}\nsinks: null")
@example("- x")
@example("*a")
@example("${PORT}")
def test_the_value_of_a_variable_never_changes_the_structure(value: str) -> None:
    env = {**ENV, "V": value}
    options = options_of("text: ${V}\nnames: ['-${V}', x]\nlabels: {a: '${V}', b: x}", env)
    assert options.text == value
    assert options.labels == {"a": value, "b": "x"}
    assert options.names == (f"-{value}", "x")


@settings(deadline=None)
@given(st.text(min_size=4, alphabet="ABCDEGHJK"))
def test_the_value_of_a_variable_is_never_shown(value: str) -> None:
    env = {**ENV, "V": value}
    keys = ["count", "ratio", "flag", "mode", "wait", "buffer", "listen"]
    text = with_options("".join(f"{key}: ${{V}}\n" for key in keys))
    assert len(problems_of(text, env)) == len(keys)
    assert not any(value in line for line in problems_of(text, env))
