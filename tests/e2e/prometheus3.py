"""A real Prometheus 3 that OTLP is pushed to."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.e2e import peers
from tests.e2e.processes import Process, free_ports
from tests.e2e.promql import Asked

PATH = "/api/v1/otlp/v1/metrics"
PROMOTED = ("k8s.pod.name", "k8s.namespace.name", "k8s.container.name", "k8s.node.name")


@dataclass(frozen=True, slots=True)
class Taking:
    """How it takes OTLP.

    Attributes:
        promoted: attributes of resources that become labels of each series.
        strategy: what becomes of names: `UnderscoreEscapingWithSuffixes`, its own choice;
            `NoUTF8EscapingWithSuffixes`, `UnderscoreEscapingWithoutSuffixes` or `NoTranslation`.
        late: how far back it takes what comes out of order; "0s" is not at all.
    """

    promoted: Sequence[str] = PROMOTED
    strategy: str = "UnderscoreEscapingWithSuffixes"
    late: str = "30m"


class Prometheus3(Asked):
    """One that nothing but pushed data comes to."""

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
        """Where OTLP is pushed to."""
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
    """Run one and end it."""
    server = Prometheus3(folder, how)
    try:
        server.wait_ready()
        yield server
    finally:
        status = server.process.stop()
        # pytest shows it if the test has failed.
        print(server.process.output()[-3000:])
    assert status == 0
