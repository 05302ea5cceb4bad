"""What kube-scheduler asks, and the form in which it wants to be answered.

The JSON of k8s.io/kube-scheduler/extender/v1: its structs have no names of their own for JSON, so
that the keys are `Pod`, `Nodes` and `NodeNames`. Older schedulers wrote them in lower case; answers
are read in either.
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
"""In a question; the largest clusters that Kubernetes is tested with have 5,000."""

CONTAINERS: Final = 1_000
"""Of a pod, and as many init containers."""

POD_BYTES: Final = 2 << 20
"""Of a pod; etcd takes no object of more than 1.5 MiB."""

_MEMBERS: Final = 100_000
"""Objects, and members of objects, that a pod may have: each may cost ten times its length."""

_LONGEST: Final = 253
"""Characters of a node's name, which is a DNS subdomain."""

_PIECE: Final = 1 << 16


class MalformedError(Exception):
    """What was sent is no question.

    Attributes:
        dedup_key: what is equal for two that are wrong in the same way.
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {line(text)}")
        self.dedup_key = kind


class _Args(msgspec.Struct):
    """The members of an ExtenderArgs, in either writing; others are passed over."""

    Pod: msgspec.Raw = _NOTHING
    pod: msgspec.Raw = _NOTHING
    NodeNames: msgspec.Raw = _NOTHING
    nodenames: msgspec.Raw = _NOTHING
    Nodes: msgspec.Raw = _NOTHING
    nodes: msgspec.Raw = _NOTHING


class _NodeList(msgspec.Struct):
    """A list of nodes as Kubernetes writes it."""

    kind: msgspec.Raw = _NOTHING
    apiVersion: msgspec.Raw = _NOTHING  # noqa: N815 - so it is called
    metadata: msgspec.Raw = _NOTHING
    items: msgspec.Raw = _NOTHING


class _Left(threading.local):
    """How many nodes more a thread may read."""

    nodes = 0


_left: Final = _Left()


class _Named(msgspec.Struct, gc=False):
    name: str


class _Node(msgspec.Struct, gc=False):
    metadata: _Named

    def __post_init__(self) -> None:
        # While they are read: all that a body may hold would be many times its size.
        _left.nodes -= 1
        if _left.nodes < 0:
            raise _too_many(NODES, "nodes")


@dataclass(frozen=True, slots=True)
class Question:
    """A pod, and the nodes in question.

    Attributes:
        pod: as far as it is looked at.
        names: of the nodes, in the order in which they were sent.
        nodes: the nodes themselves, as they were sent, if they came whole; beside them what else
            their list has.
    """

    pod: Pod
    names: Sequence[str]
    nodes: tuple[Sequence[msgspec.Raw], dict[str, msgspec.Raw]] | None = None


def parse_question(body: bytes) -> Question:
    """Read an ExtenderArgs. What it is looked at for is counted before objects are made of it.

    Raises:
        MalformedError: it is none, or has more in it than any cluster.
    """
    sent = _read("body", body, _Args)
    given = _first(sent.Pod, sent.pod)
    if given is None:
        raise MalformedError("no Pod", "the scheduler sends the one that it wants to place")
    pod = _pod(given)
    names = _first(sent.NodeNames, sent.nodenames)
    if names is not None:
        return Question(pod, _names(names))
    nodes = _first(sent.Nodes, sent.nodes)
    if nodes is None:
        raise MalformedError("neither NodeNames nor Nodes", "the scheduler sends one of them")
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
    # No name has a comma in it.
    if _count(raw, b",") >= NODES:
        raise _too_many(NODES, "nodes")
    names = _read("NodeNames", raw, list[str])
    _check_lengths(names)
    return names


def _check_lengths(names: Sequence[str]) -> None:
    if any(len(name) > _LONGEST for name in names):
        told = f"one has more than {_LONGEST} characters"
        raise MalformedError("what is sent are no names of nodes", told)


def _first(*given: msgspec.Raw) -> msgspec.Raw | None:
    """Return the first that is there; null is nothing, as Go sends it."""
    return next((raw for raw in given if memoryview(raw)[:5].tobytes() != _NULL), None)


def _count(raw: msgspec.Raw, mark: bytes) -> int:
    """Count a byte, without a copy of all that is looked through."""
    view = memoryview(raw)
    return sum(
        view[start : start + _PIECE].tobytes().count(mark) for start in range(0, len(view), _PIECE)
    )


def _too_many(most: int, what: str) -> MalformedError:
    return MalformedError(f"too many {what}", f"there are more than {most}")


def filtered(question: Question, verdicts: Sequence[FilterResult]) -> bytes:
    """Return an ExtenderFilterResult with a verdict on each node, in the question's form."""
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
    """Return an ExtenderFilterResult that says why there is none."""
    return _result(None, None, {}, {}, error)


def prioritized(question: Question, points: Sequence[int]) -> bytes:
    """Return a HostPriorityList."""
    return msgspec.json.encode(
        [{"Host": name, "Score": score} for name, score in zip(question.names, points, strict=True)]
    )


def _result(
    nodes: dict[str, Any] | None,
    names: list[str] | None,
    failed: dict[str, str],
    for_good: dict[str, str],
    error: str = "",
) -> bytes:
    return msgspec.json.encode(
        {
            "Nodes": nodes,
            "NodeNames": names,
            "FailedNodes": failed,
            "FailedAndUnresolvableNodes": for_good,
            "Error": error,
        }
    )


def _read(what: str, raw: bytes | msgspec.Raw, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise MalformedError(f"{what} can't be read", str(error)) from None
