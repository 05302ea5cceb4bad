"""A fake client library of DCGM that plays a scenario."""

from tests.fakes.dcgm.fake import FakeDcgm
from tests.fakes.dcgm.scenario import Card, Scenario, Slice

__all__ = ["Card", "FakeDcgm", "Scenario", "Slice"]
