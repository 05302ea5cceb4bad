"""Reads the usage in a span of time from a server with Prometheus' HTTP API."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pipeline.base.errors import TransientError
from podgpu.cli.usage.prometheus.coverage import (
    DAY_MS,
    HOUR_MS,
    Chunk,
    Coverage,
    Level,
    divided,
)
from podgpu.cli.usage.prometheus.http_api import PrometheusApi, Sample, TooLargeError
from podgpu.cli.usage.prometheus.recorded_series import (
    ACCOUNTED,
    LATE_MS,
    STEP_SECONDS,
    STEPS,
)
from podgpu.cli.usage.prometheus.usage_queries import (
    COUNTED,
    DAYS_RECORDED,
    DEVICE_SERIES,
    HOURS_RECORDED,
    LAST_EVALUATION,
    RECORDED_DEVICE_SERIES,
    STEPS_RECORDED,
    CoverageQuery,
    LabelNames,
    Query,
    UsageQueries,
)
from podgpu.cli.usage.prometheus.usage_rows import UsageSums

MOST_ROWS: Final = 500_000
"""Maximum number of pods or namespaces on devices in a report."""

_MOST_POINTS: Final = 10_000
"""Points of a range query; Prometheus accepts 11,000."""

_MOST_MODEL_QUERIES: Final = 40


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a report needs.

    Attributes:
        cluster: the label that names the cluster of a node.
        of_containers: whether the report is about pods, workloads or labels of pods.
        label: the key of a pod's label, and the names it can have in the server; None without one.
    """

    cluster: str
    of_containers: bool
    label: tuple[str, Sequence[str]] | None = None


