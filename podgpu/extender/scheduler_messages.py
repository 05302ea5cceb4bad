"""Parses kube-scheduler's requests, and makes the responses.

The format is the JSON of k8s.io/kube-scheduler/extender/v1. Its structs have no JSON names, so the
keys are `Pod`, `Nodes` and `NodeNames`. Older schedulers write the keys in lower case. All
schedulers accept both forms in responses.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from pipeline.base.safe_text import line
from podgpu.extender.node_selection.node_filter import FilterResult
from podgpu.extender.node_selection.pod_demand import Pod

T = TypeVar("T")

_NULL: Final = b"null"
_NOTHING: Final = msgspec.Raw(_NULL)

NODES: Final = 20_000
"""Maximum number of nodes in a request. Kubernetes is tested with clusters of up to 5,000 nodes."""

CONTAINERS: Final = 1_000
"""Maximum number of app containers of a pod, and of its init containers."""

POD_BYTES: Final = 2 << 20
"""Maximum size of a pod in bytes. etcd stores no object above 1.5 MiB."""

_MEMBERS: Final = 100_000
"""Maximum number of `{` and of `:` in a pod: an object or member can need ten times its size in
memory."""

_LONGEST: Final = 253
"""Maximum length of a node's name, which is a DNS subdomain."""

_PIECE: Final = 1 << 16


