"""The join: events in, snapshots out. Pure and synchronous; time arrives as an event.

Belongs here: tables of what each source said, the resolution of claims, and the layout of series.
Resolution is a function of the tables, never of the order in which events came.

Doesn't belong here: I/O, clocks, tasks, wire formats, the names of sources or sinks.
"""

from pipeline.join.attribution import Outcome
from pipeline.join.join import Join

__all__ = ["Join", "Outcome"]
