"""The command line is read as Go's flag package does, and the environment as urfave/cli does."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.errors import ConfigError
from podgpu.cli.dcgm_exporter.go_arguments import Setting, Settings, milliseconds, read, variables
from podgpu.cli.dcgm_exporter.option_table import OPTIONS, Option, Value

SWITCHES = [option for option in OPTIONS if option.value_type is bool and option.variable]
TRUE, FALSE = ("1", "t", "T", "TRUE", "true", "True"), ("0", "f", "F", "FALSE", "false", "False")


def values(*words: str) -> dict[str, Value]:
    return {name: setting.value for name, setting in read(words).settings.items()}


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        (["-f", "x"], "collectors", "x"),
        (["-f=x"], "collectors", "x"),
        (["--f", "x"], "collectors", "x"),
        (["--collectors", "x"], "collectors", "x"),
        (["--collectors=x"], "collectors", "x"),
        (["-collectors", "x"], "collectors", "x"),
        (["-collectors=x"], "collectors", "x"),
        (["-f", "a=b"], "collectors", "a=b"),
        (["-f=a=b"], "collectors", "a=b"),
        (["-f="], "collectors", ""),
        (["-f", "-a"], "collectors", "-a"),
        (["-f", "--"], "collectors", "--"),
        (["-f", "x", "-f", "y"], "collectors", "y"),
        (["-c", "15000"], "collect-interval", 15000),
        (["-c", "0x10"], "collect-interval", 16),
        (["-c", "010"], "collect-interval", 8),
        (["-c", "1_000"], "collect-interval", 1000),
        (["-c=-5"], "collect-interval", -5),
        (["-k"], "kubernetes", True),
        (["--kubernetes"], "kubernetes", True),
        (["-kubernetes"], "kubernetes", True),
        (["-k=true"], "kubernetes", True),
        (["--kubernetes=false"], "kubernetes", False),
        (["-k", "-k=0"], "kubernetes", False),
        (["-rbmn"], "replace-blanks-in-model-name", True),
        (["--rbmn"], "replace-blanks-in-model-name", True),
        (["--nvidia-resource-names", "a/b,c/d"], "nvidia-resource-names", ("a/b", "c/d")),
        (["--nvidia-resource-names", "a/b, c/d "], "nvidia-resource-names", ("a/b", "c/d")),
        (
            ["--nvidia-resource-names=a/b", "-k", "--nvidia-resource-names=c/d"],
            "nvidia-resource-names",
            ("a/b", "c/d"),
        ),
    ],
)
def test_an_option_can_be_written_in_each_form_of_go(
    words: Sequence[str], name: str, value: Value
) -> None:
    assert values(*words)[name] == value


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_every_option_can_be_set_by_each_of_its_names(option: Option) -> None:
    text, value = {
        str: ("x", "x"),
        int: ("7", 7),
        bool: ("true", True),
        tuple: ("x", ("x",)),
    }[option.value_type]
    for flag in option.flags:
        assert values(f"{flag}={text}") == {option.name: value}


def test_everything_after_the_first_word_is_ignored() -> None:
    """`-k true` is a switch and a word; dcgm-exporter silently ignores everything after a word."""
    line = read(["-k", "true", "-f", "x"])
    assert list(line.settings) == ["kubernetes"]
    assert line.ignored == ("true", "-f", "x")
    assert read(["-k", "--", "-f"]).ignored == ("-f",)
    assert read(["-k", "-", "-f"]).ignored == ("-", "-f")


@pytest.mark.parametrize(
    "word", ["-h", "--help", "-help", "h", "help", "-v", "--version", "version"]
)
@pytest.mark.parametrize("before", [[], ["-k"], ["-f", "x"], ["--"]])
def test_help_and_version_are_options_and_commands(before: list[str], word: str) -> None:
    line = read([*before, word, "more"])
    if before == ["--"] and word.startswith("-"):
        assert (line.info, line.ignored) == ("", (word, "more"))
    else:
        assert line.info == ("help" if "h" in word else "version")


@pytest.mark.parametrize("word", ["v", "Help", "helps", "run", "true", "completion"])
def test_no_other_word_is_a_command(word: str) -> None:
    line = read(["-k", word, "help"])
    assert (line.info, line.ignored) == ("", (word, "help"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--colectors", "x"], "--colectors: unknown option; did you mean --collectors?"),
        (["-z"], "-z: unknown option; podgpu dcgm-exporter --help lists all"),
        (["---f", "x"], "---f: unknown option; did you mean -f?"),
        (["-f"], "-f: the value is missing; write -f VALUE"),
        (["-c", "5s"], '-c: "5s" is not a whole number'),
        (["-c", ""], '-c: "" is not a whole number'),
        (["-c", "9" * 30], '-c: "999999999999999999999999999999" is out of range'),
        (["-c", "9" * 5000], "is not a whole number"),
        (["-k=yes"], '-k: "yes" is neither true nor false; write -k=true or -k=false'),
        (["-k="], '-k: "" is neither true nor false; write -k=true or -k=false'),
        (["-f", "a\udcffb"], "-f: the value is not UTF-8; write it again"),
        (["--a\nb"], "--a\\nb: unknown option"),
    ],
)
def test_an_error_names_the_option(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(words)
    assert message in str(caught.value)
    assert str(caught.value).startswith("podgpu dcgm-exporter: ")
    assert "\n" not in str(caught.value)


def test_all_errors_are_reported_together() -> None:
    with pytest.raises(ConfigError) as caught:
        read(["-c", "x", "-k=maybe", "--nope", "y", "-c", "z"])
    assert [problem.path for problem in caught.value.problems] == ["-c", "-k", "--nope"]


@pytest.mark.parametrize("option", [o for o in OPTIONS if o.variable], ids=lambda o: o.variable)
def test_every_variable_is_read(option: Option) -> None:
    text = {str: "x", int: "7", bool: "true", tuple: "x,y"}[option.value_type]
    assert list(variables({option.variable: text, "OTHER": "z"})) == [option.name]


def test_a_switch_in_a_variable_has_the_values_of_go() -> None:
    for option in SWITCHES:
        for text in (*TRUE, *FALSE):
            found = variables({option.variable: text})
            assert found[option.name].value is (text in TRUE)
        for text in ("yes", "on", "tRUE", "2", " true"):
            with pytest.raises(ConfigError, match=option.variable):
                variables({option.variable: text})


def test_an_empty_variable_is_ignored() -> None:
    assert variables({option.variable: "" for option in OPTIONS if option.variable}) == {}


def test_variables_of_a_kubernetes_service_are_ignored() -> None:
    """Kubernetes sets such variables for a Service with the name dcgm-exporter."""
    service = {
        "DCGM_EXPORTER_PORT": "tcp://10.0.0.1:9400",
        "DCGM_EXPORTER_SERVICE_HOST": "10.0.0.1",
        "DCGM_EXPORTER_PORT_9400_TCP": "tcp://10.0.0.1:9400",
    }
    assert variables(service) == {}


def test_options_take_precedence_over_variables_and_variables_over_the_file() -> None:
    line = read(["-c", "1000", "-k=false", "--nvidia-resource-names", "a/b"]).settings
    env = variables(
        {
            "DCGM_EXPORTER_INTERVAL": "2000",
            "DCGM_EXPORTER_KUBERNETES": "true",
            "DCGM_EXPORTER_LISTEN": ":1",
            "NVIDIA_RESOURCE_NAMES": "c/d",
        }
    )
    file = {"address": Setting(":2", "file"), "collectors": Setting("x", "file")}
    settings = Settings(line, env).above(file)
    assert settings.number("collect-interval") == 1000
    assert settings.switch("kubernetes") is False
    assert settings.text("address") == ":1"
    assert settings.text("collectors") == "x"
    assert settings.text("devices") == "f"
    assert settings.list("nvidia-resource-names") == ("a/b",)
    origins = [settings.origin(name) for name in ("collect-interval", "address", "collectors")]
    assert origins == ["-c", "DCGM_EXPORTER_LISTEN", "file"]


@given(st.lists(st.text(max_size=12) | st.sampled_from([f for o in OPTIONS for f in o.flags])))
def test_any_arguments_are_read_or_refused(words: list[str]) -> None:
    try:
        line = read(words)
    except ConfigError:
        return
    assert set(line.settings) <= {option.name for option in OPTIONS}


@pytest.mark.parametrize(
    ("text", "expected"),
    [("30s", 30000), ("1m30s", 90000), ("1.5s", 1500), ("250ms", 250), ("1h0m0s", 3600000)],
)
def test_a_duration_of_go_is_read(text: str, expected: int) -> None:
    assert milliseconds(text) == expected


@pytest.mark.parametrize("text", ["", "30", "s", "0s", "1us", "30 s", "-1s", "1s2", "1d"])
def test_an_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no"):
        milliseconds(text)
