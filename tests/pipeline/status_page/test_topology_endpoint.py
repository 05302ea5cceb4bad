"""`/topology` and `/topology/best` on a real listener."""

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from config.schema import Http
from config.value_types import ListenAddress
from pipeline.http.access import open_access
from pipeline.http.listener_registry import ListenerRegistry
from pipeline.model import DevicesDiscovered, Snapshot, SourceAdded, SourceLost, SourceRemoved
from pipeline.runtime.http_service import HttpService
from pipeline.status_page.topology_endpoint import WAITING, TopologyPages
from pipeline.topology.document import VERSION
from pipeline.topology.preferred_allocation import choose_gpus
from tests.support.http import LOCAL, Client, Clients
from tests.support.nodes import Node, claim, claims, gpu, uuid_of
from tests.support.topology import busy_node, topology_read
from tests.support.web import basic, hashed


class Latest:
    """The latest snapshot, which a test can replace."""

    def __init__(self, snapshot: Snapshot | None) -> None:
        self.snapshot = snapshot

    def __call__(self) -> Snapshot | None:
        return self.snapshot


def listeners_of(pages: TopologyPages) -> ListenerRegistry:
    ok = (True, "ok")
    return ListenerRegistry(
        node="n", version="0", health=lambda: ok, ready=lambda: ok, pages=pages.pages
    )


@asynccontextmanager
async def served(latest: Latest) -> AsyncIterator[Client]:
    pages = TopologyPages(latest)
    async with listeners_of(pages).listen(LOCAL) as mounts, Clients() as clients:
        yield await clients.connect(mounts.port)
    pages.close()


async def response_to(path: str, snapshot: Snapshot | None) -> tuple[int, str]:
    async with served(Latest(snapshot)) as client:
        return await client.get(path)


async def document_at(path: str, snapshot: Snapshot | None = None) -> Any:
    status, body = await response_to(path, snapshot or busy_node().snapshot())
    assert status == 200, body
    return json.loads(body)


def chosen(answer: Any) -> list[int]:
    return [gpu["index"] for gpu in answer["gpus"]]


async def test_the_topology_is_a_json_document() -> None:
    node = busy_node()
    node.say(topology_read(*(gpu(at) for at in range(8)), nvlinks=0, memory=80 << 30))
    topology = await document_at("/topology", node.snapshot())
    assert topology["version"] == VERSION
    assert [card["uuid"] for card in topology["gpus"]] == [uuid_of(at) for at in range(8)]
    assert [card["state"] for card in topology["gpus"]] == ["held", "part", *["free"] * 6]
    assert {card["memory"] for card in topology["gpus"]} == {80 << 30}
    assert topology["free"] == "fc"
    assert topology["levels"]["NODE"] == ["f", "f0"]


async def test_the_text_has_a_matrix_and_a_tree_with_holders() -> None:
    status, body = await response_to("/topology?format=text", busy_node().snapshot())
    assert status == 200
    assert "GPU0" in body
    assert "NODE" in body
    assert "ml/train-0" in body


async def test_the_topology_for_graphviz() -> None:
    status, body = await response_to("/topology?format=dot", busy_node().snapshot())
    assert (status, body.split("{", maxsplit=1)[0]) == (200, "graph topology ")


@pytest.mark.parametrize("simulated", [(), (4, 5, 6, 7)])
async def test_a_topology_that_was_not_measured_here_is_called_so(
    simulated: tuple[int, ...],
) -> None:
    node, recorded = Node(), {"via": "recording"}
    cards = [replace(gpu(at), model="A (simulated)" if at in simulated else "A") for at in range(8)]
    node.say(SourceAdded(1), "recording", "replay")
    node.say(DevicesDiscovered(tuple(cards)), "gpus", **recorded)
    node.say(topology_read(*cards), "gpus", **recorded)
    node.say(claims(claim("a", uuid_of(0))), "podlist", "podlist", **recorded)
    expected = ['This is a recording, not this machine (the source "recording").']
    expected += ["Simulated: GPU 4-7."] if simulated else []
    snapshot = node.snapshot()
    assert (await document_at("/topology", snapshot))["notes"] == expected
    assert (await document_at("/topology/best?n=1", snapshot))["notes"] == expected
    _, text = await response_to("/topology?format=text", snapshot)
    assert text.startswith("\n".join(expected) + "\n\n      GPU0")
    _, graph = await response_to("/topology?format=dot", snapshot)
    label = "\\n".join(expected).replace('"', '\\"')
    assert f'label="{label}";' in graph


@pytest.mark.parametrize("path", ["/topology", "/topology/best?n=1"])
async def test_a_topology_of_this_node_has_no_notes(path: str) -> None:
    assert "notes" not in await document_at(path)


