"""Regular expressions match like Go's regexp package, in bounded time."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.patterns import parse_pattern
from config.value_types import FormatError


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("team", ["team", "my-team-x"], ["tea", ""]),
        ("^team$", ["team"], ["my-team", "teams"]),
        ("", ["", "x"], []),
        ("^app\\.kubernetes\\.io/", ["app.kubernetes.io/name"], ["appxkubernetes.io/name"]),
        ("^(?:team|app)$", ["team", "app"], ["teams"]),
        ("^(?P<k>a|b)+$", ["abba"], ["", "c"]),
        ("^a{2,3}$", ["aa", "aaa"], ["a", "aaaa"]),
        ("^a{2,}$", ["aa", "aaaaaa"], ["a"]),
        ("^a{2}?b$", ["aab"], ["ab"]),
        ("^a{,2}$", ["a{,2}"], ["a"]),
        ("^x{$", ["x{"], ["x"]),
        ("^[a-c0-9_.-]+$", ["b_9.-"], ["d"]),
        ("^[^/]+/name$", ["app/name"], ["a/b/name"]),
        ("^[]a]$", ["]", "a"], ["b"]),
        ("^[[:alpha:]][[:^digit:]]$", ["ab", "a-"], ["1a", "a1"]),
        (r"^\w+-\d\d$", ["web-07"], ["web-7x"]),
        (r"^[\d.]+\D$", ["1.0a"], ["a.0"]),
        (r"^\x61\x{62}$", ["ab"], ["ac"]),
        (r"\Aa.c\z", ["abc", "a/c"], ["xabc", "abcx"]),
        (r"\bteam\b", ["my-team-x"], ["steam"]),
        (r"\Beam", ["team"], ["eam"]),
        ("(?i)team", ["TEAM", "Team"], ["tea"]),
        ("^(?i:a)b$", ["Ab", "ab"], ["aB"]),
        ("^((?i)a)b(?i-s)c$", ["AbC"], ["ABc"]),
        ("^(a*)*$", ["", "aaa"], ["b"]),
        ("^(|a)+$", ["", "aa"], ["b"]),
        ("a|", ["", "b"], []),
        (r"^\pL+$", ["name", "été"], ["n-1"]),
        (r"^\p{Greek}$", ["λ"], ["a"]),
    ],
)
def test_a_pattern_matches_like_in_go(pattern: str, matching: list[str], other: list[str]) -> None:
    found = parse_pattern(pattern)
    assert [text for text in matching if not found(text)] == []
    assert [text for text in other if found(text)] == []


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(a", '"(a" is not a regular expression: missing ): (a; write it in the syntax of Go'),
        ("a)", '"a)" is not a regular expression: unexpected ): a)'),
        ("x[a", '"x[a" is not a regular expression: missing ]: [a'),
        ("*a", '"*a" is not a regular expression: no argument for repetition operator: *'),
        ("a**", '"a**" is not a regular expression: bad repetition operator: **'),
        ("a{3,2}", '"a{3,2}" is not a regular expression: invalid repetition size: {3,2}'),
        ("[z-a]", '"[z-a]" is not a regular expression: invalid character class range: z-a'),
        ("(?=a)", '"(?=a)" is not a regular expression: invalid perl operator: (?='),
        ("a\\", "is not a regular expression: trailing \\"),
        (r"(a)\1", r'"(a)\1" is not a regular expression: invalid escape sequence: \1'),
        ("[[:foo:]]", "invalid character class range: [:foo:]"),
        ("(a{1000}){1000}", "invalid repetition size: {1000}"),
        (r"\pL{1000}", "is too large a regular expression; use fewer repetitions"),
        ("a" * 1001, "is too long; the maximum is 1000 characters"),
    ],
)
def test_an_invalid_pattern_is_refused_with_its_faulty_part(pattern: str, message: str) -> None:
    with pytest.raises(FormatError) as found:
        parse_pattern(pattern)
    assert message in str(found.value)


@pytest.mark.parametrize("pattern", ["(a+)+$", "^(a|a)*$", "(a|aa)+$", "^a*a*a*a*a*a*$", "(.*)*x"])
def test_every_pattern_matches_in_bounded_time(pattern: str) -> None:
    """Python's `re` would take years for some of these."""
    found = parse_pattern(pattern)
    start = time.process_time()
    assert not found("a" * 316 + "b")
    assert time.process_time() - start < 0.5


_ATOMS = st.sampled_from(["a", "b", "c", ".", "[ab]", "[^a]", "^", "$", r"\b", r"\w", "-", r"\-"])
_PATTERNS = st.recursive(
    _ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map("".join),
        st.lists(inner, min_size=1, max_size=3).map("|".join).map("({})".format),
        st.tuples(inner.map("({})".format), st.sampled_from(["*", "+", "?", "{2}", "{1,2}"])).map(
            "".join
        ),
    ),
    max_leaves=8,
)


@given(_PATTERNS, st.text("abc-", max_size=8))
def test_patterns_match_like_the_re_module(pattern: str, text: str) -> None:
    assert parse_pattern(pattern)(text) is (re.search(pattern, text) is not None)


@given(st.text(max_size=40), st.text(max_size=40))
def test_any_text_is_a_pattern_or_refused(pattern: str, text: str) -> None:
    try:
        found = parse_pattern(pattern)
    except FormatError:
        return
    assert found(text) in {True, False}
