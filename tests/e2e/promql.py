"""Queries to a Prometheus, and their results."""

import json
import re
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.e2e.processes import Process, get


@dataclass(frozen=True, slots=True)
class Series:
    """One element of a result; `labels` are without the metric's name."""

    name: str
    labels: Mapping[str, str]
    points: Sequence[tuple[float, float]]
    """Times and values; only one in the result of an instant query."""

    @property
    def value(self) -> float:
        return self.points[-1][1]


class QueriedPrometheus:
    """A running Prometheus of any release."""

    def __init__(self, process: Process, port: int) -> None:
        self.process = process
        self.port = port

    def wait_ready(self) -> None:
        """Wait until it has loaded its data; before, it responds with 503."""
        self.process.wait_for_answer(self.port, "/-/ready")

    def api(self, path: str, **parameters: str) -> Any:
        question = urllib.parse.urlencode(parameters)
        answer = get(self.port, f"/api/v1/{path}?{question}")
        assert answer.status == 200, answer.body.decode()
        return json.loads(answer.body)["data"]

    def query(self, promql: str, at: float | None = None) -> list[Series]:
        """Return the result of an instant query, for now or a Unix time."""
        when = {} if at is None else {"time": f"{at:.3f}"}
        return _series(self.api("query", query=promql, **when))

    def range(self, promql: str, start: float, end: float, step: float = 1.0) -> list[Series]:
        """Return the result of a range query between two Unix times."""
        times = {"start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:g}"}
        return _series(self.api("query_range", query=promql, **times))

    def problems(self) -> list[str]:
        """Return its logged warnings and errors, such as dropped samples."""
        lines = self.process.output().splitlines()
        return [line for line in lines if re.search(r"\blevel=(warn|error)\b", line, re.IGNORECASE)]


def _series(data: Any) -> list[Series]:
    found = []
    result = data["result"]
    if data["resultType"] == "scalar":
        result = [{"metric": {}, "value": result}]
    for element in result:
        labels = dict(element["metric"])
        points = element["values"] if "values" in element else [element["value"]]
        name = labels.pop("__name__", "")
        found.append(Series(name, labels, [(float(t), float(v)) for t, v in points]))
    return found
