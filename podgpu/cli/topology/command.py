"""Run `podgpu topology` and `podgpu topology best`: get the topology, and print it.

A daemon is queried. This machine's driver is read if no daemon listens here or with `--local`; a
recording is read with `--recording`.
"""

import argparse
import asyncio
import logging
import os
from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import msgspec
import orjson

from config.schema import Config, Counters, Http
from pipeline.base.errors import ComponentError, PermanentError, TransientError
from pipeline.base.logs import ROOT
from pipeline.base.safe_text import line
from pipeline.component.contracts import HttpRequest
from pipeline.join import Join
from pipeline.model import Envelope, Snapshot, SourceLost, TopologyRead
from pipeline.status_page.data_notes import RECORDING
from pipeline.status_page.topology_endpoint import BEST, PATH, TopologyPages
from pipeline.topology.preferred_allocation import RequestError, count_of
from podgpu.cli import daemon_client
from podgpu.cli.arguments import TOO_FEW
from podgpu.cli.client_options import LOCAL, access_of
from podgpu.cli.config_commands import built_in, located
from podgpu.cli.terminal_text import complain, lines, put
from sources.replay.options import recording_path

if TYPE_CHECKING:
    from pipeline.runtime.runtime import Runtime

SECONDS: Final = 30.0
"""Time limit in seconds. Without its persistence daemon, the driver initializes every GPU first."""

HOLDERS_SECONDS: Final = 3.0
"""Time limit in seconds for the other sources, after the driver has reported the topology."""

READING: Final = frozenset({"nvml", "podresources", "checkpoint", "podlist"})
"""Kinds of sources that may run while a daemon runs too: they only read, and do not register."""

_UNWRITTEN: Final = 1
"""Exit status if the output could not be written. That of other commands is `TOO_FEW` here."""


class _Gpu(msgspec.Struct):
    index: int | None
    uuid: str


class _Choice(msgspec.Struct):
    """The part of a response that is printed."""

    gpus: list[_Gpu]
    why: str
    notes: list[str] = []


def topology(arguments: argparse.Namespace) -> int:
    """`podgpu topology`: print a matrix and a tree, JSON, or a graph."""
    form = "json" if arguments.json else "dot" if arguments.dot else "text"
    response = _answer(arguments, PATH, {"format": form})
    return _printed(lines(response.rstrip("\n")))


def choose(arguments: argparse.Namespace) -> int:
    """`podgpu topology best`: print index and UUID of each GPU to use, and the reason to stderr."""
    query = {"must": arguments.must} if arguments.must else {}
    if arguments.candidates is not None:
        query["candidates"] = arguments.candidates
    try:
        n = count_of(arguments.count)
    except RequestError as error:
        raise PermanentError(str(error)) from error
    response = _answer(arguments, BEST, {"n": str(n), **query})
    try:
        choice = orjson.loads(response)
        msgspec.convert(choice, _Choice)
    except (ValueError, msgspec.ValidationError) as error:
        place = daemon_client.place(arguments.url or LOCAL)
        raise ComponentError(f"{place}: the response is not from podgpu") from error
    if arguments.json:
        # The response is printed unchanged: orjson may be unable to encode its other values.
        status = _printed(lines(response.rstrip("\n")))
    else:
        rows = (
            f"{'-' if gpu['index'] is None else gpu['index']}\t{line(gpu['uuid'])}"
            for gpu in choice["gpus"]
        )
        status = _printed("\n".join(rows)) if choice["gpus"] else 0
        complain(lines("\n".join([choice["why"], *choice.get("notes", ())])))
    return status if choice["gpus"] else TOO_FEW


def _printed(text: str) -> int:
    return 0 if put(text, "podgpu topology: the result") else _UNWRITTEN


def _answer(arguments: argparse.Namespace, path: str, query: Mapping[str, str]) -> str:
    """Return a daemon's response, or the same for the topology of this machine or a recording."""
    if not arguments.local and arguments.recording is None:
        access = access_of(arguments, os.environ)
        try:
            url = LOCAL if arguments.url is None else arguments.url
            return daemon_client.get(url, path, query, access)
        except daemon_client.NotListeningError as error:
            if arguments.url is not None:
                raise ComponentError(str(error)) from error
            complain(lines(f"podgpu: {error}; reading NVML"))
    notes: tuple[str, ...] = ()
    if arguments.recording is not None:
        snapshot = _from_recording(str(arguments.recording))
        notes = (RECORDING,)
    else:
        snapshot = _from_machine(reading_of(located(arguments.config)[0]))
    pages = TopologyPages(lambda: snapshot, notes)
    handler = pages.show if path == PATH else pages.choose
    response = asyncio.run(handler(HttpRequest("GET", path, query, {})))
    text = response.body.decode()
    if response.status == HTTPStatus.OK:
        return text
    refused = PermanentError if response.status == HTTPStatus.BAD_REQUEST else TransientError
    raise refused(text.strip())


def _from_recording(name: str) -> Snapshot:
    """Return the snapshot at the end of a recording.

    Args:
        name: the file, or `builtin:demo`.

    Raises:
        PermanentError: the recording does not exist or cannot be read.
        TransientError: the recording contains no topology.
    """
    from pipeline.recording import RecordingError, RecordingReader

    join, last = Join(), None
    try:
        with RecordingReader(recording_path(name)) as reader:
            for envelope in reader:
                join.apply(envelope)
                last = envelope.at
    except RecordingError as error:
        raise PermanentError(str(error)) from error
    except OSError as error:
        raise PermanentError(f"{name}: {error.strerror}") from error
    snapshot = join.snapshot(last) if last is not None else None
    if snapshot is None or snapshot.topology is None:
        fix = "make a new recording, while a source of kind nvml works"
        raise TransientError(f"{name} contains no topology: {fix}")
    return snapshot


def reading_of(config: Config) -> Config:
    """Return a configuration with only the sources that read this machine, without sinks.

    If it has no source of kind `nvml`, the built-in one is added.
    """
    sources = {
        name: component for name, component in config.sources.items() if component.kind in READING
    }
    if not any(component.kind == "nvml" for component in sources.values()):
        sources |= built_in("default.yaml", {}).sources
    return msgspec.structs.replace(
        config, sources=sources, sinks={}, http=Http(), counters=Counters()
    )


async def _watched(config: Config, runtime_class: "type[Runtime]") -> Snapshot:
    """Run the sources until all have reported, the driver is lost, or the time limit is over.

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


def _from_machine(config: Config) -> Snapshot:
    """Return a snapshot from this machine's driver, with the holders that other sources report.

    Args:
        config: the result of `reading_of`.

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
        return asyncio.run(_watched(config, Runtime))
    except* PermanentError as group:
        raise PermanentError("; ".join(texts(group))) from None
    finally:
        log.setLevel(before)
