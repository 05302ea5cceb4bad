"""A server that speaks Prometheus' HTTP API, in this process. A test decides what it answers."""

import asyncio
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from podgpu.cli.usage.prometheus.coverage import HOUR_MS

Found = Sequence[tuple[Mapping[str, str], float]]
"""Labels and values."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: a query at a time, in milliseconds; of a range, `start_ms` and `step_ms` too."""

    promql: str
    at_ms: int
    start_ms: int | None
    step_ms: int
    headers: Mapping[str, str]

    @property
    def window_ms(self) -> int:
        """The longest window in the query."""
        sizes = {"ms": 1, "s": 1000, "m": 60_000, "h": HOUR_MS, "d": 24 * HOUR_MS}
        found = [0]
        for window in re.findall(r"\[([0-9a-z]+)(?::5m)?\]", self.promql):
            parts = re.findall(r"(\d+)(ms|[smhd])", window)
            found.append(sum(int(count) * sizes[unit] for count, unit in parts))
        return max(found)


Answer = Callable[[Asked], "Found | web.Response"]


@dataclass
class ApiServer:
    """The server.

    Attributes:
        url: its address, with a prefix.
        answer: returns the response to a request; for each time of a range.
        asked: all requests.
    """

    url: str
    answer: Answer
    asked: list[Asked] = field(default_factory=list)
    warnings: Sequence[str] = ()

    async def serve(self, request: web.Request) -> web.Response:
        form = await request.post()
        ranged = request.path.endswith("_range")
        start, end = (_ms(form[name]) for name in (("start", "end") if ranged else ("time",) * 2))
        step = _ms(form["step"]) if ranged else 0
        asked = Asked(
            str(form["query"]), end, start if ranged else None, step, dict(request.headers)
        )
        self.asked.append(asked)
        if not ranged:
            found = self.answer(asked)
            if isinstance(found, web.Response):
                return found
            vector = [
                {"metric": dict(labels), "value": [end / 1000, repr(value)]}
                for labels, value in found
            ]
            return self._success("vector", vector)
        matrix: dict[tuple[tuple[str, str], ...], list[Any]] = {}
        for at in range(start, end + 1, step):
            found = self.answer(Asked(asked.promql, at, None, 0, asked.headers))
            if isinstance(found, web.Response):
                return found
            for labels, value in found:
                matrix.setdefault(tuple(labels.items()), []).append([at / 1000, repr(value)])
        rows = [{"metric": dict(labels), "values": pairs} for labels, pairs in matrix.items()]
        return self._success("matrix", rows)

    def _success(self, kind: str, result: list[Any]) -> web.Response:
        data = {"resultType": kind, "result": result}
        document = {"status": "success", "data": data, "warnings": list(self.warnings)}
        return web.json_response(document)


def _ms(text: object) -> int:
    return round(float(str(text)) * 1000)


def failure(status: int, error: str, kind: str = "execution") -> web.Response:
    """Return a response as Prometheus' for a query that fails."""
    body = json.dumps({"status": "error", "errorType": kind, "error": error})
    return web.Response(status=status, text=body, content_type="application/json")


@contextmanager
def serving(answer: Answer) -> Iterator[ApiServer]:
    """Run the server in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def run(work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(10)

    server = ApiServer("", answer)
    app = web.Application()
    app.router.add_post("/prometheus/api/v1/{page}", server.serve)
    runner = web.AppRunner(app)

    async def start() -> int:
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return int(runner.addresses[0][1])

    try:
        server.url = f"http://127.0.0.1:{run(start())}/prometheus"
        yield server
    finally:
        run(runner.cleanup())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
