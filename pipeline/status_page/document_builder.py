"""Build the status document. Pure."""

from pipeline.base.safe_text import line
from pipeline.status_page.component_status import sinks, sources
from pipeline.status_page.daemon_state import StatusInput, date
from pipeline.status_page.device_status import gpus
from pipeline.status_page.status_document import StatusDocument
from pipeline.status_page.usage_status import used


def status_of(status_input: StatusInput) -> StatusDocument:
    """Return the status document for a state of the daemon."""
    found, left_out = gpus(status_input)
    ready, text = status_input.ready
    started = status_input.started
    return StatusDocument(
        node=line(status_input.node),
        podgpu=status_input.version,
        time=date(status_input.now.wall_ns),
        started=None if started is None else date(round(started * 1e9)),
        ready=ready,
        waiting_for=None if ready else line(text),
        driver=_driver(status_input),
        gpus=found,
        devices_left_out=left_out,
        sources=sources(status_input),
        sinks=sinks(status_input),
        usage=used(status_input),
    )


def _driver(status_input: StatusInput) -> str | None:
    if status_input.snapshot is None:
        return None
    devices = (one.device for one in status_input.snapshot.layout.attributions.values())
    return next((line(device.driver) for device in devices if device.driver), None)
