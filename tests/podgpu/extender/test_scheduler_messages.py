"""The requests of the scheduler, and the format of the responses.

`PODGPU_WRITE_GOLDEN=1` writes the golden files; check the difference before you commit it.
"""

import json
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podgpu.extender.node_selection.node_filter import PASSED, FilterResult
from podgpu.extender.scheduler_messages import (
    CONTAINERS,
    NODES,
    POD_BYTES,
    MalformedError,
    filtered,
    parse_question,
    prioritized,
    refused,
)
from tests.podgpu.extender.cluster import node, pod, question

GOLDEN = Path(__file__).parents[2] / "golden" / "extender"
NAMES = ["node-a", "node-b", "node-c"]
VERDICTS = [
    PASSED,
    FilterResult("podgpu: full"),
    FilterResult("podgpu: too small", is_unresolvable=True),
]
RESULT: dict[str, Any] = {
    "Nodes": None,
    "NodeNames": None,
    "FailedNodes": {},
    "FailedAndUnresolvableNodes": {},
    "Error": "",
}


def whole_nodes() -> list[dict[str, Any]]:
    return [{**node(name, gpus="8"), "spec": {"podCIDR": "10.0.0.0/24"}} for name in NAMES]


@pytest.mark.parametrize("form", ["names", "nodes"])
def test_request_and_responses_match_the_golden_files(form: str) -> None:
    made = pod(gpus="4", require="nvlink")
    body = question(made, names=NAMES) if form == "names" else question(made, nodes=whole_nodes())
    one = parse_question(body)
    shown = {
        "question": json.loads(body),
        "filter": json.loads(filtered(one, VERDICTS)),
        "prioritize": json.loads(prioritized(one, [10, 0, 3])),
    }
    text = json.dumps(shown, indent=2) + "\n"
    file = GOLDEN / f"{form}.json"
    if os.environ.get("PODGPU_WRITE_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text()


def test_a_node_is_returned_exactly_as_it_was_sent() -> None:
    """Byte by byte: unknown fields, and numbers that no float can represent."""
    sent = '{"metadata":{"name":"a","x":12345678901234567890123},"later":[1.10, "\\u00e9"]}'
    body = f'{{"Pod":{{}},"Nodes":{{"kind":"NodeList","items":[{sent}]}},"NodeNames":null}}'
    answer = filtered(parse_question(body.encode()), [PASSED]).decode()
    assert sent in answer
    assert json.loads(answer)["Nodes"]["kind"] == "NodeList"


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (question({}, names=[]), []),
        (question({}, nodes=[]), []),
        (b'{"Pod":{},"Nodes":{"metadata":{},"items":null},"NodeNames":null}', []),
        (b'{"Pod":{},"NodeNames":["a","a"]}', ["a", "a"]),
        # Before Kubernetes 1.17 the keys were in lower case.
        (b'{"pod":{},"nodenames":["a"]}', ["a"]),
        (b'{"pod":{},"nodes":{"items":[{"metadata":{"name":"a"}}]}}', ["a"]),
        (b'\n { "Pod" : { } , "NodeNames" : [ "a" ] , "More" : 1 } \n', ["a"]),
    ],
)
def test_all_forms_of_a_request_are_parsed(body: bytes, names: list[str]) -> None:
    one = parse_question(body)
    assert one.names == names
    answer = json.loads(filtered(one, [PASSED] * len(names)))
    if one.nodes is None:
        assert (answer["Nodes"], answer["NodeNames"]) == (None, names)
    else:
        assert answer["NodeNames"] is None
        assert [item["metadata"]["name"] for item in answer["Nodes"]["items"]] == names


DEEP = b"[" * 100_000

MALFORMED = {
    b"": "body can't be read",
    b"null": "body can't be read",
    b"[]": "body can't be read",
    b"{": "body can't be read",
    b"\xff": "body can't be read",
    DEEP: "body can't be read",
    b'{"Pod":{}}{"Pod":{}}': "body can't be read",
    b"{}": "no Pod",
    b'{"Pod":null,"NodeNames":[]}': "no Pod",
    b'{"Pod":[],"NodeNames":[]}': "Pod can't be read",
    b'{"Pod":{"spec":{"containers":{}}},"NodeNames":[]}': "Pod can't be read",
    b'{"Pod":{"spec":{"containers":[{"resources":{"limits":{"g":[]}}}]}},"NodeNames":[]}':
        "Pod can't be read",
    b'{"Pod":{"metadata":{"annotations":{"podgpu.io/require":1}}},"NodeNames":[]}':
        "Pod can't be read",
    b'{"Pod":{"metadata":' + DEEP + b'},"NodeNames":[]}': "body can't be read",
    b'{"Pod":{}}': "the request has neither NodeNames nor Nodes",
    b'{"Pod":{},"Nodes":null,"NodeNames":null}': "the request has neither NodeNames nor Nodes",
    b'{"Pod":{},"NodeNames":{}}': "NodeNames can't be read",
    b'{"Pod":{},"NodeNames":[1]}': "NodeNames can't be read",
    b'{"Pod":{},"NodeNames":["\xff"]}': "NodeNames can't be read",
    b'{"Pod":{},"Nodes":[]}': "Nodes can't be read",
    b'{"Pod":{},"Nodes":{"items":{}}}': "Nodes can't be read",
    b'{"Pod":{},"Nodes":{"items":[{}]}}': "Nodes can't be read",
    b'{"Pod":{},"Nodes":{"items":[null]}}': "Nodes can't be read",
    b'{"Pod":{},"Nodes":{"items":[{"metadata":{"name":7}}]}}': "Nodes can't be read",
}  # fmt: skip


