"""Run `podgpu topology` and `podgpu topology best`: get the topology, and print it."""

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
from podgpu.cli.topology import local_topology
from podgpu.cli.topology.arguments import TOO_FEW

_EXIT_FAILED: Final = 1
_EXIT_INVALID: Final = 2


class _Gpu(msgspec.Struct):
    index: int | None
    uuid: str


class _Choice(msgspec.Struct):
    """The part of a daemon's response that is printed."""

    gpus: list[_Gpu]
    why: str


def topology(arguments: argparse.Namespace) -> int:
    """`podgpu topology`: print a matrix and a tree, or another format."""
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
        response = _query_daemon(arguments, PATH, {"format": form})
        if response is None:
            response = shown(_first_snapshot(arguments))
    except ComponentError as error:
        return _report_error(error)
    print(lines(response.rstrip("\n")))
    return 0


def choose(arguments: argparse.Namespace) -> int:
    """`podgpu topology best`: print the indexes of the GPUs to use, and the reason."""
    query = {"must": arguments.must} if arguments.must else {}
    if arguments.candidates is not None:
        query["candidates"] = arguments.candidates
    try:
        n = count_of(arguments.count)
        response = _query_daemon(arguments, BEST, {"n": str(n), **query})
        if response is None:
            snapshot = _first_snapshot(arguments)
            reason = "" if "candidates" in query else availability_unknown_reason(snapshot)
            if reason:
                raise TransientError(f"{FREE_UNKNOWN}: {reason}")
            choice = choose_gpus(_known_topology(snapshot), snapshot.availability, n, **query)
        else:
            choice = orjson.loads(response)
            msgspec.convert(choice, _Choice)
    except (RequestError, ComponentError) as error:
        return _report_error(error)
    except (ValueError, msgspec.ValidationError):
        place = daemon_client.place(arguments.url or LOCAL)
        return _report_error(ComponentError(f"{place}: the response is not from podgpu"))
    if arguments.json:
        # A daemon's response is printed unchanged: orjson may be unable to encode its other values.
        print(lines(orjson.dumps(choice).decode() if response is None else response.rstrip("\n")))
    else:
        _print(choice)
    return 0 if choice["gpus"] else TOO_FEW


def _report_error(error: RequestError | ComponentError) -> int:
    print(f"podgpu: {lines(str(error))}", file=sys.stderr)
    return _EXIT_INVALID if isinstance(error, RequestError | PermanentError) else _EXIT_FAILED


def _print(choice: Mapping[str, Any]) -> None:
    for gpu in choice["gpus"]:
        index = "-" if gpu["index"] is None else gpu["index"]
        print(f"{index}\t{line(gpu['uuid'])}")
    print(lines(choice["why"]), file=sys.stderr)


def _query_daemon(arguments: argparse.Namespace, path: str, query: Mapping[str, str]) -> str | None:
    """Query a daemon. Return None if it is not to be queried, or none listens at the default."""
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
    assert topology is not None  # noqa: S101 -- ensured by `local_topology`
    return topology
