"""Makes the document. Pure."""

from pipeline.base.safe_text import line
from pipeline.status_page.component_status import sinks, sources
from pipeline.status_page.daemon_state import Known, date
from pipeline.status_page.device_status import gpus
from pipeline.status_page.status_document import StatusDocument
from pipeline.status_page.usage_status import used


def status_of(known: Known) -> StatusDocument:
    """Return how the node stands, by what is known of it."""
    found, left_out = gpus(known)
    ready, text = known.ready
    started = known.started
    return StatusDocument(
        node=line(known.node),
        podgpu=known.version,
        time=date(known.now.wall_ns),
        started=None if started is None else date(round(started * 1e9)),
        ready=ready,
        waiting_for=None if ready else line(text),
        driver=_driver(known),
        gpus=found,
        devices_left_out=left_out,
        sources=sources(known),
        sinks=sinks(known),
        usage=used(known),
    )


def _driver(known: Known) -> str | None:
    if known.snapshot is None:
        return None
    devices = (one.device for one in known.snapshot.layout.attributions.values())
    return next((line(device.driver) for device in devices if device.driver), None)
