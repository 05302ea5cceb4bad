"""Which addresses of a host engine the options accept."""

import pytest

from config.errors import ConfigError
from config.loader import parse
from pipeline.component.registry import RegisteredKinds
from sources.hostengine.options import Options

FILE = "sources: {{engine: {{kind: hostengine, address: '{}'}}}}\nsinks: {{lines: {{kind: jsonl}}}}"


@pytest.mark.parametrize(
    ("address", "socket"),
    [
        ("localhost:5555", ""),
        ("10.0.0.1:5555", ""),
        ("[fd00::1]:5555", ""),
        ("/tmp/nv-hostengine", "/tmp/nv-hostengine"),
        ("unix:///run/he.sock", "/run/he.sock"),
    ],
)
def test_valid_addresses_are_accepted(address: str, socket: str) -> None:
    parse(FILE.format(address), RegisteredKinds(), env={}, origin="test")
    assert Options(address=address).socket == socket


@pytest.mark.parametrize(
    "address",
    ["", "localhost", "localhost:0", "localhost:99999", "http://a:5555", "a b:5555", ":1"],
)
def test_invalid_addresses_are_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="is not valid"):
        parse(FILE.format(address), RegisteredKinds(), env={}, origin="test")
