"""A real Prometheus 3 that receives OTLP."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.e2e import peers
from tests.e2e.processes import Process, free_ports
from tests.e2e.promql import QueriedPrometheus

PATH = "/api/v1/otlp/v1/metrics"
PROMOTED = ("k8s.pod.name", "k8s.namespace.name", "k8s.container.name", "k8s.node.name")


@dataclass(frozen=True, slots=True)
class Taking:
    """Options for receiving OTLP.

    Attributes:
        promoted: resource attributes that become labels of each series.
        strategy: translation of names: `UnderscoreEscapingWithSuffixes` (the default),
        `NoUTF8EscapingWithSuffixes`, `UnderscoreEscapingWithoutSuffixes` or `NoTranslation`.
        late: the window for points out of order; "0s" to refuse them.
    """

    promoted: Sequence[str] = PROMOTED
    strategy: str = "UnderscoreEscapingWithSuffixes"
    late: str = "30m"


class Prometheus3(QueriedPrometheus):
    """A Prometheus that scrapes nothing."""

    def __init__(self, folder: Path, taking: Taking) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        config = folder / "prometheus.json"
        config.write_text(json.dumps(_config(taking)))  # JSON is YAML
        (port,) = free_ports(1)
        process = Process(
            [
                peers.prometheus().server,
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--web.enable-otlp-receiver",
            ],
            folder / "prometheus.log",
        )
        super().__init__(process, port)

    @property
    def url(self) -> str:
        """The URL for OTLP."""
        return f"http://127.0.0.1:{self.port}{PATH}"


def _config(taking: Taking) -> dict[str, object]:
    return {
        "otlp": {
            "promote_resource_attributes": list(taking.promoted),
            "translation_strategy": taking.strategy,
        },
        "storage": {"tsdb": {"out_of_order_time_window": taking.late}},
    }


@contextmanager
def taking(folder: Path, how: Taking) -> Iterator[Prometheus3]:
    """Run a Prometheus 3 and stop it at the end."""
    server = Prometheus3(folder, how)
    try:
        server.wait_ready()
        yield server
    finally:
        status = server.process.stop()
        # pytest shows it if the test has failed.
        print(server.process.output()[-3000:])
    assert status == 0