async def test_the_document_is_built_again_after_a_change() -> None:
    node = busy_node()
    latest = Latest(node.snapshot())
    async with served(latest) as client:
        _, before = await client.get("/topology")
        _, again = await client.get("/topology")
        node.podlist()
        latest.snapshot = node.snapshot()
        _, after = await client.get("/topology")
    assert before == again
    assert json.loads(after)["free"] == "ff"


BEST = [
    ("n=1", [2], "a GPU of an incomplete group is used first"),
    ("n=2", [2, 3], "the rest of the incomplete group"),
    ("n=4", [4, 5, 6, 7], "the whole group"),
    ("n=2&candidates=0,1,4", [0, 1], "candidates need not be free"),
    ("n=2&must=5", [4, 5], ""),
    ("n=2&must=0", [0, 2], "required GPUs need not be free"),
    (f"n=2&must={uuid_of(6)}&candidates=3,%207", [6, 7], "UUIDs and blanks"),
    (f"n=1&must={uuid_of(6).upper()}", [6], "upper and lower case"),
]


@pytest.mark.parametrize(("query", "expected", "_why"), BEST, ids=[query for query, *_ in BEST])
async def test_the_best_gpus_are_chosen(query: str, expected: list[int], _why: str) -> None:
    answer = await document_at(f"/topology/best?{query}")
    assert chosen(answer) == expected
    assert [card["uuid"] for card in answer["gpus"]] == [uuid_of(at) for at in expected]
    assert int(answer["mask"], 16) == sum(1 << at for at in expected)
    assert answer["among"] == ("candidates" if "candidates" in query else "free")
    assert answer["exact"]
    assert answer["why"]


async def test_without_a_source_of_holders_all_gpus_are_candidates() -> None:
    node = Node()
    devices = [gpu(at) for at in range(4)]
    node.has(*devices)
    node.say(topology_read(*devices, each=2))
    answer = await document_at("/topology/best?n=2", node.snapshot())
    assert (answer["among"], chosen(answer)) == ("all", [0, 1])
    assert answer["why"].startswith("no source reports the holders, so held GPUs may be among")


def unknown_availability(*, down: bool = False) -> Snapshot:
    """Return a snapshot whose source of holders is down, or whose driver is gone."""
    node = busy_node()
    if down:
        node.say(SourceLost("no driver"))
    else:
        node.say(SourceRemoved(), "podlist", "podlist")
        node.say(SourceAdded(1), "kubelet", "podresources")
        node.say(SourceLost("no socket"), "kubelet", "podresources")
    return node.snapshot()


@pytest.mark.parametrize(("down", "reason"), [(False, "kubelet: no socket"), (True, "no driver")])
async def test_no_gpus_are_chosen_while_it_is_unknown_which_are_free(
    down: bool, reason: str
) -> None:
    snapshot = unknown_availability(down=down)
    status, body = await response_to("/topology/best?n=1", snapshot)
    assert (status, body.count("\n")) == (503, 1)
    assert body.startswith("it is unknown which GPUs are free: ")
    assert reason in body
    # A client that names candidates decides itself what is free.
    answer = await document_at("/topology/best?n=1&candidates=5,6", snapshot)
    assert chosen(answer) == [5]
    document = await document_at("/topology", snapshot)
    assert "free" not in document
    assert len(document["gpus"]) == 8
    assert ("down" in document) is down
    status, body = await response_to("/topology?format=text", snapshot)
    assert (status, reason in body.splitlines()[0]) == (200, True)


async def test_too_few_free_gpus_are_no_error_and_result_in_no_choice() -> None:
    answer = await document_at("/topology/best?n=7")
    assert answer == {
        "n": 7,
        "among": "free",
        "gpus": [],
        "mask": "0",
        "score": None,
        "why": "GPUs requested: 7; GPUs to choose from: 6; held: GPU 0 by ml/train-0 (main), "
        "GPU 1 in part by ml/serve-a (main)",
        "exact": True,
    }


INVALID = [
    ("/topology/best", "n='': give the number of GPUs to choose, 1 or more"),
    ("/topology/best?n=", "n=''"),
    ("/topology/best?n=0", "n='0'"),
    ("/topology/best?n=-1", "n='-1'"),
    ("/topology/best?n=two", "n='two'"),
    ("/topology/best?n=1e3", "n='1e3'"),
    ("/topology/best?n=%D9%A3", "1 or more"),
    ("/topology/best?n=9", "n=9: this node has only 8 GPUs"),
    ("/topology/best?n=9999999999999999999999", "1 or more"),
    ("/topology/best?n=1&must=0,1", "n=1: must names 2 GPUs"),
    ("/topology/best?n=1&must=8", "there is no GPU '8' here: name some of GPU 0-7"),
    ("/topology/best?n=1&candidates=GPU-nope", "there is no GPU 'GPU-nope' here"),
    (
        "/topology/best?n=1&candidate=0",
        "unknown parameter 'candidate': must be one of n, must, candidates",
    ),
    ("/topology/best?n=1&candidates=", "candidates lists no GPU"),
    ("/topology/best?n=1&candidates=,%20,", "candidates lists no GPU"),
    ("/topology/best?n=1&n=2", "n is given twice"),
    ("/topology/best?n=1&candidates=0&candidates=0", "candidates is given twice"),
    ("/topology?format=json&format=dot", "format is given twice"),
    (f"/topology/best?n=1&must={'0,' * 300}", "more than 256 GPUs"),
    (f"/topology/best?n=1&must={'x' * 500}", "there is no GPU"),
    ("/topology?format=xml", "format='xml': must be one of json, text, dot"),
    ("/topology?n=1", "unknown parameter 'n': must be one of format"),
]


