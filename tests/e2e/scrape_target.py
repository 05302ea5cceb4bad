"""A podgpu as the target of a Prometheus, and queries about it."""

import math
import time
from collections.abc import Mapping

from tests.e2e.processes import wait_until
from tests.e2e.prometheus import HONOURED, INTERVAL, OVERRIDDEN, Server
from tests.e2e.promql import Series


class Scraped:
    """A podgpu's target of a Prometheus.

    In queries, `$i` is replaced by the labels that select this podgpu in the job with honor_labels,
    and `$o` by those of the other job.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self.port = server.take_target()

    def query(self, promql: str) -> list[Series]:
        address = f"127.0.0.1:{self.port}"
        honoured = f'job="{HONOURED}",instance="{address}"'
        overridden = f'job="{OVERRIDDEN}",instance="{OVERRIDDEN}-{address}"'
        return self.server.query(promql.replace("$i", honoured).replace("$o", overridden))

    def by(self, label: str, promql: str) -> dict[str, float]:
        """Return values by a label whose values must be different."""
        found: dict[str, float] = {}
        for series in self.query(promql):
            key = series.labels.get(label, "")
            assert key not in found, (promql, series.labels)
            found[key] = series.value
        return found

    def gpus(self, promql: str) -> dict[str, float]:
        return self.by("gpu", promql)

    def one(self, promql: str) -> float | None:
        """Return the only value; None if there is none."""
        found = self.query(promql)
        assert len(found) < 2, (promql, found)
        return found[0].value if found else None

    def wait(self, promql: str, expected: Mapping[str, float], label: str = "gpu") -> None:
        """Wait until a query returns exactly these values by that label."""
        last: dict[str, float] = {}

        def fits() -> bool:
            nonlocal last
            last = self.by(label, promql)
            return last == expected

        try:
            wait_until(fits, promql)
        except AssertionError as error:
            raise AssertionError(f"{error}: {expected} wanted, {last} found") from None

    def wait_scraped(self, times: int = 1, metric: str = "DCGM_FI_DEV_GPU_TEMP") -> None:
        """Wait until Prometheus has the GPUs in this many scrapes."""
        wait_until(
            lambda: (self.one(f"min(count_over_time({metric}{{$i}}[10m]))") or 0) >= times,
            f"{times} scrapes with {metric}",
            seconds=30 + times * INTERVAL,
        )

    def wait_scrapes_more(self, times: int) -> None:
        """Wait for this many further scrapes, successful or not."""
        # The window is longer than any run, so that the count always grows.
        counted = "count_over_time(up{$i}[12h])"
        before = self.one(counted) or 0
        wait_until(
            lambda: (self.one(counted) or 0) >= before + times,
            f"{times} more scrapes",
            seconds=30 + times * INTERVAL,
        )

    def times(self, selector: str, since: float) -> set[float]:
        """Return the sample times of all series of a selector since a time of Prometheus."""
        window = math.ceil(time.time() - since) + 1
        found = self.query(f"{selector}[{window}s]")
        return {at for series in found for at, _ in series.points if at >= since}
