"""Whole documents: their configuration or all their problems, and the JSON Schema's verdict."""

import pathlib

import jsonschema
import pytest

from config.json_schema import json_schema
from config.schema import Component, Log
from config.value_types import ByteSize, Duration, ListenAddress
from tests.config.samples import (
    SINKS,
    Gpus,
    Lines,
    Rule,
    Samples,
    Tls,
    as_editor_sees,
    options_of,
    problems_of,
    read,
    with_options,
)

NO_SOURCE = "no source is configured: add at least one"
NO_SINK = "no sink is configured: add at least one"
KINDS = "the kinds are nvml, everything"
KEYS = "the keys are node, sources, sinks, counters, http, log, shutdown_grace"
VALID = "sources: {a: {kind: nvml}}\n" + SINKS

VALIDATOR = jsonschema.Draft202012Validator(json_schema(Samples()))


def editor_agrees(text: str) -> bool:
    return bool(VALIDATOR.is_valid(as_editor_sees(text)))


def test_a_file_with_all_sections_is_read() -> None:
    text = """
node: ${NODE_NAME:-}
sources:
  gpus: {kind: nvml, interval: 10s, devices: [a, 0]}
sinks:
  lines: {kind: jsonl, path: "-"}
log: {level: debug, format: json}
shutdown_grace: 1m
"""
    config = read(text)
    gpus = Gpus(interval=Duration.parse("10s"), devices=("a", "0"))
    assert config.node == "node-1"
    assert config.sources == {"gpus": Component("source", "gpus", "nvml", gpus)}
    assert config.sinks == {"lines": Component("sink", "lines", "jsonl", Lines(path="-"))}
    assert config.log == Log(level="debug", format="json")
    assert config.shutdown_grace == Duration(60)
    assert read(text) == config
    assert editor_agrees(text)


def test_a_short_file_gets_the_defaults() -> None:
    config = read(VALID)
    assert (config.node, config.log, config.shutdown_grace) == ("", Log(), Duration(10))
    assert config.sources["a"].options == Gpus()


@pytest.mark.parametrize(
    ("options", "field", "value"),
    [
        ("text: hello", "text", "hello"),
        ("text: 1.10", "text", "1.10"),
        ("text: on", "text", "on"),
        ("text: 2024-01-01", "text", "2024-01-01"),
        ("text: 0x1F", "text", "0x1F"),
        ("text: ''", "text", ""),
        ("text: 'null'", "text", "null"),
        ("text: !!str null", "text", "null"),
        ("text: |\n  a\n  b", "text", "a\nb\n"),
        ("flag: true", "flag", True),
        ("flag: off", "flag", False),
        ("flag: Yes", "flag", True),
        ("count: 3", "count", 3),
        ("count: +3", "count", 3),
        ("rules: [{name: a, weight: 1_000}]", "rules", (Rule(name="a", weight=1000.0),)),
        ("count: 0x0a", "count", 10),
        ("ratio: 0.25", "ratio", 0.25),
        ("ratio: .25", "ratio", 0.25),
        ("mode: on", "mode", "on"),
        ("mode: 3", "mode", "3"),
        ("maybe: x", "maybe", "x"),
        ("maybe: null", "maybe", None),
        ("maybe:", "maybe", None),
        ("wait: ~", "wait", None),
        ("wait: 3s", "wait", Duration(3)),
        ("names: [a, 1, true]", "names", ("a", "1", "true")),
        ("names: []", "names", ()),
        ("numbers: [1, 2]", "numbers", (1, 2)),
        ("labels: {1: x, on: y}", "labels", {"1": "x", "on": "y"}),
        ("limits: {a: 1KiB}", "limits", {"a": ByteSize(1024)}),
        ("buffer: 2MiB", "buffer", ByteSize(2 * 1024**2)),
        ("listen: :80", "listen", ListenAddress("", 80)),
        ("listen: '[::1]:80'", "listen", ListenAddress("::1", 80)),
        ("path: /a/b", "path", pathlib.Path("/a/b")),
        ("path: 1", "path", pathlib.Path("1")),
        ("tls: {cert: c}", "tls", Tls(cert=pathlib.Path("c"))),
        (
            "rules: [{name: a}, {name: b, weight: 2}]",
            "rules",
            (Rule(name="a"), Rule(name="b", weight=2.0)),
        ),
        ("rules: [&r {name: a}, *r]", "rules", (Rule(name="a"), Rule(name="a"))),
        # Placeholders: an unquoted value gets its type after expansion, a quoted one is a string.
        ("text: ${NODE_NAME}", "text", "node-1"),
        ("text: a-${PORT}-${UNSET:-z}", "text", "a-7-z"),
        ("text: $${PORT} $PORT", "text", "${PORT} $PORT"),
        ("text: ${EMPTY}", "text", ""),
        ("text: ${INJECT}", "text", "{a: 1}"),
        ("text: ${UNSET:-null}", "text", "null"),
        ("count: ${PORT}", "count", 7),
        ("count: ${UNSET:-8}", "count", 8),
        ("flag: ${FLAG}", "flag", True),
        ("flag: ${EMPTY:-true}", "flag", True),
        ("wait: ${SECS}", "wait", Duration(3)),
        ('wait: "${SECS}"', "wait", Duration(3)),
        ("wait: ${EMPTY}", "wait", None),
        ("maybe: ${EMPTY}", "maybe", None),
        ("names: ['${NODE_NAME}']", "names", ("node-1",)),
    ],
)
def test_valid_options_are_parsed(options: str, field: str, value: object) -> None:
    found = getattr(options_of(options), field)
    assert found == value
    assert type(found) is type(value)
    # An editor reads a boolean or a number there; a schema cannot express that.
    if options not in {"mode: on", "mode: 3"}:
        assert editor_agrees(with_options(options))


