"""Options of the source `hostengine` for the contract tests."""

from pathlib import Path

from config.value_types import Duration
from sources.hostengine.options import Options
from tests.fakes.dcgm import Card, FakeDcgm, Scenario


def options(folder: Path) -> Options:
    fake = FakeDcgm(Scenario((Card(0, values={1001: 0.5}),)), folder)
    return Options(library=fake.library, interval=Duration.parse("200ms"))
