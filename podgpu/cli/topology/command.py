"""The command: where it is asked, and what is printed."""

import argparse
import os
import sys
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import orjson

from pipeline.base.errors import ComponentError, PermanentError, TransientError
from pipeline.base.safe_text import line
from pipeline.component.holder_sources import availability_unknown_reason, topology_down_reason
from pipeline.model import Snapshot
from pipeline.model.topology_tree import Topology
from pipeline.status_page.topology_endpoint import BEST, FREE_UNKNOWN, PATH, overview
from pipeline.topology.document import document
from pipeline.topology.preferred_allocation import RequestError, choose_gpus, count_of
from pipeline.topology.text_views import dot
from podgpu.cli import daemon_client
from podgpu.cli.client_options import LOCAL, access_of
from podgpu.cli.config_location import located
from podgpu.cli.output import lines
from podgpu.cli.topology import TOO_FEW, local_topology

_FAILED: Final = 1
_WRONG: Final = 2


class _Gpu(msgspec.Struct):
    index: int | None
    uuid: str


class _Answer(msgspec.Struct):
    """What is printed of a daemon's answer."""

    gpus: list[_Gpu]
    why: str


def topology(arguments: argparse.Namespace) -> int:
    """`podgpu topology`: matrix and tree, or another form."""
    form = "json" if arguments.json else "dot" if arguments.dot else "text"

    def shown(snapshot: Snapshot) -> str:
        known = _known_topology(snapshot)
        available, down = snapshot.availability, topology_down_reason(snapshot)
        if form == "dot":
            return dot(known, available)
        if form == "text":
            return overview(known, available, availability_unknown_reason(snapshot))
        return orjson.dumps(document(known, available, down=down)).decode()

    try:
        told = _asked(arguments, PATH, {"format": form})
        if told is None:
            told = shown(_first_snapshot(arguments))
    except ComponentError as error:
        return _failed(error)
    print(lines(told.rstrip("\n")))
    return 0


def choose(arguments: argparse.Namespace) -> int:
    """`podgpu topology best`: the indexes of the GPUs to take, and why."""
    query = {"must": arguments.must} if arguments.must else {}
    if arguments.candidates is not None:
        query["candidates"] = arguments.candidates
    try:
        n = count_of(arguments.count)
        told = _asked(arguments, BEST, {"n": str(n), **query})
        if told is None:
            snapshot = _first_snapshot(arguments)
            unsure = "" if "candidates" in query else availability_unknown_reason(snapshot)
            if unsure:
                raise TransientError(f"{FREE_UNKNOWN}: {unsure}")
            answer = choose_gpus(_known_topology(snapshot), snapshot.availability, n, **query)
        else:
            answer = orjson.loads(told)
            msgspec.convert(answer, _Answer)
    except (RequestError, ComponentError) as error:
        return _failed(error)
    except (ValueError, msgspec.ValidationError):
        place = daemon_client.place(arguments.url or LOCAL)
        return _failed(ComponentError(f"{place}: this is no answer of podgpu's"))
    if arguments.json:
        # A daemon's as it is: what else is in it need not be anything that can be written.
        print(lines(orjson.dumps(answer).decode() if told is None else told.rstrip("\n")))
    else:
        _print(answer)
    return 0 if answer["gpus"] else TOO_FEW


def _failed(error: RequestError | ComponentError) -> int:
    print(f"podgpu: {lines(str(error))}", file=sys.stderr)
    return _WRONG if isinstance(error, RequestError | PermanentError) else _FAILED


def _print(answer: Mapping[str, Any]) -> None:
    for gpu in answer["gpus"]:
        index = "-" if gpu["index"] is None else gpu["index"]
        print(f"{index}\t{line(gpu['uuid'])}")
    print(lines(answer["why"]), file=sys.stderr)


def _asked(arguments: argparse.Namespace, path: str, query: Mapping[str, str]) -> str | None:
    """Ask a daemon; None if there is none that was named, or it isn't to be asked."""
    if arguments.local or arguments.recording is not None:
        return None
    access = access_of(arguments, os.environ)
    try:
        return daemon_client.get(
            LOCAL if arguments.url is None else arguments.url, path, query, access
        )
    except daemon_client.NotListeningError as error:
        if arguments.url is not None:
            raise ComponentError(str(error)) from error
        print(f"podgpu: {error}; reading NVML", file=sys.stderr)
        return None


def _first_snapshot(arguments: argparse.Namespace) -> Snapshot:
    if arguments.recording is not None:
        return local_topology.from_recording(arguments.recording)
    config, _ = located(arguments.config)
    return local_topology.from_machine(local_topology.reading_of(config))


def _known_topology(snapshot: Snapshot) -> Topology:
    topology = snapshot.topology
    assert topology is not None  # noqa: S101 -- `local_topology` returns none without
    return topology
