"""Makes the document. Pure."""

from pipeline.status_page.components import sinks, sources
from pipeline.status_page.devices import gpus
from pipeline.status_page.document import StatusDocument
from pipeline.status_page.known import Known, date
from pipeline.status_page.used import used
from pipeline.texts import line


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
