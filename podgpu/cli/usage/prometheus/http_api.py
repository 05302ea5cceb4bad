"""Client of Prometheus' HTTP API: instant and range queries, with limits and clear errors.

The API is that of https://prometheus.io/docs/prometheus/latest/querying/api/, which
VictoriaMetrics, Thanos and Mimir also have. It imports aiohttp: import it only where it is needed.
"""

import math
from collections.abc import Mapping
from http import HTTPStatus
from types import TracebackType
from typing import Final, NamedTuple, Self
from urllib.parse import urlencode

import msgspec

from pipeline.base.errors import PermanentError, TransientError
from pipeline.base.safe_text import line
from pipeline.base.version import VERSION
from pipeline.net.http_post import Answer, Poster, PostError
from podgpu.cli.usage.prometheus.server_options import Server

MOST_BYTES: Final = 64 << 20
"""Maximum length of a response."""

_MOST_VALUE: Final = 1e15
"""The largest value, in seconds or joules: 30 million years, or a year of 30,000 GPUs of 1 kW."""

_MOST_TEXT: Final = 300
_TYPE: Final = "application/x-www-form-urlencoded"

_SPLITTABLE: Final = frozenset(
    {
        HTTPStatus.UNPROCESSABLE_ENTITY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)
"""Statuses of a query that is too large or too slow for the server."""

_LIMITS: Final = (
    *("too many", "exceed", "limit", "timed out", "timeout", "deadline", "too long"),
    *("canceled", "cannot select more", "maxsamples", "memory"),
)
"""Words in the error of a query that a smaller query may not meet."""


class Sample(NamedTuple):
    """One value of a series: its labels, the time in milliseconds of Unix time, and the value."""

    labels: Mapping[str, str]
    at_ms: int
    value: float


class TooLargeError(Exception):
    """The query is too large or too slow for the server: a part of the span may work."""


class _Series(msgspec.Struct, frozen=True):
    metric: dict[str, str] = {}
    value: tuple[float, str] | None = None
    values: list[tuple[float, str]] = []


class _Data(msgspec.Struct, frozen=True):
    result_type: str = msgspec.field(name="resultType", default="")
    result: list[_Series] = []


class _Document(msgspec.Struct, frozen=True):
    status: str = ""
    data: _Data = _Data()
    error: str = ""
    warnings: list[str] = []
    is_partial: bool = msgspec.field(name="isPartial", default=False)


class PrometheusApi:
    """Asks one server. Use it as an asynchronous context manager.

    Args:
        server: the address, headers and limits.

    Attributes:
        warnings: warnings of the server about results, each once.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._headers = {
            "User-Agent": f"podgpu/{VERSION}",
            "Accept": "application/json",
            "Content-Type": _TYPE,
            **server.headers,
        }
        self._posters: dict[str, Poster] = {}
        self.warnings: dict[str, None] = {}

    async def __aenter__(self) -> Self:
        """Create the connections, which open with the first query."""
        for page in ("query", "query_range"):
            self._posters[page] = Poster(
                f"{self._server.url}/api/v1/{page}",
                timeout=self._server.timeout,
                most=MOST_BYTES,
                context=self._server.context,
            )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connections."""
        for poster in self._posters.values():
            await poster.close()

    async def instant(self, query: str, at_ms: int) -> list[Sample]:
        """Return the value of each series at one time.

        Raises:
            TooLargeError: the query is too large for the server.
            TransientError: there is no usable response.
            PermanentError: the server refuses the request.
        """
        data = await self._ask("query", {"query": query, "time": _seconds(at_ms)})
        return [
            sample
            for series in data.result
            if series.value is not None
            and (sample := self._sample(series.metric, series.value)) is not None
        ]

    async def range(self, query: str, start_ms: int, end_ms: int, step_ms: int) -> list[Sample]:
        """Return the values of each series at several times, as `instant` does for one."""
        times = {"start": _seconds(start_ms), "end": _seconds(end_ms), "step": _seconds(step_ms)}
        data = await self._ask("query_range", {"query": query, **times})
        return [
            sample
            for series in data.result
            for pair in series.values
            if (sample := self._sample(series.metric, pair)) is not None
        ]

    def _sample(self, labels: Mapping[str, str], pair: tuple[float, str]) -> Sample | None:
        """Return a sample; None if its value is NaN or infinite.

        Raises:
            PermanentError: the value is no number, or is larger than any amount or time.
        """
        at, text = pair
        try:
            value = float(text)
        except ValueError:
            value = _MOST_VALUE * 2
        if not math.isfinite(value):
            return None
        if max(abs(value), abs(at)) > _MOST_VALUE:
            raise PermanentError(
                f"{self._server.url}: the server sent the value {line(text, 40)} at {at:g}, which "
                "cannot be an amount of podgpu; check what writes podgpu's metrics to it"
            )
        return Sample(labels, round(at * 1000), value)

    async def _ask(self, page: str, form: Mapping[str, str]) -> _Data:
        # VictoriaMetrics would otherwise move start and end, and Thanos leave out what it misses.
        body = urlencode({**form, "nocache": "1", "partial_response": "false"}).encode()
        shown = f"{self._server.url}/api/v1/{page}"
        try:
            answer = await self._posters[page].post(body, self._headers)
        except PostError as error:
            if error.reason == "timeout":
                raise TooLargeError(
                    f"{shown}: no response to a query within the time limit"
                ) from None
            raise TransientError(str(error)) from None
        if answer.fault:
            if "more than" in answer.fault:
                raise TooLargeError(f"{shown}: {answer.fault}")
            raise TransientError(f"{shown}: the server sent {answer.fault}")
        document = _document(answer)
        if answer.status != HTTPStatus.OK or document is None or document.status != "success":
            raise _refusal(shown, answer, document)
        if document.is_partial:
            raise TransientError(
                f"{shown}: the result is incomplete, because a part of the server is down; try "
                "again later"
            )
        self.warnings |= dict.fromkeys(line(text, _MOST_TEXT) for text in document.warnings)
        return document.data


def _seconds(ms: int) -> str:
    return f"{ms // 1000}.{ms % 1000:03d}"


def _document(answer: Answer) -> _Document | None:
    try:
        return msgspec.json.decode(answer.body, type=_Document)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _refusal(shown: str, answer: Answer, document: _Document | None) -> Exception:
    """Return the exception for a response without a result. Its text says how to fix it."""
    whole = document.error if document else answer.body.decode("utf-8", "replace")
    text, status = _end_of(whole), answer.status
    if document is None and status == HTTPStatus.OK:
        return PermanentError(
            f"{shown}: the response is not that of Prometheus' HTTP API, but "
            f"{_kind_of(answer)}; check the address: it ends before /api/v1"
        )
    is_limit = document is not None and any(word in whole.lower() for word in _LIMITS)
    if status in _SPLITTABLE and (is_limit or status != HTTPStatus.UNPROCESSABLE_ENTITY):
        return TooLargeError(f"{shown}: the server refused a query with status {status}: {text}")
    if document is None:
        text = _kind_of(answer) if "<" in text else text
    head = f"{shown}: the server refused the query with status {status}"
    said = f"{head}: {text}" if text else head
    match status:
        case HTTPStatus.UNAUTHORIZED | HTTPStatus.FORBIDDEN if "org" in text.lower():
            return PermanentError(f"{said}; name the tenant: --header 'X-Scope-OrgID: TENANT'")
        case HTTPStatus.UNAUTHORIZED | HTTPStatus.FORBIDDEN:
            return PermanentError(
                f"{said}; give --user with a password, or --bearer-token-file, of a user who may "
                "query"
            )
        case HTTPStatus.NOT_FOUND:
            return PermanentError(
                f"{said}; check the address: it ends before /api/v1. Mimir's ends with "
                "/prometheus, that of a VictoriaMetrics cluster with /select/TENANT/prometheus"
            )
        case HTTPStatus.TOO_MANY_REQUESTS:
            return TransientError(f"{said}; try again later, or with a shorter time span")
        case HTTPStatus.BAD_REQUEST if is_limit:
            return TooLargeError(said)
        case _ if 300 <= status < 400:
            where = line(answer.headers.get("location", ""), _MOST_TEXT).partition("?")[0]
            return PermanentError(f"{shown}: the server redirects to {where}; give that address")
        case _ if status >= 500:
            return TransientError(f"{said}; check the log of that server")
        case _:
            return PermanentError(
                f"{said}; podgpu needs Prometheus 2.40 or newer, or a server "
                "with its query language"
            )


def _end_of(text: str) -> str:
    """Return a text on one line. VictoriaMetrics repeats the query before it says the cause."""
    shown = line(text, len(text) + 1)
    return shown if len(shown) <= _MOST_TEXT else f"...{shown[-_MOST_TEXT:]}"


def _kind_of(answer: Answer) -> str:
    kind = answer.headers.get("content-type", "").partition(";")[0].strip()
    return "an HTML page" if kind == "text/html" else line(kind, 40) or "another document"
