"""Which addresses a host engine may have."""

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
def test_good_addresses(address: str, socket: str) -> None:
    parse(FILE.format(address), RegisteredKinds(), env={}, origin="test")
    assert Options(address=address).socket == socket


@pytest.mark.parametrize(
    "address",
    ["", "localhost", "localhost:0", "localhost:99999", "http://a:5555", "a b:5555", ":1"],
)
def test_bad_addresses(address: str) -> None:
    with pytest.raises(ConfigError, match="is not valid"):
        parse(FILE.format(address), RegisteredKinds(), env={}, origin="test")
