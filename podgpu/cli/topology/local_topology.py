"""Get the topology without a daemon: from this machine's driver, or from a recording."""

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from config.schema import Config, Counters, Http
from pipeline.base.errors import PermanentError, TransientError
from pipeline.base.logs import ROOT
from pipeline.join import Join
from pipeline.model import Envelope, Snapshot, SourceLost, TopologyRead
from podgpu.cli.config_location import built_in

if TYPE_CHECKING:
    from pipeline.runtime.runtime import Runtime

SECONDS: Final = 30.0
"""Time limit for the driver. Without its persistence daemon it has to initialize every GPU."""

HOLDERS_SECONDS: Final = 3.0
"""Time limit for the other sources after the driver has reported."""

READING: Final = frozenset({"nvml", "podresources", "checkpoint", "podlist"})
"""Kinds of sources that can run in addition to a daemon's: they only read, and do not register."""


def from_recording(path: Path) -> Snapshot:
    """Return the snapshot at the end of a recording.

    Raises:
        PermanentError: the recording does not exist or cannot be read.
        TransientError: it contains no topology.
    """
    from pipeline.recording import RecordingError, RecordingReader

    join, last = Join(), None
    try:
        with RecordingReader(path) as reader:
            for envelope in reader:
                join.apply(envelope)
                last = envelope.at
    except RecordingError as error:
        raise PermanentError(str(error)) from error
    except OSError as error:
        raise PermanentError(f"{path}: {error.strerror}") from error
    snapshot = join.snapshot(last) if last is not None else None
    if snapshot is None or snapshot.topology is None:
        raise TransientError(f"{path} contains no topology: make a new recording")
    return snapshot


def reading_of(config: Config) -> Config:
    """Return the part of a configuration that only reads this machine."""
    sources = {
        name: component for name, component in config.sources.items() if component.kind in READING
    }
    if not any(component.kind == "nvml" for component in sources.values()):
        sources |= built_in("default.yaml", {}).sources
    return msgspec.structs.replace(
        config, sources=sources, sinks={}, http=Http(), counters=Counters()
    )


async def _first_snapshot(config: Config, runtime_class: "type[Runtime]") -> Snapshot:
    """Run the sources until all of them have reported, or time is over.

    Raises:
        TransientError: the driver does not report the topology now; the message says why.
    """
    join, done = Join(), asyncio.Event()
    loop = asyncio.get_running_loop()
    last: Envelope | None = None
    lost, topology_read = "", False

    def observe(envelope: Envelope) -> None:
        nonlocal last, lost, topology_read
        join.apply(envelope)
        last = envelope
        if isinstance(envelope.event, SourceLost) and envelope.kind == "nvml":
            lost = envelope.event.reason
            done.set()
        elif isinstance(envelope.event, TopologyRead) and not topology_read:
            topology_read = True
            loop.call_later(HOLDERS_SECONDS, done.set)
        states = join.sources()
        if topology_read and all(
            name in states and states[name].has_reported for name in config.sources
        ):
            done.set()

    # Timers that are left end with the event loop.
    loop.call_later(SECONDS, done.set)
    await runtime_class(config, taps=(observe,)).run(done)
    if last is not None and not lost:
        snapshot = join.snapshot(last.at)
        if snapshot.topology is not None:
            return snapshot
    raise TransientError(lost or f"the driver has not responded for {SECONDS:g} s")


def from_machine(config: Config) -> Snapshot:
    """Return a snapshot from this machine's driver, with the holders that other sources report.

    Args:
        config: result of `reading_of`.

    Raises:
        TransientError: the driver does not report the topology now; the message says why.
        PermanentError: the configuration cannot be used.
    """
    # Imported here, because other commands do not need it, and before the event loop runs.
    from pipeline.runtime.daemon import texts
    from pipeline.runtime.runtime import Runtime

    log = logging.getLogger(ROOT)
    before = log.level
    # The log would announce retries, which this command does not make. The error has the cause.
    log.setLevel(logging.CRITICAL)
    try:
        return asyncio.run(_first_snapshot(config, Runtime))
    except* PermanentError as group:
        raise PermanentError("; ".join(texts(group))) from None
    finally:
        log.setLevel(before)
