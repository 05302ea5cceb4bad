"""What kube-scheduler asks, and the form in which it wants to be answered.

The JSON of k8s.io/kube-scheduler/extender/v1: its structs have no names of their own for JSON, so
that the keys are `Pod`, `Nodes` and `NodeNames`. Older schedulers wrote them in lower case; answers
are read in either.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from pipeline.extender.judging.demand import Pod
from pipeline.extender.judging.filtering import Verdict
from pipeline.texts import line

T = TypeVar("T")

_NULL: Final = b"null"


class MalformedError(Exception):
    """What was sent is no question.

    Attributes:
        kind: what is equal for two that are wrong in the same way.
    """

    def __init__(self, kind: str, told: str) -> None:
        super().__init__(f"{kind}: {line(told)}")
        self.kind = kind


class _Named(msgspec.Struct):
    name: str


class _Node(msgspec.Struct):
    metadata: _Named


@dataclass(frozen=True, slots=True)
class Question:
    """A pod, and the nodes in question.

    Attributes:
        pod: as far as it is looked at.
        names: of the nodes, in the order in which they were sent.
        nodes: the nodes themselves, as they were sent, if they came whole; beside them the rest of
            their list.
    """

    pod: Pod
    names: Sequence[str]
    nodes: tuple[Sequence[msgspec.Raw], dict[str, msgspec.Raw]] | None = None


def asked(body: bytes) -> Question:
    """Read an ExtenderArgs.

    Raises:
        MalformedError: it is none.
    """
    sent = {key.lower(): raw for key, raw in _read("body", body, dict[str, msgspec.Raw]).items()}
    given = {key: raw for key, raw in sent.items() if bytes(raw) != _NULL}
    if "pod" not in given:
        raise MalformedError("no Pod", "the scheduler sends the one that it wants to place")
    pod = _read("Pod", given["pod"], Pod)
    if "nodenames" in given:
        return Question(pod, _read("NodeNames", given["nodenames"], list[str]))
    if "nodes" not in given:
        raise MalformedError("neither NodeNames nor Nodes", "the scheduler sends one of them")
    rest = _read("Nodes", given["nodes"], dict[str, msgspec.Raw])
    listed = rest.pop("items", msgspec.Raw(_NULL))
    items = [] if bytes(listed) == _NULL else _read("Nodes", listed, list[msgspec.Raw])
    return Question(pod, [_read("Nodes", raw, _Node).metadata.name for raw in items], (items, rest))


def filtered(question: Question, verdicts: Sequence[Verdict]) -> bytes:
    """Return an ExtenderFilterResult with a verdict on each node, in the question's form."""
    good = [number for number, verdict in enumerate(verdicts) if not verdict.reason]
    bad: tuple[dict[str, str], dict[str, str]] = {}, {}
    for name, verdict in zip(question.names, verdicts, strict=True):
        if verdict.reason:
            bad[verdict.for_good][name] = verdict.reason
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
