"""Run `podgpu topology` and `podgpu topology best`: get the topology, and print it."""

import argparse
import asyncio
import os
import sys
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec
import orjson

from pipeline.base.errors import ComponentError, PermanentError, TransientError
from pipeline.base.safe_text import line
from pipeline.component.contracts import HttpRequest
from pipeline.model import Snapshot
from pipeline.status_page.topology_endpoint import BEST, PATH, TopologyPages
from pipeline.topology.preferred_allocation import RequestError, count_of
from podgpu.cli import daemon_client
from podgpu.cli.arguments import TOO_FEW
from podgpu.cli.client_options import LOCAL, access_of
from podgpu.cli.config_location import located
from podgpu.cli.output import lines
from podgpu.cli.topology import local_topology

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
    try:
        response = _answer(arguments, PATH, {"format": form})
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
        response = _answer(arguments, BEST, {"n": str(n), **query})
        choice = orjson.loads(response)
        msgspec.convert(choice, _Choice)
    except (RequestError, ComponentError) as error:
        return _report_error(error)
    except (ValueError, msgspec.ValidationError):
        place = daemon_client.place(arguments.url or LOCAL)
        return _report_error(ComponentError(f"{place}: the response is not from podgpu"))
    if arguments.json:
        # The response is printed unchanged: orjson may be unable to encode its other values.
        print(lines(response.rstrip("\n")))
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


def _answer(arguments: argparse.Namespace, path: str, query: Mapping[str, str]) -> str:
    """Return the response of a daemon, or what a daemon would respond with a local topology."""
    if not arguments.local and arguments.recording is None:
        access = access_of(arguments, os.environ)
        try:
            url = LOCAL if arguments.url is None else arguments.url
            return daemon_client.get(url, path, query, access)
        except daemon_client.NotListeningError as error:
            if arguments.url is not None:
                raise ComponentError(str(error)) from error
            print(f"podgpu: {error}; reading NVML", file=sys.stderr)
    snapshot = _first_snapshot(arguments)
    pages = TopologyPages(lambda: snapshot)
    handler = pages.show if path == PATH else pages.choose
    response = asyncio.run(handler(HttpRequest("GET", path, query, {})))
    text = response.body.decode()
    if response.status == HTTPStatus.OK:
        return text
    refused = PermanentError if response.status == HTTPStatus.BAD_REQUEST else TransientError
    raise refused(text.strip())


def _first_snapshot(arguments: argparse.Namespace) -> Snapshot:
    if arguments.recording is not None:
        return local_topology.from_recording(arguments.recording)
    config, _ = located(arguments.config)
    return local_topology.from_machine(local_topology.reading_of(config))
