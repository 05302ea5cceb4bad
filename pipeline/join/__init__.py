"""The join: combines the events of all sources into snapshots. Pure and synchronous.

This package has the tables of what each source reported, the resolution of claims to holders, and
the layout of series. The holders depend on the content of the tables, not on the order in which
reports arrived. Time comes with the events.

It does no I/O, reads no clock, starts no task, and knows no wire format and no name of a source or
sink.
"""

from pipeline.join.attribution import Outcome
from pipeline.join.join import Join

__all__ = ["Join", "Outcome"]
