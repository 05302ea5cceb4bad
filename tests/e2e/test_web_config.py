"""A real Prometheus scrapes podgpu with mutual TLS and a password."""

import base64
import json
import ssl
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bcrypt
import pytest
import trustme
import yaml

from tests.e2e import debian
from tests.e2e.node import PODGPU
from tests.e2e.processes import Process, free_ports, wait_until
from tests.e2e.promql import QueriedPrometheus
from tests.fakes.nvml import FakeNvml, h100s

USER, SECRET = "prometheus", "correct horse"


class Stage:
    """A podgpu with a web configuration, and a Prometheus with a job for each kind of client."""

    def __init__(self, programs: debian.Prometheus, folder: Path) -> None:
        self.folder = folder
        self.port, asked_port = free_ports(2)
        self.server, self.clients = trustme.CA(), trustme.CA()
        self.server.cert_pem.write_to_path(str(folder / "server-ca.crt"))
        self.clients.cert_pem.write_to_path(str(folder / "ca.crt"))
        self.pair("tls", self.server)
        self.pair("friend", self.clients)
        self.pair("stranger", trustme.CA())
        hashed = bcrypt.hashpw(SECRET.encode(), bcrypt.gensalt(10)).decode()
        web = {
            "tls_server_config": {
                "cert_file": "tls.crt",
                "key_file": "tls.key",
                "client_auth_type": "RequireAndVerifyClientCert",
                "client_ca_file": "ca.crt",
                "client_allowed_sans": ["127.0.0.1"],
                "min_version": "TLS13",
            },
            "basic_auth_users": {USER: hashed},
        }
        (folder / "web.yml").write_text(yaml.safe_dump(web))
        config = {
            "http": {"web_config": str(folder / "web.yml")},
            "sources": {"gpus": {"kind": "nvml", "interval": "500ms"}},
            "sinks": {"metrics": {"kind": "prometheus", "listen": f"127.0.0.1:{self.port}"}},
        }
        (folder / "podgpu.yaml").write_text(yaml.safe_dump(config))
        fake = FakeNvml(h100s(2), folder)
        self.podgpu = Process(
            [PODGPU, "run", "-c", folder / "podgpu.yaml"], folder / "podgpu.log", fake.env()
        )
        wait_until(lambda: self.answers("/readyz"), f"podgpu:\n{self.podgpu.output()[-2000:]}")
        (folder / "prometheus.json").write_text(json.dumps(self.scrapes()))
        self.prometheus = Process(
            [
                programs.server,
                f"--config.file={folder / 'prometheus.json'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{asked_port}",
            ],
            folder / "prometheus.log",
        )
        self.asked = QueriedPrometheus(self.prometheus, asked_port)
        self.asked.wait_ready()

    def pair(self, name: str, ca: trustme.CA) -> None:
        """Write a certificate and its key, each atomically, one after the other."""
        leaf = ca.issue_cert("127.0.0.1")
        for suffix, blob in (("crt", leaf.cert_chain_pems[0]), ("key", leaf.private_key_pem)):
            new = self.folder / f"{name}.new"
            blob.write_to_path(str(new))
            new.replace(self.folder / f"{name}.{suffix}")

    def scrapes(self) -> dict[str, Any]:
        def job(name: str, certificate: str, password: str) -> dict[str, Any]:
            return {
                "job_name": name,
                "scheme": "https",
                "tls_config": {
                    "ca_file": str(self.folder / "server-ca.crt"),
                    "cert_file": str(self.folder / f"{certificate}.crt"),
                    "key_file": str(self.folder / f"{certificate}.key"),
                },
                "basic_auth": {"username": USER, "password": password},
                "static_configs": [{"targets": [f"127.0.0.1:{self.port}"]}],
            }

        jobs = [
            job("good", "friend", SECRET),
            job("wrong-password", "friend", "guess"),
            job("wrong-certificate", "stranger", SECRET),
        ]
        return {"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": jobs}

    def answers(self, path: str) -> bool:
        context = ssl.create_default_context(cafile=str(self.folder / "server-ca.crt"))
        context.load_cert_chain(self.folder / "friend.crt", self.folder / "friend.key")
        token = base64.b64encode(f"{USER}:{SECRET}".encode()).decode()
        request = urllib.request.Request(
            f"https://127.0.0.1:{self.port}{path}", headers={"Authorization": f"Basic {token}"}
        )
        try:
            with urllib.request.urlopen(request, context=context, timeout=5) as answer:  # noqa: S310
                return bool(answer.status == 200)
        except OSError:
            return False

    def query(self, promql: str) -> dict[str, float]:
        """Return values by job."""
        return {series.labels["job"]: series.value for series in self.asked.query(promql)}

    def scraped(self) -> float:
        return self.query('count_over_time(up{job="good"}[5m])')["good"]


@pytest.fixture
def stage(programs: debian.Prometheus, tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(programs, tmp_path)
    try:
        yield stage
    finally:
        statuses = [stage.prometheus.stop(), stage.podgpu.stop()]
    assert statuses == [0, 0]


def test_only_clients_with_certificate_and_password_are_served(stage: Stage) -> None:
    wait_until(lambda: stage.query("count_over_time(up[1m]) >= 5").keys() >= {"good"}, "scrapes")
    wait_until(lambda: len(stage.query("up")) == 3, "a result of every job")
    assert stage.query("up") == {"good": 1, "wrong-password": 0, "wrong-certificate": 0}
    assert stage.query("count by (job) (DCGM_FI_DEV_GPU_TEMP)") == {"good": 2}
    assert SECRET not in stage.podgpu.output()
    assert "guess" not in stage.podgpu.output()


def test_a_renewed_certificate_causes_no_failed_scrape(stage: Stage) -> None:
    wait_until(lambda: stage.query("up == 1").keys() == {"good"}, "a scrape")
    for _ in range(3):
        stage.pair("tls", stage.server)
        wanted = stage.scraped() + 3
        wait_until(lambda wanted=wanted: stage.scraped() >= wanted, "more scrapes")  # type: ignore[misc]
    assert stage.query('min_over_time(up{job="good"}[5m])') == {"good": 1}
    output = stage.podgpu.output()
    assert "the new configuration is in force" in output