class UsageReader:
    """Reads usage from a server.

    Args:
        api: the client.
        wanted: what is read.
        now_ms: the present time, in milliseconds of Unix time.

    Attributes:
        hours: number of hours that were read, by what they were read from.
        missed: number of evaluations of the rules that are missing in these hours.
        without_rules: clusters with podgpu's counters but without records, while others have some.
    """

    def __init__(self, api: PrometheusApi, wanted: Wanted, now_ms: int) -> None:
        self._api = api
        self._wanted = wanted
        self._now_ms = now_ms
        self._names = LabelNames({})
        self._queries = UsageQueries(now_ms, wanted.cluster, wanted.of_containers)
        self.hours: Counter[Level] = Counter()
        self.missed = 0
        self.without_rules: list[str] = []

    async def prepare(self, end_ms: int) -> None:
        """Find out the names of labels, and when the rules are evaluated.

        Args:
            end_ms: end of the span of the report.

        Raises:
            TransientError: the server does not respond.
            PermanentError: the server refuses the request.
        """
        at_ms = min(end_ms, self._now_ms)
        for query in (DEVICE_SERIES, RECORDED_DEVICE_SERIES):
            if found := await self._instant(Query(query, at_ms)):
                self._names = LabelNames.of(found[0].labels)
                break
        evaluated = await self._instant(Query(LAST_EVALUATION, at_ms))
        if evaluated:
            # The counters of an hour next to records are read up to the time that the record has.
            # Without records, hours are read to their ends.
            phase_ms = round(evaluated[0].value * 1000) % (STEP_SECONDS * 1000)
            self._queries = replace(self._queries, late_ms=LATE_MS - phase_ms)
            self.without_rules = await self._clusters_without_rules(at_ms)

    async def _clusters_without_rules(self, at_ms: int) -> list[str]:
        found = []
        for metric in (ACCOUNTED, STEPS):
            samples = await self._instant(self._queries.clusters(metric, at_ms))
            found.append({one.labels.get(self._wanted.cluster, "") for one in samples})
        counted, recorded = found
        # Records without the label are of all clusters: the rules are evaluated in one place.
        return [] if not recorded or "" in recorded else sorted(counted - recorded)

    async def read(self, start_ms: int, end_ms: int) -> UsageSums:
        """Return the usage in a span of whole hours.

        Raises:
            TransientError: the server does not respond, or the span is too long for it.
            PermanentError: the server refuses the request.
        """
        coverage = await self._coverage(start_ms, end_ms)
        chunks = divided(
            start_ms,
            end_ms,
            self._now_ms,
            coverage,
            of_containers=self._wanted.of_containers,
        )
        self.missed += coverage.missed(chunks, self._now_ms)
        sums = UsageSums()
        for chunk in chunks:
            self.hours[chunk.level] += chunk.length_ms // HOUR_MS
            if chunk.level is not Level.NOTHING:
                await self._read_chunk(chunk, sums)
        await self._read_models(start_ms, end_ms, sums)
        return sums

    async def _coverage(self, start_ms: int, end_ms: int) -> Coverage:
        days: dict[int, float] = {}
        hours: dict[int, float] = {}
        first_day = -(-start_ms // DAY_MS) * DAY_MS
        if not (self._wanted.of_containers or self.without_rules):
            days = await self._counts(DAYS_RECORDED, first_day, end_ms // DAY_MS * DAY_MS)
            hours = await self._counts(HOURS_RECORDED, start_ms, end_ms)
        complete = Coverage(days, hours, {}, ())
        pieces = divided(
            start_ms, end_ms, self._now_ms, complete, of_containers=self._wanted.of_containers
        )
        steps: dict[int, float] = {}
        for piece in _of(pieces, Level.NOTHING):
            steps |= await self._counts(STEPS_RECORDED, piece.start_ms, piece.end_ms)
        if self.without_rules:
            # Records are used only where there are no counters any more.
            steps = {hour: min(count, 0.5) for hour, count in steps.items()}
        recorded = replace(complete, steps=steps, counted=range(start_ms, end_ms, HOUR_MS))
        pieces = divided(
            start_ms, end_ms, self._now_ms, recorded, of_containers=self._wanted.of_containers
        )
        counted: set[int] = set()
        for piece in _of(pieces, Level.COUNTERS):
            counted |= set(await self._counts(COUNTED, piece.start_ms, piece.end_ms))
        return replace(recorded, counted=counted)

    async def _counts(self, query: CoverageQuery, start_ms: int, end_ms: int) -> dict[int, float]:
        """Return the values of a query by the start of their period."""
        found: dict[int, float] = {}
        period = query.period_ms
        for at in range(start_ms, end_ms, period * _MOST_POINTS):
            until = min(at + period * _MOST_POINTS, end_ms)
            first = at + period + query.after_ms
            last = min(until + query.after_ms, self._now_ms)
            if first <= last:
                samples = await self._range(query.promql, first, last, period)
                found |= {one.at_ms - query.after_ms - period: one.value for one in samples}
            hour = (last - query.after_ms) // HOUR_MS * HOUR_MS
            begun_ms = last - query.after_ms - hour
            if query.of_unfinished and at <= hour < until and begun_ms > 0:
                promql = query.unfinished(begun_ms)
                for one in await self._instant(Query(promql, last)):
                    found[hour] = one.value
        return found

    async def _read_chunk(self, chunk: Chunk, sums: UsageSums) -> None:
        """Add the usage in a time; divide the time if it is too long for the server."""
        try:
            held = {
                name: await self._instant(query)
                for name, query in self._queries.of_containers_in(chunk).items()
            }
            devices = {
                name: await self._instant(query)
                for name, query in self._queries.of_devices_in(chunk).items()
            }
            pods, label = await self._pods(chunk)
            owners = await self._owners(chunk)
        except TooLargeError as error:
            halves = chunk.halves()
            if halves is None:
                raise TransientError(
                    f"{error}, although it was about {chunk.length_ms // HOUR_MS} h only; load "
                    "podgpu's recording rules, or raise the limits of the server (of Prometheus: "
                    "--query.max-samples and --query.timeout) and --query-timeout"
                ) from None
            for half in halves:
                await self._read_chunk(half, sums)
            return
        cluster = self._wanted.cluster
        for name, samples in held.items():
            for one in samples:
                sums.add_held(name, self._names.known(one.labels), one.value, cluster)
        for name, samples in devices.items():
            for one in samples:
                sums.add_device(name, self._names.known(one.labels), one.value, cluster)
        for one in pods:
            sums.add_pod(one.labels, label)
        for one in owners:
            sums.add_owner(self._names.known(one.labels))
        if sums.row_count > MOST_ROWS:
            raise TransientError(
                f"the report would have more than {MOST_ROWS} rows of containers on devices; give "
                "a shorter time span, or another --by"
            )

    async def _pods(self, chunk: Chunk) -> tuple[list[Sample], tuple[str, str] | None]:
        if not self._wanted.of_containers:
            return [], None
        if self._wanted.label is None:
            return await self._instant(self._queries.pods(chunk, "")), None
        key, names = self._wanted.label
        found: list[Sample] = []
        for name in names:
            found = await self._instant(self._queries.pods(chunk, name))
            if any(name in one.labels for one in found):
                return found, (key, name)
        return found, None

    async def _owners(self, chunk: Chunk) -> list[Sample]:
        if not self._wanted.of_containers:
            return []
        return await self._instant(self._queries.owners(chunk))

    async def _read_models(self, start_ms: int, end_ms: int, sums: UsageSums) -> None:
        """Read the models at the end of the span, and earlier ones of devices that have gone."""
        step = max(DAY_MS, (end_ms - start_ms) // _MOST_MODEL_QUERIES)
        first_day = range(end_ms, max(end_ms - DAY_MS, start_ms), -HOUR_MS)
        for at in (*first_day, *range(end_ms - DAY_MS, start_ms, -step)):
            if not sums.without_model:
                return
            for one in await self._instant(self._queries.models(at)):
                sums.add_model(self._names.known(one.labels))

    async def _instant(self, query: Query) -> list[Sample]:
        return await self._api.instant(self._names.renamed(query.promql), query.at_ms)

    async def _range(self, promql: str, start_ms: int, end_ms: int, step_ms: int) -> list[Sample]:
        try:
            return await self._api.range(self._names.renamed(promql), start_ms, end_ms, step_ms)
        except TooLargeError as error:
            count = (end_ms - start_ms) // step_ms
            if not count:
                raise TransientError(f"{error}; give a longer --query-timeout") from None
            middle = start_ms + count // 2 * step_ms
            first = await self._range(promql, start_ms, middle, step_ms)
            return first + await self._range(promql, middle + step_ms, end_ms, step_ms)


def _of(chunks: Iterable[Chunk], level: Level) -> list[Chunk]:
    return [chunk for chunk in chunks if chunk.level is level]
