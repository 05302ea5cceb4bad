"""YAML: what is refused before any option is checked."""

import pytest

from config.yaml_composer import MAX_DEPTH, MAX_WEIGHT, ListNode, MapNode, ScalarNode, compose
from tests.config.samples import SINKS, problems_of, read


def first(text: str | bytes) -> str:
    return problems_of(text)[0]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: 1\na: 2\n", "f.yaml:2:1: a: duplicate key, first on line 1; keep one of them"),
        (
            "x:\n  - {b: 1, b: 2}\n",
            "f.yaml:2:12: x[0].b: duplicate key, first on line 2; keep one of them",
        ),
        ("a: &a [*a]", "f.yaml:1:8: a[0]: the alias *a is inside its own anchor"),
        ("a: *b", "f.yaml:1:4: a: the alias *b has no anchor; define the anchor before the alias"),
        ("a: !x b", 'f.yaml:1:4: a: the tag "!x" is not supported here; remove the tag'),
        (
            "a: !!python/name:os.abc x",
            'f.yaml:1:4: a: the tag "!!python/name:os.abc" is not supported here; remove the tag',
        ),
        ("a: !!set {b}", 'f.yaml:1:4: a: the tag "!!set" is not supported here; remove the tag'),
        ("[a]: 1", "f.yaml:1:1: a list or mapping cannot be a key; quote the key if it is a text"),
        ("'': 1", "f.yaml:1:1: a key is empty"),
        (
            "a: &a {b: 1}\nc:\n  <<: *a\n",
            "f.yaml:3:3: c: merge keys are not supported; write all options here",
        ),
        (
            "a: 1\n---\nb: 1\n",
            "f.yaml:2:1: a second document starts here; keep one document per file",
        ),
        ("[" * 40, f"f.yaml:1:33: nested more than {MAX_DEPTH} levels deep"),
        (
            "a:\n\t- b",
            (
                "f.yaml:2:1: not valid YAML: found character that cannot start any token; "
                "indent with spaces, and quote a value that starts with @, `, % or a tab"
            ),
        ),
        (
            "a: b: c",
            (
                "f.yaml:1:5: not valid YAML: mapping values are not allowed in this context; "
                'quote a value that contains ": "'
            ),
        ),
        (
            "a: {b: ${C}}",
            (
                "f.yaml:1:9: not valid YAML: did not find expected ',' or '}'; "
                "quote a placeholder inside { } or [ ], or write one key per line"
            ),
        ),
        ("a: x\0", "f.yaml:1:5: a NUL byte: this is not a text file; remove it"),
        ("a: 1\nb: \x07", "f.yaml:2:4: the character U+0007 is not allowed; remove it"),
        ("a\ud800", "f.yaml: not valid text at character 2; save as UTF-8"),
        (b"a: 1\nb: \xff", "f.yaml:2:4: not UTF-8; save the file as UTF-8"),
        (
            "#" * (1024 * 1024 + 1),
            "f.yaml: larger than the limit of 1 MiB; check that this is the right file",
        ),
        (
            'a: "\\0"',
            (
                "f.yaml:1:4: a: the text contains a zero character or a surrogate (U+D800 to "
                "U+DFFF); remove it"
            ),
        ),
    ],
)
def test_unsupported_yaml_is_refused(text: str | bytes, problem: str) -> None:
    assert problem in problems_of(text)


def test_too_many_expanded_aliases_are_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]
    assert "aliases counted at each use" in first("\n".join(lines))


@pytest.mark.slow
def test_too_many_values_are_refused() -> None:
    assert f"more than {MAX_WEIGHT} values" in first("a: [" + "1," * (MAX_WEIGHT + 1) + "]")


def test_only_the_first_problems_are_listed_and_the_others_counted() -> None:
    problems = problems_of("".join(f"key{i}: 1\n" for i in range(500)))
    assert len(problems) == 101
    assert problems[-1] == "f.yaml: 402 more problems are not listed"


def test_nesting_up_to_the_limit_is_accepted() -> None:
    depth = MAX_DEPTH - 1
    assert "a: unknown key" in first("a: " + "[" * depth + "]" * depth)


def test_a_byte_order_mark_and_crlf_line_ends_are_accepted() -> None:
    text = SINKS + "sources:\n  a: {kind: nvml}\n"
    expected = read(text)
    assert read(b"\xef\xbb\xbf" + text.encode()) == expected
    assert read(text.replace("\n", "\r\n")) == expected


def test_an_alias_repeats_the_options_of_its_anchor() -> None:
    text = "sources: {a: &a {kind: nvml, interval: 9s}, b: *a}\n" + SINKS
    sources = read(text).sources
    assert sources["a"].options == sources["b"].options
    assert sources["b"].name == "b"


def test_nodes_have_their_line_column_and_quoting() -> None:
    root, problems = compose("a: 1\nb:\n  - 'x'\n")
    assert problems == []
    assert isinstance(root, MapNode)
    a, b = root.entries["a"].value, root.entries["b"].value
    assert isinstance(a, ScalarNode)
    assert (a.text, a.plain, a.line, a.column) == ("1", True, 1, 4)
    assert isinstance(b, ListNode)
    x = b.items[0]
    assert isinstance(x, ScalarNode)
    assert (x.text, x.plain, x.line, x.column) == ("x", False, 3, 5)
