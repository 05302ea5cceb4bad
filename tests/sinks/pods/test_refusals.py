"""Changes that are refused, or dropped without a word: each is a matter of the pod it was for."""

import logging
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest

from pipeline.allocations.own_annotations import MARK
from pipeline.base.errors import ApiError
from pipeline.model import NS, Claim
from tests.sinks.pods.support import (
    KEY,
    Bench,
    asking,
    denial,
    held,
    path_of,
    pod_of,
    refused,
    uuids,
)

pytestmark = pytest.mark.looptime(start=1000)

POLICY = (
    "pods \"a\" is forbidden: ValidatingAdmissionPolicy 'guard' with binding 'guard' denied "
    "request: only annotations"
)
NO_RIGHT = (
    'pods "a" is forbidden: User "system:serviceaccount:podgpu:podgpu" cannot patch resource '
    '"pods" in API group "" in the namespace "ml"'
)
REFUSALS = [
    pytest.param(denial(400), id="webhook, 400"),
    pytest.param(denial(403), id="webhook, 403"),
    pytest.param(denial(404), id="webhook, 404"),
    pytest.param(denial(409), id="webhook, 409"),
    pytest.param(denial(500), id="webhook, 500"),
    pytest.param(denial(403, POLICY), id="policy, 403"),
    pytest.param(denial(422, POLICY), id="policy, 422"),
    pytest.param(refused(422), id="invalid"),
]


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


def shared(*names: str) -> list[Claim]:
    """Many pods with a part each of one GPU."""
    said = [held(name, 0) for name in names]
    return [type(c)(c.subject, c.devices, 1e-3, None, c.origin, KEY) for c in said]


def refuse(bench: Bench, error: ApiError, *names: str) -> None:
    """Refuse all changes of pods; of those with these names, if any are given."""

    def before(method: str, path: str) -> None:
        if method == "PATCH" and (not names or path.rpartition("/")[2] in names):
            raise error

    bench.api.before = before


@pytest.mark.parametrize("error", REFUSALS)
async def test_what_a_pod_is_refused_stops_no_one_and_is_reported_once(
    error: ApiError, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench()
    bench.has(pod_of("a"), pod_of("b"), pod_of("c"))
    refuse(bench, error, "a", "b")
    async with bench.supervised():
        bench.holds(held("a", 0), held("b", 1), held("c", 2))
        for _ in range(30):
            await bench.rests(120)
            assert bench.up
    assert [bench.written(name) for name in "abc"] == [{}, {}, {KEY: uuids(2)}]
    [given_out] = warned(caplog)
    assert KEY in given_out
    assert "give its service account" not in given_out
    # Tried again after 10, 20, 40 ... 600 s, and counted each time.
    assert bench.failed == {"annotate invalid": bench.asked().count("PATCH a") * 2}
    tried = [
        at
        for at, method, path, _ in bench.api.requests
        if (method, path) == ("PATCH", path_of("a"))
    ]
    # Told once, and seen by who looks at the sink for as long as it is so.
    [trouble] = bench.ctx.own.problems.values()
    assert "cannot write annotation nvidia.com/gpu" in trouble.text
    last = max(at for at, method, _, _ in bench.api.requests if method == "PATCH")
    assert trouble.at.mono_ns / NS == pytest.approx(last, abs=1)
    waits = [later - before for before, later in pairwise(tried)]
    assert [round(wait) for wait in waits[:8]] == [10, 20, 40, 80, 160, 320, 600, 600]


@pytest.mark.parametrize("error", REFUSALS)
async def test_it_is_written_once_it_is_refused_no_longer(error: ApiError) -> None:
    bench = Bench()
    bench.has(pod_of())
    refuse(bench, error)
    async with bench.supervised():
        bench.holds(held("a", 0))
        await bench.rests(60)
        refuse(bench, error, "nobody")
        await bench.rests(60)
    assert bench.written() == {KEY: uuids(0)}


@pytest.mark.parametrize("error", REFUSALS)
async def test_a_new_pod_waits_for_none_of_those_that_are_refused(error: ApiError) -> None:
    bench = Bench()
    names = [f"p{number}" for number in range(40)]
    bench.has(*(pod_of(name, asking(gpu=1)) for name in names), pod_of("new"))
    refuse(bench, error, *names)
    async with bench.supervised():
        bench.holds(*shared(*names))
        # All forty are due again now.
        await bench.rests(10.01)
        bench.holds(*shared(*names, "new"))
        await bench.rests(0.3)
        assert bench.written("new") == {KEY: uuids(0)}


async def test_a_refused_pod_that_holds_something_else_is_tried_at_once() -> None:
    bench = Bench()
    bench.has(pod_of())
    refuse(bench, denial())
    async with bench.supervised():
        bench.holds(held("a", 0))
        await bench.rests(3600)
        bench.api.before = lambda *_: None
        bench.holds(held("a", 1))
        await bench.rests(1)
    assert bench.written() == {KEY: uuids(1)}


async def test_a_right_that_is_missing_is_the_sink_s_and_names_the_rule(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    bench.has(pod_of())
    refuse(bench, denial(403, NO_RIGHT))
    async with bench.supervised():
        bench.holds(held("a", 0))
        await bench.rests(600)
        assert not bench.up
    [given_out] = warned(caplog)
    assert 'resources ["pods"], verbs [get, patch]' in given_out


# -- what the server says of a change


@pytest.mark.parametrize("body", [b"<html>", b"", b"[]", b"{}", b'{"metadata":{"annotations":[]}}'])
async def test_a_change_whose_answer_does_not_have_it_is_not_done(
    body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench()
    bench.has(pod_of("a"), pod_of("b"))
    patch, strange = bench.api.patch, [True] * 4

    async def page(path: str, changes: Mapping[str, object]) -> bytes:
        if strange:
            strange.pop()
            return body
        return await patch(path, changes)

    bench.api.patch = page  # type: ignore[method-assign]
    async with bench.supervised():
        bench.holds(held("a", 0), held("b", 1))
        await bench.rests(25)
        assert (bench.written("a"), bench.written("b")) == ({}, {})
        assert bench.up
        await bench.rests(20)
    assert (bench.written("a"), bench.written("b")) == ({KEY: uuids(0)}, {KEY: uuids(1)})
    [given_out] = warned(caplog)
    assert "its response does not contain it" in given_out
    assert bench.failed == {"annotate invalid": 4}


@pytest.mark.parametrize("keys", [(KEY,), (MARK,), (KEY, MARK)])
async def test_a_webhook_that_takes_annotations_away_is_reported_of(
    keys: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench()
    bench.has(pod_of())
    patch = bench.api.patch

    async def stripped(path: str, changes: Mapping[str, Any]) -> bytes:
        annotations: dict[str, str] = dict(changes["metadata"]["annotations"])
        left = {key: value for key, value in annotations.items() if key not in keys}
        return await patch(path, {"metadata": {**changes["metadata"], "annotations": left}})

    bench.api.patch = stripped  # type: ignore[method-assign]
    async with bench.supervised():
        bench.holds(held("a", 0))
        await bench.rests(3600)
        assert bench.up
    assert len(warned(caplog)) == 1
    assert bench.asked().count("PATCH a") <= 12
    assert not set(keys) & set(bench.annotations())


async def test_a_value_that_comes_back_another_one_is_not_done() -> None:
    bench = Bench()
    bench.has(pod_of())
    bench.api.dropping = 1
    async with bench.supervised():
        bench.holds(held("a", 0))
        await bench.rests(5)
        assert bench.written() == {}
        await bench.rests(10)
    assert bench.written() == {KEY: uuids(0)}
