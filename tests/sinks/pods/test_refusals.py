"""Patches that are refused or silently dropped affect only the pod that they are for."""

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
    api_error,
    claim,
    container,
    path_of,
    pod_of,
    uuids,
    webhook_denial,
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
    pytest.param(webhook_denial(400), id="webhook, 400"),
    pytest.param(webhook_denial(403), id="webhook, 403"),
    pytest.param(webhook_denial(404), id="webhook, 404"),
    pytest.param(webhook_denial(409), id="webhook, 409"),
    pytest.param(webhook_denial(500), id="webhook, 500"),
    pytest.param(webhook_denial(403, POLICY), id="policy, 403"),
    pytest.param(webhook_denial(422, POLICY), id="policy, 422"),
    pytest.param(api_error(422), id="invalid"),
]


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


def shares(*names: str) -> list[Claim]:
    """Return claims of many pods that each hold a part of one GPU."""
    claims = [claim(name, 0) for name in names]
    return [type(c)(c.subject, c.devices, 1e-3, None, c.origin, KEY) for c in claims]


def refuse_patches(bench: Bench, error: ApiError, *names: str) -> None:
    """Refuse all patches of pods, or of the pods with these names if any are given."""

    def before(method: str, path: str) -> None:
        if method == "PATCH" and (not names or path.rpartition("/")[2] in names):
            raise error

    bench.api.before = before


@pytest.mark.parametrize("error", REFUSALS)
async def test_a_refused_pod_does_not_stop_others_and_is_logged_once(
    error: ApiError, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench()
    bench.add_pods(pod_of("a"), pod_of("b"), pod_of("c"))
    refuse_patches(bench, error, "a", "b")
    async with bench.supervised():
        bench.set_claims(claim("a", 0), claim("b", 1), claim("c", 2))
        for _ in range(30):
            await bench.wait(120)
            assert bench.up
    assert [bench.written(name) for name in "abc"] == [{}, {}, {KEY: uuids(2)}]
    [message] = warned(caplog)
    assert KEY in message
    assert "give its service account" not in message
    # Retried after 10, 20, 40 ... 600 s, and counted each time.
    assert bench.failed == {"annotate invalid": bench.requests().count("PATCH a") * 2}
    attempts = [
        at
        for at, method, path, _ in bench.api.requests
        if (method, path) == ("PATCH", path_of("a"))
    ]
    # Logged once, and shown as a problem of the sink while it lasts.
    [problem] = bench.ctx.own.problems.values()
    assert "cannot write annotation nvidia.com/gpu" in problem.text
    last = max(at for at, method, _, _ in bench.api.requests if method == "PATCH")
    assert problem.at.mono_ns / NS == pytest.approx(last, abs=1)
    waits = [later - before for before, later in pairwise(attempts)]
    assert [round(wait) for wait in waits[:8]] == [10, 20, 40, 80, 160, 320, 600, 600]


@pytest.mark.parametrize("error", REFUSALS)
async def test_a_pod_is_annotated_when_it_is_no_longer_refused(error: ApiError) -> None:
    bench = Bench()
    bench.add_pods(pod_of())
    refuse_patches(bench, error)
    async with bench.supervised():
        bench.set_claims(claim("a", 0))
        await bench.wait(60)
        refuse_patches(bench, error, "no-pod")
        await bench.wait(60)
    assert bench.written() == {KEY: uuids(0)}


@pytest.mark.parametrize("error", REFUSALS)
async def test_refused_pods_do_not_delay_a_new_pod(error: ApiError) -> None:
    bench = Bench()
    names = [f"p{number}" for number in range(40)]
    bench.add_pods(*(pod_of(name, container(gpu=1)) for name in names), pod_of("new"))
    refuse_patches(bench, error, *names)
    async with bench.supervised():
        bench.set_claims(*shares(*names))
        # All forty are due for a retry now.
        await bench.wait(10.01)
        bench.set_claims(*shares(*names, "new"))
        await bench.wait(0.3)
        assert bench.written("new") == {KEY: uuids(0)}


async def test_a_refused_pod_with_other_devices_is_retried_immediately() -> None:
    bench = Bench()
    bench.add_pods(pod_of())
    refuse_patches(bench, webhook_denial())
    async with bench.supervised():
        bench.set_claims(claim("a", 0))
        await bench.wait(3600)
        bench.api.before = lambda *_: None
        bench.set_claims(claim("a", 1))
        await bench.wait(1)
    assert bench.written() == {KEY: uuids(1)}


async def test_a_missing_permission_stops_the_sink_and_the_log_names_the_rule(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    bench.add_pods(pod_of())
    refuse_patches(bench, webhook_denial(403, NO_RIGHT))
    async with bench.supervised():
        bench.set_claims(claim("a", 0))
        await bench.wait(600)
        assert not bench.up
    [message] = warned(caplog)
    assert 'resources ["pods"], verbs [get, patch]' in message


# -- responses to a patch


@pytest.mark.parametrize("body", [b"<html>", b"", b"[]", b"{}", b'{"metadata":{"annotations":[]}}'])
async def test_a_patch_is_retried_if_its_response_does_not_contain_it(
    body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench()
    bench.add_pods(pod_of("a"), pod_of("b"))
    patch, other_responses = bench.api.patch, [True] * 4

    async def page(path: str, changes: Mapping[str, object]) -> bytes:
        if other_responses:
            other_responses.pop()
            return body
        return await patch(path, changes)

    bench.api.patch = page  # type: ignore[method-assign]
    async with bench.supervised():
        bench.set_claims(claim("a", 0), claim("b", 1))
        await bench.wait(25)
        assert (bench.written("a"), bench.written("b")) == ({}, {})
        assert bench.up
        await bench.wait(20)
    assert (bench.written("a"), bench.written("b")) == ({KEY: uuids(0)}, {KEY: uuids(1)})
    [message] = warned(caplog)
    assert "its response does not contain it" in message
    assert bench.failed == {"annotate invalid": 4}


@pytest.mark.parametrize("keys", [(KEY,), (MARK,), (KEY, MARK)])
async def test_a_webhook_that_removes_annotations_is_logged_once(
    keys: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench()
    bench.add_pods(pod_of())
    patch = bench.api.patch

    async def stripped(path: str, changes: Mapping[str, Any]) -> bytes:
        annotations: dict[str, str] = dict(changes["metadata"]["annotations"])
        left = {key: value for key, value in annotations.items() if key not in keys}
        return await patch(path, {"metadata": {**changes["metadata"], "annotations": left}})

    bench.api.patch = stripped  # type: ignore[method-assign]
    async with bench.supervised():
        bench.set_claims(claim("a", 0))
        await bench.wait(3600)
        assert bench.up
    assert len(warned(caplog)) == 1
    assert bench.requests().count("PATCH a") <= 12
    assert not set(keys) & set(bench.annotations())


async def test_a_patch_that_the_server_changed_is_retried() -> None:
    bench = Bench()
    bench.add_pods(pod_of())
    bench.api.dropping = 1
    async with bench.supervised():
        bench.set_claims(claim("a", 0))
        await bench.wait(5)
        assert bench.written() == {}
        await bench.wait(10)
    assert bench.written() == {KEY: uuids(0)}
