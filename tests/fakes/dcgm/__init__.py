"""A client library of DCGM of our own making, which plays what a test says."""

from tests.fakes.dcgm.fake import FakeDcgm
from tests.fakes.dcgm.scenario import Card, Scenario, Slice

__all__ = ["Card", "FakeDcgm", "Scenario", "Slice"]