@pytest.mark.parametrize("body", MALFORMED, ids=lambda body: repr(body[:60]))
def test_a_malformed_request_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedError) as caught:
        parse_question(body)
    assert caught.value.dedup_key == MALFORMED[body]
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


def request_with_names(count: int, name: bytes = b"a") -> bytes:
    return b'{"Pod":{},"NodeNames":[' + b",".join([b'"%b"' % name] * count) + b"]}"


def request_with_nodes(count: int) -> bytes:
    items = b",".join([b'{"metadata":{"name":"a"}}'] * count)
    return b'{"Pod":{},"Nodes":{"items":[' + items + b"]}}"


def request_with_pod(pod: bytes) -> bytes:
    return b'{"Pod":' + pod + b',"NodeNames":["a"]}'


def request_with_containers(count: int, key: bytes = b"containers") -> bytes:
    return request_with_pod(b'{"spec":{"%b":[' % key + b",".join([b"{}"] * count) + b"]}}")


@pytest.mark.parametrize(
    "body",
    [
        request_with_names(NODES),
        request_with_nodes(NODES),
        request_with_names(2, b"x" * 253),
        request_with_containers(CONTAINERS),
        request_with_pod(b'{"x":"' + b" " * (POD_BYTES - 8) + b'"}'),
    ],
)
def test_requests_at_the_limits_are_accepted(body: bytes) -> None:
    assert parse_question(body).names


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (request_with_names(NODES + 1), "too many nodes"),
        (request_with_names(6_000_000), "too many nodes"),
        (request_with_nodes(NODES + 1), "too many nodes"),
        (request_with_nodes(1_000_000), "too many nodes"),
        (request_with_names(1, b"x" * 254), "invalid node names"),
        (request_with_containers(CONTAINERS + 1), "too many containers"),
        (request_with_containers(CONTAINERS + 1, b"initContainers"), "too many containers"),
        (request_with_containers(600_000), "too many members of the Pod"),
        (
            request_with_pod(b'{"x":{' + b",".join(b'"%x":0' % n for n in range(150_000)) + b"}}"),
            "too many members of the Pod",
        ),
        (request_with_pod(b'{"x":"' + b" " * POD_BYTES + b'"}'), "the Pod is too long"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_request_above_a_limit_is_refused_before_it_is_decoded(body: bytes, kind: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(MalformedError) as caught:
            parse_question(body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert caught.value.dedup_key == kind
    assert peak < 12 << 20


@pytest.mark.slow
def test_unused_members_of_a_request_cost_no_memory() -> None:
    """Members of the request, annotations of its pod and members of a list of nodes."""
    many = b",".join(b'"%x":""' % n for n in range(1_000_000))
    bodies = [
        b'{"Pod":{},"NodeNames":["a"],' + many + b"}",
        b'{"Pod":{},"Nodes":{"items":[{"metadata":{"name":"a"}}],' + many + b"}}",
    ]
    some = many[:900_000].rpartition(b",")[0]
    bodies.append(request_with_pod(b'{"metadata":{"annotations":{' + some + b"}}}"))
    for body in bodies:
        tracemalloc.start()
        assert parse_question(body).names == ["a"]
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 1 << 20


def test_a_refusal_has_the_reason_in_error() -> None:
    assert json.loads(refused("podgpu: no Pod")) == RESULT | {"Error": "podgpu: no Pod"}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["Pod", "Nodes", "NodeNames", "items", "metadata", "name", "spec"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=40))
def test_any_body_is_parsed_or_refused(body: bytes) -> None:
    try:
        one = parse_question(body)
    except MalformedError:
        return
    json.loads(filtered(one, [PASSED] * len(one.names)))
    assert len(json.loads(prioritized(one, [1] * len(one.names)))) == len(one.names)
