"""Options of the sink `prometheus` for the contract tests."""

from pathlib import Path

from config.value_types import ListenAddress
from sinks.prometheus.options import Options


def options(_: Path) -> Options:
    return Options(listen=ListenAddress.parse("127.0.0.1:0"))
