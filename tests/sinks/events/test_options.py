"""What may be configured."""

from pathlib import Path

import pytest

from config.errors import ConfigError
from config.loader import parse
from config.value_types import Duration
from pipeline.component.registry import RegisteredKinds
from sinks.events.options import Options

TEXT = "sources: {{gpus: {{kind: nvml}}}}\nsinks: {{told: {{kind: events{more}}}{other}}}\n"


def options(more: str = "", other: str = "") -> object:
    text = TEXT.format(more=more, other=other)
    config = parse(text, RegisteredKinds(), env={}, origin="test")
    return config.sinks["told"].options


def test_defaults() -> None:
    made = options()
    assert made == Options()
    assert isinstance(made, Options)
    assert (made.codes, made.namespaces, made.per_minute) == ((), ("*",), 30)
    assert (made.repeat, made.wait) == (Duration.parse("10m"), Duration.parse("6s"))


def test_what_is_given() -> None:
    given = options(
        ", kubeconfig: /etc/k, codes: [48, 79], namespaces: [ml], repeat: 1m, wait: 0s, "
        "per_minute: 5"
    )
    assert given == Options(
        kubeconfig=Path("/etc/k"),
        codes=(48, 79),
        namespaces=("ml",),
        repeat=Duration.parse("1m"),
        wait=Duration.parse("0s"),
        per_minute=5,
    )


@pytest.mark.parametrize(
    ("more", "given_out"),
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
def test_what_may_not_be(more: str, given_out: str) -> None:
    with pytest.raises(ConfigError) as raised:
        options(more)
    assert given_out in str(raised.value)


def test_there_is_one_of_them() -> None:
    with pytest.raises(ConfigError, match="already uses Events on this node's pods"):
        options(other=", again: {kind: events}")