class MalformedError(Exception):
    """The scheduler's request cannot be parsed.

    Attributes:
        dedup_key: the kind of the error; each kind is logged once.
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {line(text)}")
        self.dedup_key = kind


class _Args(msgspec.Struct):
    """The members of an ExtenderArgs, in both forms of their names; other members are ignored."""

    Pod: msgspec.Raw = _NOTHING
    pod: msgspec.Raw = _NOTHING
    NodeNames: msgspec.Raw = _NOTHING
    nodenames: msgspec.Raw = _NOTHING
    Nodes: msgspec.Raw = _NOTHING
    nodes: msgspec.Raw = _NOTHING


class _NodeList(msgspec.Struct):
    """A NodeList of Kubernetes."""

    kind: msgspec.Raw = _NOTHING
    apiVersion: msgspec.Raw = _NOTHING  # noqa: N815 - Kubernetes' name
    metadata: msgspec.Raw = _NOTHING
    items: msgspec.Raw = _NOTHING


class _Left(threading.local):
    """How many more nodes the current thread may parse."""

    nodes = 0


_left: Final = _Left()


class _Named(msgspec.Struct, gc=False):
    name: str


class _Node(msgspec.Struct, gc=False):
    metadata: _Named

    def __post_init__(self) -> None:
        # Checked while parsing, because objects for a whole body would need many times its size.
        _left.nodes -= 1
        if _left.nodes < 0:
            raise _too_many(NODES, "nodes")


@dataclass(frozen=True, slots=True)
class Question:
    """A request of the scheduler: a pod, and the nodes to select from.

    Attributes:
        pod: the used parts of the pod.
        names: names of the nodes, in the order of the request.
        nodes: the nodes as they were sent, and the other members of their list; None if the request
            has only names.
    """

    pod: Pod
    names: Sequence[str]
    nodes: tuple[Sequence[msgspec.Raw], dict[str, msgspec.Raw]] | None = None


def parse_question(body: bytes) -> Question:
    """Parse an ExtenderArgs. Sizes are checked before objects are created.

    Raises:
        MalformedError: the request is invalid, or larger than any cluster needs.
    """
    sent = _read("body", body, _Args)
    given = _first(sent.Pod, sent.pod)
    if given is None:
        raise MalformedError("no Pod", "the scheduler has to send the pod that it wants to place")
    pod = _pod(given)
    names = _first(sent.NodeNames, sent.nodenames)
    if names is not None:
        return Question(pod, _names(names))
    nodes = _first(sent.Nodes, sent.nodes)
    if nodes is None:
        raise MalformedError(
            "the request has neither NodeNames nor Nodes",
            "the scheduler has to send one of them",
        )
    listed = _read("Nodes", nodes, _NodeList)
    rest = {
        key: raw
        for key in ("kind", "apiVersion", "metadata")
        if (raw := _first(getattr(listed, key))) is not None
    }
    if _first(listed.items) is None:
        return Question(pod, [], ([], rest))
    _left.nodes = NODES
    found = [node.metadata.name for node in _read("Nodes", listed.items, list[_Node])]
    _check_lengths(found)
    return Question(pod, found, (_read("Nodes", listed.items, list[msgspec.Raw]), rest))


def _pod(raw: msgspec.Raw) -> Pod:
    if len(memoryview(raw)) > POD_BYTES:
        raise MalformedError("the Pod is too long", f"it has more than {POD_BYTES} bytes")
    if _count(raw, b"{") > _MEMBERS or _count(raw, b":") > _MEMBERS:
        raise _too_many(_MEMBERS, "members of the Pod")
    pod = _read("Pod", raw, Pod)
    if max(len(pod.spec.containers or ()), len(pod.spec.init or ())) > CONTAINERS:
        raise _too_many(CONTAINERS, "containers")
    return pod


def _names(raw: msgspec.Raw) -> list[str]:
    # Names contain no commas.
    if _count(raw, b",") >= NODES:
        raise _too_many(NODES, "nodes")
    names = _read("NodeNames", raw, list[str])
    _check_lengths(names)
    return names


def _check_lengths(names: Sequence[str]) -> None:
    if any(len(name) > _LONGEST for name in names):
        text = f"one has more than {_LONGEST} characters"
        raise MalformedError("invalid node names", text)


def _first(*given: msgspec.Raw) -> msgspec.Raw | None:
    """Return the first value that is present; Go sends null for an absent value."""
    return next((raw for raw in given if memoryview(raw)[:5].tobytes() != _NULL), None)


def _count(raw: msgspec.Raw, mark: bytes) -> int:
    """Return how often a byte occurs, without a copy of the whole data."""
    view = memoryview(raw)
    return sum(
        view[start : start + _PIECE].tobytes().count(mark) for start in range(0, len(view), _PIECE)
    )


def _too_many(most: int, what: str) -> MalformedError:
    return MalformedError(f"too many {what}", f"there are more than {most}")


def filtered(question: Question, verdicts: Sequence[FilterResult]) -> bytes:
    """Return an ExtenderFilterResult: nodes or names as in the request, and the failed nodes."""
    good = [number for number, verdict in enumerate(verdicts) if not verdict.reason]
    bad: tuple[dict[str, str], dict[str, str]] = {}, {}
    for name, verdict in zip(question.names, verdicts, strict=True):
        if verdict.reason:
            bad[verdict.is_unresolvable][name] = verdict.reason
    nodes = names = None
    if question.nodes is None:
        names = [question.names[number] for number in good]
    else:
        items, rest = question.nodes
        nodes = {**rest, "items": [items[number] for number in good]}
    return _result(nodes, names, *bad)


def refused(error: str) -> bytes:
    """Return an ExtenderFilterResult that contains only an error."""
    return _result(None, None, {}, {}, error)


def prioritized(question: Question, points: Sequence[int]) -> bytes:
    """Return a HostPriorityList with the scores of all nodes."""
    return msgspec.json.encode(
        [{"Host": name, "Score": score} for name, score in zip(question.names, points, strict=True)]
    )


def _result(
    nodes: dict[str, Any] | None,
    names: list[str] | None,
    failed: dict[str, str],
    unresolvable: dict[str, str],
    error: str = "",
) -> bytes:
    return msgspec.json.encode(
        {
            "Nodes": nodes,
            "NodeNames": names,
            "FailedNodes": failed,
            "FailedAndUnresolvableNodes": unresolvable,
            "Error": error,
        }
    )


def _read(what: str, raw: bytes | msgspec.Raw, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise MalformedError(f"{what} can't be read", str(error)) from None
