"""Options of the sink `events`."""

from pathlib import Path

import pytest

from config.errors import ConfigError
from config.loader import parse
from config.value_types import Duration
from pipeline.component.registry import RegisteredKinds
from sinks.events.options import Options

TEXT = "sources: {{gpus: {{kind: nvml}}}}\nsinks: {{notify: {{kind: events{more}}}{other}}}\n"


def options(more: str = "", other: str = "") -> object:
    text = TEXT.format(more=more, other=other)
    config = parse(text, RegisteredKinds(), env={}, origin="test")
    return config.sinks["notify"].options


def test_defaults_of_all_options() -> None:
    defaults = options()
    assert defaults == Options()
    assert isinstance(defaults, Options)
    assert (defaults.codes, defaults.namespaces, defaults.per_minute) == ((), ("*",), 30)
    assert (defaults.repeat, defaults.wait) == (Duration.parse("10m"), Duration.parse("6s"))


def test_all_options_can_be_set() -> None:
    parsed = options(
        ", kubeconfig: /etc/k, codes: [48, 79], namespaces: [ml], repeat: 1m, wait: 0s, "
        "per_minute: 5"
    )
    assert parsed == Options(
        kubeconfig=Path("/etc/k"),
        codes=(48, 79),
        namespaces=("ml",),
        repeat=Duration.parse("1m"),
        wait=Duration.parse("0s"),
        per_minute=5,
    )


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (", codes: [0]", ""),
        (", codes: [70000]", ""),
        (", codes: 79", ""),
        (", namespaces: []", ""),
        (', namespaces: ["ml", " "]', "an empty pattern matches no namespace"),
        (", repeat: 1s", "10s"),
        (", repeat: 2h", "1h"),
        (", wait: 2m", "1m"),
        (", per_minute: 0", ""),
        (", per_minute: 1000", ""),
        (", pods: x", ""),
    ],
)
def test_invalid_values_are_rejected(more: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        options(more)
    assert message in str(raised.value)


def test_only_one_events_sink_is_allowed() -> None:
    with pytest.raises(ConfigError, match="already uses Events on this node's pods"):
        options(other=", again: {kind: events}")
