"""Other programs write the pods at the same time, and the API server refuses requests."""

import asyncio

import pytest

from pipeline.base.errors import ApiError, TransientError
from tests.sinks.pods.support import KEY, Bench, api_error, claim, container, path_of, pod_of, uuids

pytestmark = pytest.mark.looptime(start=1000)


async def run_until_error(bench: Bench) -> Exception:
    """Run the sink until it fails, and enter it again for the next time."""
    async with bench.sink:
        with pytest.raises(TransientError) as caught:
            await asyncio.wait_for(bench.sink.run(bench.inbox), 100)
    return caught.value


# -- other writers


async def test_a_value_that_is_written_between_get_and_patch_stays() -> None:
    bench = Bench()
    bench.add_pods(pod_of())
    first_time = iter([True])

    def between(method: str, path: str) -> None:
        if method == "PATCH" and next(first_time, False):
            bench.api.annotate(path, **{KEY: "GPU-theirs"})

    bench.api.before = between
    async with bench.run_sink():
        bench.set_claims(claim("a", 0))
        await bench.wait(60)
    assert bench.annotations() == {KEY: "GPU-theirs"}
    assert bench.requests() == ["GET a", "PATCH a", "GET a"]
    assert bench.request_counts() == {"get ok": 2, "patch 409": 1}
    assert bench.failed == {"annotate foreign": 1}


async def test_another_change_between_get_and_patch_stays() -> None:
    bench = Bench()
    bench.add_pods(pod_of())
    turns = iter(range(2))

    def between(method: str, path: str) -> None:
        if method == "PATCH" and (turn := next(turns, None)) is not None:
            bench.api.annotate(path, team=str(turn))

    bench.api.before = between
    async with bench.run_sink():
        bench.set_claims(claim("a", 0))
        await bench.wait()
    assert bench.annotations()["team"] == "1"
    assert bench.written() == {KEY: uuids(0)}


async def test_a_pod_that_changes_all_the_time_is_delayed_and_delays_no_other() -> None:
    bench = Bench()
    bench.add_pods(pod_of("a"), pod_of("b"))
    turn = 0

    def between(method: str, path: str) -> None:
        nonlocal turn
        if method == "PATCH" and path == path_of("a") and turn < 6:
            turn += 1
            bench.api.annotate(path, turn=str(turn))

    bench.api.before = between
    async with bench.run_sink():
        bench.set_claims(claim("a", 0), claim("b", 1))
        await bench.wait(2)
        assert bench.requests() == ["GET a", "PATCH a"] * 4 + ["GET b", "PATCH b"]
        await bench.wait(20)
    assert bench.requests()[10:] == ["GET a", "PATCH a"] * 3
    assert bench.written("a") == {KEY: uuids(0)}


async def test_a_pod_that_is_recreated_between_get_and_patch_is_not_annotated() -> None:
    bench = Bench()
    bench.add_pods(pod_of(uid="first"))

    def between(method: str, path: str) -> None:
        if method == "PATCH" and bench.api.objects[path]["metadata"]["uid"] == "first":
            bench.add_pods(pod_of(uid="second", node="node-2"))

    bench.api.before = between
    async with bench.run_sink():
        bench.set_claims(claim("a", 0))
        await bench.wait()
    assert bench.annotations() == {}


# -- responses of the server


@pytest.mark.parametrize("when", ["GET", "PATCH"])
async def test_a_pod_that_is_gone_is_no_error(when: str) -> None:
    bench = Bench()
    bench.add_pods(pod_of(), pod_of("b"))

    def before(method: str, path: str) -> None:
        if method == when and path == path_of("a"):
            bench.api.objects.pop(path, None)

    bench.api.before = before
    async with bench.run_sink():
        bench.set_claims(claim("a", 0), claim("b", 1))
        await bench.wait(60)
    assert bench.written("b") == {KEY: uuids(1)}
    # It is requested again, less and less often, while the kubelet names it.
    assert bench.request_counts()["get 404"] == (3 if when == "GET" else 2)
    assert bench.failed == {}


@pytest.mark.parametrize("status", [0, 401, 403, 429, 500, 503])
@pytest.mark.parametrize("when", ["GET", "PATCH"])
async def test_other_errors_are_left_to_the_supervisor(status: int, when: str) -> None:
    bench = Bench()
    bench.add_pods(pod_of())
    bench.api.answers.extend([None] * (when == "PATCH"))
    bench.api.answers.append(api_error(status))
    bench.set_claims(claim("a", 0))
    error = await run_until_error(bench)
    assert isinstance(error, ApiError)
    assert error.status == status
    assert bench.request_counts()[f"{when.lower()} {status or 'error'}"] == 1
    assert bench.written() == {}
    async with bench.run_sink():
        await bench.wait()
    assert bench.written() == {KEY: uuids(0)}


async def test_a_patch_with_a_lost_response_is_recognised_by_the_mark() -> None:
    bench = Bench()
    bench.add_pods(pod_of())
    bench.api.losing = 1
    bench.set_claims(claim("a", 0))
    await run_until_error(bench)
    bench.set_claims(claim("a", 1))
    async with bench.run_sink():
        await bench.wait()
    assert bench.written() == {KEY: uuids(1)}
    assert bench.failed == {}


async def test_after_a_lost_response_the_pod_is_read_again() -> None:
    bench = Bench()
    bench.add_pods(pod_of())
    async with bench.run_sink():
        bench.set_claims(claim("a", 0))
        await bench.wait()
    bench.api.losing = 1
    bench.set_claims(claim("a", 1))
    await run_until_error(bench)
    assert bench.written() == {KEY: uuids(1)}
    bench.set_claims(claim("a", 0))
    async with bench.run_sink():
        await bench.wait()
    assert bench.written() == {KEY: uuids(0)}


async def test_a_refused_pod_does_not_delay_the_others() -> None:
    bench = Bench()
    bench.add_pods(pod_of("a"), pod_of("b"), pod_of("c"))
    get = bench.api.get

    async def refusing(path: str, query: dict[str, str]) -> bytes:
        if path == path_of("a"):
            raise api_error(500)
        return await get(path, query)

    bench.api.get = refusing  # type: ignore[method-assign,assignment]
    bench.set_claims(claim("a", 0), claim("b", 1), claim("c", 2))
    for _ in range(2):
        await run_until_error(bench)
    assert (bench.written("b"), bench.written("c")) == ({KEY: uuids(1)}, {KEY: uuids(2)})


@pytest.mark.parametrize(
    "body", [b"<html>", b"", b"[]", b"null", b"{}", b'{"metadata": 7}', b'{"metadata": {}}']
)
async def test_a_response_that_is_not_a_pod_is_an_error_with_the_request(body: bytes) -> None:
    bench = Bench()

    async def page(path: str, query: dict[str, str]) -> bytes:
        return body

    bench.api.get = page  # type: ignore[method-assign,assignment]
    bench.set_claims(claim("a", 0))
    error = await run_until_error(bench)
    assert str(error).startswith("GET /api/v1/namespaces/ml/pods/a: the response is not a Pod; ")
    assert bench.api.patches() == []


async def test_missing_credentials_are_an_error_at_the_start() -> None:
    bench = Bench()
    bench.ctx.api = None
    with pytest.raises(TransientError, match="no credentials"):
        await bench.sink.__aenter__()
    bench.ctx.api = bench.api
    bench.add_pods(pod_of("a", container(gpu=1)))
    bench.set_claims(claim("a", 0))
    async with bench.run_sink():
        await bench.wait()
    assert bench.written() == {KEY: uuids(0)}