SCHEMA_CANNOT_KNOW = True


@pytest.mark.parametrize(
    ("options", "problem", "beyond_schema"),
    [
        ("txt: a", '4:5: txt: unknown key; did you mean "text"?', False),
        ("text:", '4:10: text: expected a text, found nothing; write "" for an empty text', False),
        ("text: null", '4:11: text: expected a text, found nothing; write "null" in quotes', False),
        ("text: [a]", "4:11: text: expected a text, found a list", False),
        ("text: {a: b}", "4:11: text: expected a text, found a mapping", False),
        ("flag: maybe", '4:11: flag: expected true or false, found the text "maybe"', False),
        (
            "flag: 'true'",
            '4:11: flag: expected true or false, found the text "true"; remove the quotes',
            False,
        ),
        ("flag: 1", '4:11: flag: expected true or false, found the number "1"', False),
        ("count: x", '4:12: count: expected a whole number, found the text "x"', False),
        (
            "count: '3'",
            '4:12: count: expected a whole number, found the text "3"; remove the quotes',
            False,
        ),
        ("count: 1.5", '4:12: count: expected a whole number, found the number "1.5"', False),
        ("count: yes", '4:12: count: expected a whole number, found the boolean "yes"', False),
        ("count: 0", '4:12: count: "0" is too small; the minimum is 1', False),
        ("count: 11", '4:12: count: "11" is too large; the maximum is 10', False),
        (
            "count: 010",
            (
                '4:12: count: "010" is read differently by different YAML readers; '
                "write a plain decimal number, without a leading zero or a colon"
            ),
            SCHEMA_CANNOT_KNOW,
        ),
        ("ratio: 0", '4:12: ratio: "0" is too small; the minimum is 0.1', False),
        ("ratio: 1.0", '4:12: ratio: "1.0" is too large; the maximum is 0.9', False),
        (
            "ratio: .nan",
            '4:12: ratio: expected a number, found the number ".nan"',
            SCHEMA_CANNOT_KNOW,
        ),
        (
            "mode: of",
            '4:11: mode: expected one of on, off, 3, found the text "of"; did you mean "off"?',
            False,
        ),
        ("wait: 3", '4:11: wait: "3" has no unit; write 3s or 3ms', False),
        (
            "wait: true",
            '4:11: wait: expected a duration such as 5s or 500ms, found the boolean "true"',
            False,
        ),
        ("names: a", '4:12: names: expected a list, found the text "a"; write [a]', False),
        ("names:", "4:11: names: expected a list, found nothing", False),
        ("names: [a, '']", '4:16: names[1]: "" is too short; it needs 1 or more characters', False),
        ("numbers: [1, x]", '4:18: numbers[1]: expected a whole number, found the text "x"', False),
        (
            "numbers: [1, 2, 3, 4]",
            "4:14: numbers: the list is too long; it takes 3 or fewer items",
            False,
        ),
        ("labels: [a]", "4:13: labels: expected a mapping, found a list", False),
        (
            "labels: {a.b: null}",
            '4:19: labels."a.b": expected a text, found nothing; write "null" in quotes',
            False,
        ),
        ("limits: {a: 1}", '4:17: limits.a: "1" has no unit; write 1KiB or 1B', False),
        ("buffer: 1B", '4:13: buffer: "1B" is too small; the minimum is 1KiB', SCHEMA_CANNOT_KNOW),
        ("listen: 9400", '4:13: listen: "9400" is only a port; write ":9400"', False),
        (
            "path: ''",
            '4:11: path: expected a path, found the text ""; a path has at least one character',
            False,
        ),
        ("tls: {}", "4:10: tls.cert: this key is missing", False),
        ("tls: x", '4:10: tls: expected a mapping, found the text "x"', False),
        (
            "rules: [{name: A}]",
            '4:20: rules[0].name: "A" does not fit; it must match ^[a-z]+$',
            False,
        ),
        (
            "rules: [{name: a, wait: 1}]",
            '4:23: rules[0].wait: unknown key; did you mean "weight"?',
            False,
        ),
        # Placeholders. The value of a variable is never shown: it may be a secret.
        (
            "text: ${UNSET}",
            (
                "4:11: text: the environment variable UNSET is not set; "
                "set it, or give a default: ${UNSET:-default}"
            ),
            SCHEMA_CANNOT_KNOW,
        ),
        (
            "text: ${UNSET",
            (
                "4:11: text: a placeholder is malformed; "
                "write ${NAME} or ${NAME:-default}, and $${ for a literal ${"
            ),
            SCHEMA_CANNOT_KNOW,
        ),
        (
            "count: ${NODE_NAME}",
            '4:12: count: expected a whole number, found the value of "${NODE_NAME}"',
            SCHEMA_CANNOT_KNOW,
        ),
        (
            'count: "${PORT}"',
            '4:12: count: expected a whole number, found the value of "${PORT}"; remove the quotes',
            SCHEMA_CANNOT_KNOW,
        ),
        (
            "wait: ${PORT}",
            (
                '4:11: wait: the value of "${PORT}" has no unit; '
                "expected a duration such as 5s or 500ms"
            ),
            SCHEMA_CANNOT_KNOW,
        ),
        (
            "mode: ${PORT}",
            '4:11: mode: expected one of on, off, 3, found the value of "${PORT}"',
            SCHEMA_CANNOT_KNOW,
        ),
        (
            "tls: ${INJECT}",
            '4:10: tls: expected a mapping, found the text "${INJECT}"',
            SCHEMA_CANNOT_KNOW,
        ),
        (
            "labels: {'${PORT}': a}",
            (
                '4:14: labels: the key "${PORT}" contains a placeholder; '
                "placeholders work only in values"
            ),
            SCHEMA_CANNOT_KNOW,
        ),
    ],
)
def test_invalid_options_are_refused(options: str, problem: str, beyond_schema: bool) -> None:
    text = with_options(options)
    place, _, rest = problem.partition(" ")
    prefix = "sources.it."
    assert problems_of(text) == [f"f.yaml:{place} {prefix}{rest}"]
    assert editor_agrees(text) is beyond_schema


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("", ["f.yaml: the file is empty; configure a source and a sink"]),
        ("# only a comment\n", ["f.yaml: the file is empty; configure a source and a sink"]),
        ("[]", ["f.yaml:1:1: the top level must be a mapping with the keys sources and sinks"]),
        ("null", ["f.yaml:1:1: the top level must be a mapping with the keys sources and sinks"]),
        ("{}", [f"f.yaml:1:1: sources: {NO_SOURCE}", f"f.yaml:1:1: sinks: {NO_SINK}"]),
        (SINKS + "sources:\n", [f"f.yaml:2:9: sources: {NO_SOURCE}"]),
        (SINKS + "sources: {}\n", [f"f.yaml:2:10: sources: {NO_SOURCE}"]),
        ("sources: {a: {kind: nvml}}\nsinks: null\n", [f"f.yaml:2:8: sinks: {NO_SINK}"]),
        (
            SINKS + "sources: [nvml]\n",
            [
                (
                    "f.yaml:2:10: sources: expected a mapping, found a list; "
                    "write a name and below it the kind"
                )
            ],
        ),
        (
            SINKS + "sources: {nvml: }\n",
            [
                (
                    "f.yaml:2:17: sources.nvml: expected a mapping, found nothing; "
                    "write {kind: ...}; the kinds are nvml, everything"
                )
            ],
        ),
        (
            SINKS + "sources:\n  nvml: {}\n  b: {interval: 5s}\n",
            [
                'f.yaml:3:3: sources.nvml: the key "kind" is missing; write "kind: nvml"',
                'f.yaml:4:3: sources.b: the key "kind" is missing; the kinds are nvml, everything',
            ],
        ),
        (
            SINKS + "sources: {a: {kind: nvm}, b: {kind: zzz}, c: {kind: []}}\n",
            [
                (
                    'f.yaml:2:21: sources.a.kind: unknown source kind "nvm"; '
                    f'did you mean "nvml"? {KINDS}'
                ),
                f'f.yaml:2:37: sources.b.kind: unknown source kind "zzz"; {KINDS}',
                "f.yaml:2:53: sources.c.kind: expected a text, found a list",
            ],
        ),
        (
            SINKS + "sources: {Gpus: {kind: nvml}}\n",
            [
                (
                    'f.yaml:2:11: sources.Gpus: "Gpus" cannot be the name of a source; '
                    "a name starts with a-z and has up to 63 of a-z, 0-9, _ and -"
                )
            ],
        ),
        (
            "sources: {a: {kind: nvml}}\nsinks: {out: {kind: jsonl}}\n",
            [
                (
                    "f.yaml:2:14: sinks.out.path: this key is missing; "
                    "Where the lines go; - is the standard output."
                )
            ],
        ),
        (VALID + "logs: {}\n", ['f.yaml:3:1: logs: unknown key; did you mean "log"?']),
        (VALID + "zzz: 1\n", [f"f.yaml:3:1: zzz: unknown key; {KEYS}"]),
        (
            VALID + "log: {level: warn}\n",
            [
                (
                    "f.yaml:3:14: log.level: expected one of debug, info, warning, error, "
                    'found the text "warn"; did you mean "warning"?'
                )
            ],
        ),
        (
            VALID + "shutdown_grace: 5\n",
            ['f.yaml:3:17: shutdown_grace: "5" has no unit; write 5s or 5ms'],
        ),
        # All problems together, in the order of the file.
        (
            "nod: x\nsources:\n  gpus: {kind: nvml, intervall: 5s, slow_interval: 5}\n",
            [
                'f.yaml:1:1: nod: unknown key; did you mean "node"?',
                f"f.yaml:1:1: sinks: {NO_SINK}",
                'f.yaml:3:22: sources.gpus.intervall: unknown key; did you mean "interval"?',
                'f.yaml:3:52: sources.gpus.slow_interval: "5" has no unit; write 5s or 5ms',
            ],
        ),
    ],
)
def test_invalid_documents_are_refused(text: str, problems: list[str]) -> None:
    assert problems_of(text) == problems
    assert not editor_agrees(text)


def test_options_are_checked_against_each_other() -> None:
    text = SINKS + "sources: {a: {kind: nvml, interval: 1m}, b: {slow_interval: 1s, kind: nvml}}\n"
    assert problems_of(text) == [
        "f.yaml:2:14: sources.a.slow_interval: must not be shorter than interval, 1m",
        "f.yaml:2:61: sources.b.slow_interval: must not be shorter than interval, 5s",
    ]


def test_the_kind_may_come_from_the_environment() -> None:
    text = SINKS + "sources: {a: {kind: '${KIND:-nvml}', interval: 2s}}\n"
    assert read(text).sources["a"].kind == "nvml"
    assert editor_agrees(text)
    assert problems_of(text, {"KIND": "secret"}) == [
        (f'f.yaml:2:21: sources.a.kind: unknown source kind "${{KIND:-nvml}}"; {KINDS}')
    ]
