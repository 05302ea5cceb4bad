"""The options of the ledger."""

from pathlib import Path

import pytest

from config.errors import ConfigError
from config.loader import parse
from pipeline.component.registry import RegisteredKinds

HEAD = "sources: {gpus: {kind: nvml}}\nsinks:\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("  a: {kind: ledger}", "path"),
        ("  a: {kind: ledger, path: usage.db}", "not an absolute path"),
        ("  a: {kind: ledger, path: /x/u.db, max_size: 1KiB}", "max_size"),
        ("  a: {kind: ledger, path: /x/u.db, commit_interval: 1h}", "commit_interval"),
        ("  a: {kind: ledger, path: /x/u.db, synchronous: maybe}", "synchronous"),
        ("  a: {kind: ledger, path: /x/u.db}\n  b: {kind: ledger, path: /x/./u.db}", "/x/u.db"),
    ],
)
def test_an_invalid_option_is_refused_with_its_name(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(HEAD + text, RegisteredKinds(), env={}, origin="x")


def test_the_defaults() -> None:
    config = parse(
        HEAD + "  a: {kind: ledger, path: /x/u.db}", RegisteredKinds(), env={}, origin="x"
    )
    options = config.sinks["a"].options
    assert {name: str(getattr(options, name)) for name in options.__struct_fields__} == {
        "path": str(Path("/x/u.db")),
        "keep": "400d",
        "max_size": "256MiB",
        "commit_interval": "5s",
        "synchronous": "normal",
    }