@pytest.mark.parametrize(("path", "message"), INVALID, ids=[path[:40] for path, _ in INVALID])
async def test_an_invalid_request_is_refused_with_its_error(path: str, message: str) -> None:
    status, body = await response_to(path, busy_node().snapshot())
    assert status == 400
    assert message in body
    assert len(body) < 250
    assert body.count("\n") == 1


@pytest.mark.parametrize("path", ["/topology", "/topology?format=text", "/topology/best?n=1"])
async def test_without_a_snapshot_or_a_topology_the_response_is_an_error(path: str) -> None:
    assert (await response_to(path, None))[0] == 503
    node = Node()
    node.has(gpu(0))
    status, body = await response_to(path, node.snapshot())
    assert (status, "add a source of kind nvml" in body) == (404, True)


@pytest.mark.parametrize("path", ["/topology", "/topology?format=text", "/topology/best?n=1"])
@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (SourceAdded(0), "gpus: has not reported yet"),
        (SourceLost("the driver is missing"), "gpus: the driver is missing"),
    ],
)
async def test_before_the_topology_is_read_the_source_that_reads_it_is_named(
    path: str, event: SourceAdded | SourceLost, reason: str
) -> None:
    node = Node()
    node.say(SourceAdded(0))
    node.say(event)
    assert await response_to(path, node.snapshot()) == (
        503,
        f"no source has reported the topology yet; {reason}\n",
    )


async def test_a_slow_choice_delays_no_other_request(monkeypatch: pytest.MonkeyPatch) -> None:
    proceed, threads = threading.Event(), set()

    def slow(*args: Any, **named: Any) -> Any:
        threads.add(threading.current_thread())
        proceed.wait(20)
        return choose_gpus(*args, **named)

    monkeypatch.setattr("pipeline.status_page.topology_endpoint.choose_gpus", slow)
    pages = TopologyPages(Latest(busy_node().snapshot()))
    async with listeners_of(pages).listen(LOCAL) as mounts, Clients() as clients:
        waiting = [await clients.connect(mounts.port) for _ in range(WAITING)]
        asking = [asyncio.create_task(c.get("/topology/best?n=2")) for c in waiting]
        other = await clients.connect(mounts.port)
        async with asyncio.timeout(10):
            while (await other.get("/topology/best?n=2"))[0] != 503:
                await asyncio.sleep(0.01)
            assert (await other.get("/healthz"))[0] == 200
            assert (await other.get("/topology"))[0] == 200
        proceed.set()
        assert {status for status, _ in await asyncio.gather(*asking)} == {200}
    pages.close()
    assert len(threads) == 1, "choices are computed one after another"


async def test_every_listener_serves_the_topology_and_lists_it() -> None:
    pages = TopologyPages(Latest(busy_node().snapshot()))
    ok = (True, "ok")
    serving = HttpService(ListenerRegistry("node-1", lambda: ok, lambda: ok, pages.pages))
    address = ListenAddress.parse("127.0.0.1:0")
    await serving.enter(Http(listen=address))
    try:
        async with serving.listeners.listen(address) as mounts, Clients() as clients:
            client = await clients.connect(mounts.port)
            assert (await client.get("/topology"))[0] == 200
            _, index = await client.get("/")
    finally:
        await serving.leave()
        pages.close()
    assert '<a href="/topology">' in index
    assert "/topology/best?n=1 chooses the best" in index
    assert 'href="/topology/best' not in index, "without n the response is 400"


@pytest.mark.parametrize("path", ["/topology", "/topology/best?n=1"])
async def test_without_the_password_nothing_is_shown(path: str, tmp_path: Path) -> None:
    config = tmp_path / "web.yml"
    config.write_text(f"basic_auth_users:\n  alice: {hashed('secret')}\n")
    pages = TopologyPages(Latest(busy_node().snapshot()))
    listeners = listeners_of(pages)
    listeners.access = await open_access(config, logging.getLogger("podgpu.http"))
    async with listeners.listen(LOCAL) as mounts, Clients() as clients:
        client = await clients.connect(mounts.port)
        status, body = await client.get(path)
        assert (status, "GPU" in body) == (401, False)
        assert (await client.get(path, basic("alice", "secret")))[0] == 200
    listeners.access.close()
    pages.close()
