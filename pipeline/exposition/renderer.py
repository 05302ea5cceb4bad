"""Snapshots turned into pages, each worked out when somebody first asks for it."""

from collections.abc import Iterable

from pipeline.base.telemetry import FamilyPoints, Meter
from pipeline.exposition.holder_labels import LabelCache
from pipeline.exposition.naming import PageNaming
from pipeline.exposition.options import PageOptions
from pipeline.exposition.own_metrics import tail
from pipeline.exposition.template import PageTemplate
from pipeline.exposition.text_format import Format
from pipeline.exposition.topology_families import TopologyFamilies
from pipeline.exposition.usage_families import UsageFamilies
from pipeline.fields import FieldPlan
from pipeline.model import Snapshot


class Renderer:
    """The newest snapshot as a page.

    Args:
        options: what the page is to look like.
        plan: fields that are not in it are left out.
        node: the node's name.
        meter: readings that can't be shown are counted there, once per snapshot.
    """

    def __init__(self, options: PageOptions, plan: FieldPlan, node: str, meter: Meter) -> None:
        self._plan = plan
        self._meter = meter
        style = PageNaming(options, plan, node)
        self._labels = LabelCache(style)
        self._topology = TopologyFamilies(style)
        self._usage = UsageFamilies(self._labels)
        self._snapshot: Snapshot | None = None
        self._shape: PageTemplate | None = None
        self._numbers: tuple[list[bytes], int] | None = None

    def show(self, snapshot: Snapshot | None) -> None:
        """Take a snapshot as the newest; None before the first."""
        self._snapshot = snapshot
        self._numbers = None

    def body(self, form: Format) -> bytes:
        """Return the page without its tail; anew at each call."""
        snapshot = self._snapshot
        if snapshot is None:
            return b""
        if self._shape is None or not self._shape.fits(snapshot):
            self._shape = PageTemplate(snapshot.layout, snapshot.at, self._plan, self._labels)
        if self._numbers is None:
            self._numbers = self._shape.format_values(snapshot.readings)
            if gaps := self._numbers[1]:
                self._meter.add("podgpu_sink_dropped_total", gaps, reason="not_finite")
        return b"".join(
            (
                self._shape.body(form, *self._numbers),
                self._topology.body(form, snapshot),
                self._usage.body(form, snapshot),
            )
        )

    @staticmethod
    def tail(form: Format, own: Iterable[FamilyPoints]) -> bytes:
        """Return the end of the page: podgpu's own metrics as they are now."""
        return tail(form, own)
