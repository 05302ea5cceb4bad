"""Render the newest snapshot as a page, when the page is requested."""

from pipeline.base.telemetry import Meter
from pipeline.exposition.holder_labels import LabelCache
from pipeline.exposition.naming import PageNaming
from pipeline.exposition.options import PageOptions
from pipeline.exposition.template import PageTemplate
from pipeline.exposition.text_format import Format
from pipeline.exposition.topology_families import TopologyFamilies
from pipeline.exposition.usage_families import UsageFamilies
from pipeline.fields import FieldPlan
from pipeline.model import Snapshot


class Renderer:
    """Renders the newest snapshot as a page.

    Args:
        options: options of the page.
        plan: fields on the page; others are left out.
        node: the node's name.
        meter: counts readings without a finite value, once per snapshot.
    """

    def __init__(self, options: PageOptions, plan: FieldPlan, node: str, meter: Meter) -> None:
        self._plan = plan
        self._meter = meter
        naming = PageNaming(options, plan, node)
        self._labels = LabelCache(naming)
        self._topology = TopologyFamilies(naming)
        self._usage = UsageFamilies(self._labels)
        self._snapshot: Snapshot | None = None
        self._template: PageTemplate | None = None
        self._values: tuple[list[bytes], int] | None = None

    def show(self, snapshot: Snapshot | None) -> None:
        """Set the newest snapshot; None before the first."""
        self._snapshot = snapshot
        self._values = None

    def body(self, form: Format) -> bytes:
        """Return the page without its tail. Each call builds it again."""
        snapshot = self._snapshot
        if snapshot is None:
            return b""
        if self._template is None or not self._template.fits(snapshot):
            self._template = PageTemplate(snapshot.layout, snapshot.at, self._plan, self._labels)
        if self._values is None:
            self._values = self._template.format_values(snapshot.readings)
            if gaps := self._values[1]:
                self._meter.add("podgpu_sink_dropped_total", gaps, reason="not_finite")
        return b"".join(
            (
                self._template.body(form, *self._values),
                self._topology.body(form, snapshot),
                self._usage.body(form, snapshot),
            )
        )
