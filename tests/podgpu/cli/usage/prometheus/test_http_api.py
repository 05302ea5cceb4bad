"""What a server answers, and the message that a user gets."""

import asyncio
from collections.abc import Callable, Mapping
from types import MappingProxyType

import pytest
from aiohttp import web

from pipeline.base.errors import PermanentError, TransientError
from podgpu.cli.usage.prometheus.http_api import PrometheusApi, Sample, TooLargeError
from podgpu.cli.usage.prometheus.server_options import Server
from tests.podgpu.cli.usage.prometheus.api_server import ApiServer, Asked, failure, serving


def ask(server: ApiServer, headers: Mapping[str, str] = MappingProxyType({})) -> list[Sample]:
    async def instant() -> list[Sample]:
        async with PrometheusApi(Server(server.url, headers, timeout=5)) as api:
            return await api.instant("up", 1_800_000_000_123)

    return asyncio.run(instant())


def html(status: int = 200) -> web.Response:
    text = "<!doctype html><title>Sign in</title>"
    return web.Response(status=status, text=text, content_type="text/html")


REFUSED: dict[str, tuple[Callable[[], web.Response], type[Exception], str]] = {
    "too many samples": (
        lambda: failure(
            422, "query processing would load too many samples into memory in query execution"
        ),
        TooLargeError,
        "status 422: query processing would load too many samples",
    ),
    "a timeout in the server": (
        lambda: failure(503, "query timed out in query execution", "timeout"),
        TooLargeError,
        "query timed out",
    ),
    "VictoriaMetrics' limit of series": (
        lambda: failure(
            422,
            "error when executing query: the number of matching timeseries exceeds 30000",
            "422",
        ),
        TooLargeError,
        "exceeds 30000",
    ),
    "VictoriaMetrics, which repeats the query": (
        lambda: failure(
            422, f'cannot execute "{"sum(up) + " * 100}": cannot select more than 2 samples', "422"
        ),
        TooLargeError,
        'up) + ": cannot select more than 2 samples',
    ),
    "a gateway that gives up": (lambda: html(504), TooLargeError, "status 504"),
    "an error in the query": (
        lambda: failure(422, "vector cannot contain metrics with the same labelset"),
        PermanentError,
        "the same labelset; podgpu needs Prometheus 2.40 or newer",
    ),
    "an unknown function": (
        lambda: failure(400, "unknown function with name last_over_time", "bad_data"),
        PermanentError,
        "podgpu needs Prometheus 2.40",
    ),
    "no credentials": (
        lambda: web.Response(status=401, text="Unauthorized"),
        PermanentError,
        "status 401: Unauthorized; give --user with a password, or --bearer-token-file",
    ),
    "no rights": (
        lambda: web.Response(status=403),
        PermanentError,
        "status 403; give --user with a password, or --bearer-token-file",
    ),
    "Mimir without a tenant": (
        lambda: web.Response(status=401, text="no org id"),
        PermanentError,
        "no org id; name the tenant: --header 'X-Scope-OrgID: TENANT'",
    ),
    "another path": (
        lambda: web.Response(status=404, text="404 page not found"),
        PermanentError,
        "check the address: it ends before /api/v1. Mimir's ends with /prometheus",
    ),
    "a page for people": (
        html,
        PermanentError,
        "the response is not that of Prometheus' HTTP API, but an HTML page; check the address",
    ),
    "a redirect to a sign-in page": (
        lambda: web.Response(status=302, headers={"Location": "https://login.example/x?token=s"}),
        PermanentError,
        "redirects to https://login.example/x; give that address",
    ),
    "too many requests": (
        lambda: failure(429, "too many requests"),
        TransientError,
        "try again later, or with a shorter time span",
    ),
    "a broken server": (
        lambda: failure(500, "disk is full", "internal"),
        TransientError,
        "status 500: disk is full; check the log of that server",
    ),
    "a part of the server is down": (
        lambda: web.json_response(
            {"status": "success", "isPartial": True, "data": {"resultType": "vector", "result": []}}
        ),
        TransientError,
        "the result is incomplete, because a part of the server is down",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_query_is_an_error_with_a_fix(name: str) -> None:
    answer, kind, text = REFUSED[name]
    with serving(lambda _: answer()) as server, pytest.raises(kind) as caught:
        ask(server)
    assert text in str(caught.value)
    assert str(caught.value).startswith(f"{server.url}/api/v1/query: ")
    assert "\n" not in str(caught.value)


def test_a_server_that_does_not_run_is_named() -> None:
    server = ApiServer("http://127.0.0.1:1", lambda _: [])
    with pytest.raises(TransientError, match=r"can't connect to 127\.0\.0\.1:1"):
        ask(server)


def test_a_response_that_is_too_long_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podgpu.cli.usage.prometheus.http_api.MOST_BYTES", 2000)
    many = [({"pod": f"pod-{number}"}, 1.0) for number in range(100)]
    with serving(lambda _: many) as server, pytest.raises(TooLargeError, match="more than 2000"):
        ask(server)


def test_a_request_has_its_headers_and_its_time_to_the_millisecond() -> None:
    with serving(lambda _: [({"pod": "p"}, 2.5)]) as server:
        found = ask(server, {"Authorization": "Bearer x", "X-Scope-OrgID": "team"})
    (asked,) = server.asked
    assert found == [Sample({"pod": "p"}, 1_800_000_000_123, 2.5)]
    assert asked.promql == "up"
    assert asked.at_ms == 1_800_000_000_123
    assert asked.headers["Authorization"] == "Bearer x"
    assert asked.headers["X-Scope-OrgID"] == "team"


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_value_that_is_not_a_number_is_left_out(value: float) -> None:
    with serving(lambda _: [({}, value), ({"a": "b"}, 1.0)]) as server:
        assert [one.value for one in ask(server)] == [1.0]


@pytest.mark.parametrize(
    "result",
    [
        [0, "1"],
        [{"metric": {"pod": 1}, "value": [0, "1"]}],
        [{"metric": {}, "value": 1}],
        [{"metric": {}, "value": [0]}],
    ],
)
def test_a_result_of_another_form_is_refused(result: list[object]) -> None:
    document = {"status": "success", "data": {"resultType": "vector", "result": result}}
    with (
        serving(lambda _: web.json_response(document)) as server,
        pytest.raises(PermanentError, match="the response is not that of Prometheus' HTTP API"),
    ):
        ask(server)


@pytest.mark.parametrize("value", ["1e308", "-1e16", "many"])
def test_a_value_that_cannot_be_an_amount_is_refused(value: str) -> None:
    result = [{"metric": {}, "value": [0, value]}]
    document = {"status": "success", "data": {"resultType": "vector", "result": result}}
    with (
        serving(lambda _: web.json_response(document)) as server,
        pytest.raises(PermanentError, match=f"sent the value {value} at 0, which cannot be"),
    ):
        ask(server)


def test_warnings_are_kept_once() -> None:
    def answer(_: Asked) -> list[tuple[dict[str, str], float]]:
        return []

    async def twice(url: str) -> list[str]:
        async with PrometheusApi(Server(url)) as api:
            await api.instant("up", 0)
            await api.range("up", 0, 10_000, 1000)
            return list(api.warnings)

    with serving(answer) as server:
        server.warnings = ["store x is unavailable"]
        assert asyncio.run(twice(server.url)) == ["store x is unavailable"]
