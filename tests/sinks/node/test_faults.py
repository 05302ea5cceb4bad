"""Faults between the sink and the API server, under the daemon's supervision."""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path

import pytest

from pipeline.base.errors import ApiError, TransientError
from pipeline.kube.sessions import Sessions
from pipeline.topology.node_annotation import KEY
from tests.sinks.node.support import PATH, Bench
from tests.support.kube import ApiServer

UNAUTHORIZED = ApiError("credentials rejected", status=401, reason="Unauthorized")
FORBIDDEN = ApiError("podgpu may not get, patch nodes", status=403, reason="Forbidden")
ABSENT = ApiError('nodes "node-1" not found', status=404, reason="NotFound")
CONFLICT = ApiError("the object has been modified", status=409, reason="Conflict")
TOO_LONG = ApiError("metadata.annotations: Too long", status=422, reason="Invalid")
BUSY = ApiError("too many requests", status=429, reason="TooManyRequests", retry_after=30)
SERVER_ERROR = ApiError("internal error", status=500)
LOST = ApiError("connection refused")

pytestmark = pytest.mark.looptime


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


@pytest.mark.parametrize(
    ("error", "label", "message"),
    [
        (UNAUTHORIZED, "401", "credentials rejected; retrying, next attempt in "),
        (FORBIDDEN, "403", "podgpu may not get, patch nodes; retrying, next attempt in "),
        (ABSENT, "404", "there is no Node node-1"),
        (BUSY, "429", "too many requests; retrying, next attempt in "),
        (SERVER_ERROR, "500", "internal error; retrying, next attempt in "),
        (LOST, "error", "connection refused; retrying, next attempt in "),
    ],
)
@pytest.mark.parametrize("method", ["get", "patch"])
async def test_an_error_is_logged_counted_and_retried(
    method: str, error: ApiError, label: str, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench()
    bench.api.answers.extend([error] if method == "get" else [None, error])
    async with bench.running():
        bench.set_held(0)
        await asyncio.sleep(1.5)
        assert bench.ctx.up == 0
        assert bench.value() is None
        await asyncio.sleep(45)
        assert bench.ctx.up == 1
        assert bench.published().free == 0b1110
        counted = bench.ctx.counted("podgpu_sink_requests_total")
        assert counted[f"{method} {label}"] == 1
        assert counted["patch ok"] == 1
        assert bench.overwritten() == 0
    assert message in warnings(caplog)[0]
    assert len(warnings(caplog)) == 1


async def test_a_missing_node_is_logged_with_a_fix(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(node="node-9")
    async with bench.running():
        bench.set_held(0)
        await asyncio.sleep(600)
        assert set(bench.methods()) == {"GET"}
        # Retries after 1, 2, 4 ... 60 s.
        assert len(bench.api.requests) < 20
    [message] = warnings(caplog)
    assert "there is no Node node-9" in message
    assert "set node: to a name that kubectl get nodes shows" in message


async def test_annotations_that_are_too_long_together_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    bench.api.answers.extend([None, TOO_LONG])
    async with bench.running():
        bench.set_held(0)
        await asyncio.sleep(10)
    [message] = warnings(caplog)
    assert "Too long" in message
    assert (
        "all annotations of a Node together are limited to 256 KiB, and this one has 1 KiB"
        in message
    )


async def test_retry_after_of_the_server_is_followed() -> None:
    bench = Bench()
    bench.api.answers.append(BUSY)
    async with bench.running():
        bench.set_held(0)
        await asyncio.sleep(30.9)
        assert bench.methods() == ["GET"]
        await asyncio.sleep(10)
        assert bench.methods() == ["GET", "GET", "PATCH"]


async def test_a_refused_patch_is_retried_before_min_interval_has_passed() -> None:
    """The Node was not changed. The supervisor decides how often the sink retries."""
    bench = Bench(min_interval="1m")
    bench.api.answers.extend([None, FORBIDDEN, None, FORBIDDEN])
    async with bench.running():
        bench.set_held(0)
        await asyncio.sleep(10)
        assert bench.methods() == ["GET", "PATCH", *["GET", "PATCH"] * 2]
        assert bench.published().free == 0b1110


@pytest.mark.parametrize(
    ("fails", "error"), [("GET", FORBIDDEN), ("PATCH", FORBIDDEN), ("GET", LOST), ("PATCH", LOST)]
)
async def test_an_error_that_lasts_for_an_hour_is_logged_once(
    fails: str, error: ApiError, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench()

    def before(method: str, _path: str) -> None:
        bench.api.answers.append(error if method == fails else None)

    bench.api.before = before
    async with bench.running():
        bench.set_held(0)
        ups = []
        for _ in range(60):
            await asyncio.sleep(60)
            ups.append(bench.ctx.up)
        # A sink that is about to retry is not up.
        assert sum(ups) == 0
        assert 50 < len(bench.api.requests) < 200
    assert len(warnings(caplog)) == 1


async def test_a_retry_without_a_response_times_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    bench.api.answers.append(LOST)
    async with bench.running():
        bench.set_held(0)
        await asyncio.sleep(1.5)
        bench.api.takes = 3600
        await asyncio.sleep(120)
        bench.api.takes = 0
        await asyncio.sleep(90)
        assert bench.published().free == 0b1110
    assert len(warnings(caplog)) == 2
    assert warnings(caplog)[1].startswith(
        "the annotation podgpu.io/topology of the Node node-1: no response in time; retrying"
    )


# -- conflicts


@pytest.mark.parametrize("conflicts", [1, 2, 3])
async def test_a_conflict_is_retried_immediately(conflicts: int) -> None:
    bench = Bench()
    bench.api.answers.extend([None, *[CONFLICT] * conflicts])
    async with bench.running():
        bench.set_held(0)
        await asyncio.sleep(1.1)
        assert bench.published().free == 0b1110
        assert bench.ctx.up == 1
        assert bench.ctx.counted("podgpu_sink_requests_total")["patch 409"] == conflicts


async def test_repeated_conflicts_are_left_to_the_supervisor() -> None:
    bench = Bench()
    bench.api.answers.extend([None, *[CONFLICT] * 4, None, *[CONFLICT] * 2])
    async with bench.running():
        bench.set_held(0)
        await asyncio.sleep(1.1)
        assert bench.methods() == ["GET", *["PATCH"] * 4]
        assert bench.ctx.up == 0
        await asyncio.sleep(2)
        assert bench.published().free == 0b1110


# -- lost responses


async def test_a_patch_with_a_lost_response_counts_for_min_interval(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(refresh="1m")
    bench.api.losing = 1
    async with bench.running():
        bench.set_held(0)
        await asyncio.sleep(5)
        assert bench.published().free == 0b1110
        await asyncio.sleep(200)
        assert 11 <= bench.patched_at()[1] < 16
        assert min(bench.distances()) >= 10
        # The value of the lost patch is podgpu's own.
        assert bench.overwritten() == 0
    assert [message.split(";")[0] for message in warnings(caplog)] == ["connection lost"]


async def test_after_a_lost_response_the_written_value_is_unknown() -> None:
    async with Bench().running() as bench:
        bench.set_held(0)
        await asyncio.sleep(20)
        bench.api.losing = 1
        bench.set_held(1)
        await asyncio.sleep(1.5)
        assert bench.published().free == 0b1101
        bench.set_held(0)
        await asyncio.sleep(12)
        assert bench.published().free == 0b1110


async def test_a_patch_with_a_lost_response_is_not_taken_for_another_writer_s() -> None:
    async with Bench(refresh="30s", min_interval="20s").running() as bench:
        bench.set_held(0)
        await asyncio.sleep(25)
        # The patch at 26 s is applied, its response is lost. The next write reads the Node first.
        bench.set_held(1)
        bench.api.losing = 1
        await asyncio.sleep(60)
        assert bench.methods()[:5] == ["GET", "PATCH", "PATCH", "GET", "PATCH"]
        assert bench.overwritten() == 0


async def test_only_the_newest_value_is_written_after_an_outage() -> None:
    async with Bench().running() as bench:
        bench.set_held(0)
        await asyncio.sleep(20)
        bench.api.answers.extend([LOST] * 10)
        for turn in range(60):
            bench.set_held(turn % 4)
            await asyncio.sleep(10)
        bench.api.answers.clear()
        await asyncio.sleep(90)
        assert bench.published().free == 0b0111
        assert min(bench.distances()) >= 10 - 1e-3
        assert bench.overwritten() == 0


@pytest.mark.parametrize("body", [{"kind": "Status"}, {"kind": "Pod", "metadata": {}}, {}])
async def test_a_response_that_is_not_a_node_is_refused(
    body: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench()
    bench.api.put(PATH, body)
    if "metadata" not in body:
        del bench.api.objects[PATH]["metadata"]
    async with bench.running():
        bench.set_held(0)
        await asyncio.sleep(5)
        assert set(bench.methods()) == {"GET"}
    assert (
        "the response is not a Node; check that the address is that of an API server"
        in warnings(caplog)[0]
    )


@pytest.mark.parametrize(
    "metadata", [{}, {"annotations": None}, {"annotations": {KEY: 3}}, {"annotations": []}]
)
async def test_a_node_without_annotations_is_annotated(metadata: dict[str, object]) -> None:
    bench = Bench()
    bench.api.put(PATH, {"metadata": metadata})
    async with bench.running():
        bench.set_held(0)
        await asyncio.sleep(2)
        assert bench.published().free == 0b1110
        assert bench.overwritten() == 0


async def test_a_patch_that_is_applied_late_is_found_and_overwritten() -> None:
    bench = Bench()
    later: list[Mapping[str, object]] = []
    patch = bench.api.patch

    async def lose(path: str, changes: Mapping[str, object]) -> bytes:
        if len(bench.api.patches()) == 1 and not later:
            later.append(changes)
            raise ApiError("stopped responding")
        return await patch(path, changes)

    bench.api.patch = lose  # type: ignore[method-assign]
    async with bench.running():
        bench.set_held(0)
        await asyncio.sleep(20)
        bench.set_held(1)
        await asyncio.sleep(5)
        bench.set_held(0, 1, 2, 3)
        await asyncio.sleep(95)
        assert bench.published().free == 0
        bench.api._merge(PATH, later[0])
        assert bench.published().free == 0b1101
        await asyncio.sleep(60)
        assert bench.published().free == 0
        assert min(bench.distances()) >= 10
        assert bench.overwritten() == 0
        # Checks become rarer, until only the refresh reads the Node.
        requests_before = len(bench.api.requests)
        await asyncio.sleep(3600)
        assert len(bench.api.requests) - requests_before <= 2 * 12 + 3


async def test_a_patch_response_that_is_not_a_node_is_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()

    async def page(_path: str, _changes: Mapping[str, object]) -> bytes:
        return b"<html>sign in</html>"

    bench.api.patch = page  # type: ignore[method-assign, assignment]
    async with bench.running():
        bench.set_held(0)
        ups = []
        for _ in range(200):
            await asyncio.sleep(1)
            ups.append(bench.ctx.up)
        assert sum(ups) < 5
    [message] = warnings(caplog)
    assert "the response is not a Node" in message


@pytest.mark.parametrize("other", [None, "{}"])
async def test_a_webhook_that_removes_the_annotation_is_logged(
    other: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench()
    patch = bench.api.patch

    async def webhook(path: str, changes: Mapping[str, object]) -> bytes:
        await patch(path, changes)
        return await patch(path, {"metadata": {"annotations": {KEY: other}}})

    bench.api.patch = webhook  # type: ignore[method-assign]
    async with bench.running():
        bench.set_held(0)
        await asyncio.sleep(100)
        assert bench.ctx.up == 0
    # The value of the webhook counts as another program's.
    message, *more = warnings(caplog)
    assert len(more) == (other is not None)
    assert "does not contain it; check which admission webhook" in message


@pytest.mark.parametrize("status", [429, 503])
async def test_retry_after_is_limited_to_five_minutes(status: int) -> None:
    bench = Bench()
    bench.api.answers.append(ApiError("busy", status=status, retry_after=999_999_999))
    async with bench.running():
        bench.set_held(0)
        await asyncio.sleep(299)
        assert bench.ctx.up == 0
        await asyncio.sleep(80)
        assert bench.published().free == 0b1110


# -- credentials


async def test_the_sink_waits_for_credentials(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(kubeconfig=Path("/etc/podgpu/kubeconfig"))
    bench.ctx.api = None
    async with bench.running():
        bench.set_held(0)
        await asyncio.sleep(60)
        assert bench.ctx.up == 0
        bench.ctx.api = bench.api
        await asyncio.sleep(65)
        assert bench.published().free == 0b1110
    assert set(bench.ctx.asked) == {Path("/etc/podgpu/kubeconfig")}
    assert len(warnings(caplog)) == 1


@pytest.mark.looptime(False)
async def test_the_error_names_a_missing_kubeconfig(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kubeconfig"
    bench = Bench(kubeconfig=path)
    monkeypatch.setattr(bench.ctx, "kube", Sessions().session)
    for _ in range(2):
        with pytest.raises(TransientError, match=str(path)):
            await bench.sink.__aenter__()
    async with ApiServer({}).serving() as server:
        server.kubeconfig(path)
        async with bench.sink:
            pass
