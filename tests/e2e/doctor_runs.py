"""Run `podgpu doctor` on the real node, and read its findings."""

import base64
import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import yaml
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, utils

from tests.e2e.kube import access
from tests.e2e.kube.cluster import Cluster
from tests.e2e.node import PODGPU
from tests.e2e.processes import wait_until

LIST = "monitoring:counters"
"""The ConfigMap with the counters list."""

_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding of the `--json` output."""

    check: str
    verdict: str
    saw: str
    repair: str
    component: str

    def __str__(self) -> str:
        return f"{self.verdict} {self.check} ({self.component}): {self.saw} / {self.repair}"


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    findings: tuple[Finding, ...]

    def bad(self, *besides: str) -> list[Finding]:
        """Return warnings and failures, except those of the given checks."""
        return [
            each
            for each in self.findings
            if each.verdict in {"warning", "failure"} and each.check not in besides
        ]


def ask(*words: str | Path) -> Answer:
    """Run `podgpu doctor --json` and parse its output."""
    done = subprocess.run(
        [PODGPU, "doctor", *words, "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=_SECONDS,
    )
    assert done.returncode in {0, 1, 2}, done.stderr
    assert not done.stderr, done.stderr
    printed = json.loads(done.stdout)
    return Answer(
        done.returncode,
        tuple(
            Finding(
                *(found.get(key, "") for key in ("check", "verdict", "saw", "mend", "component"))
            )
            for found in printed["findings"]
        ),
    )


class DoctorPodgpu:
    """The configuration of a podgpu that uses everything on the real node except GPUs.

    Args:
        kube: the cluster.
        folder: existing folder for its files.
        kubeconfig: its credentials.
    """

    def __init__(self, kube: Cluster, folder: Path, kubeconfig: Path, port: int) -> None:
        self.file = folder / "podgpu.yaml"
        self.port = port
        here = {"kubeconfig": str(kubeconfig)}
        self.config: dict[str, Any] = {
            "node": kube.node,
            "sources": {
                "kubelet": {
                    "kind": "podresources",
                    "sockets": [str(kube.pod_resources_socket)],
                    "timeout": "2s",
                },
                "checkpoint": {"kind": "checkpoint", "path": str(kube.checkpoint)},
                "pods": {"kind": "pods", **here},
                "runtime": {"kind": "nri", "socket": str(kube.nri_socket)},
            },
            "sinks": {
                "metrics": {"kind": "prometheus", "listen": f"127.0.0.1:{port}"},
                "topology": {"kind": "node", **here},
                "marks": {"kind": "pods", **here},
            },
            "counters": {"configmap": LIST, **here},
        }

    def values(self) -> dict[str, Any]:
        """Return the chart's values for the same configuration, with the pod's service account."""
        plain = json.loads(json.dumps(self.config))
        for component in (*plain["sources"].values(), *plain["sinks"].values(), plain["counters"]):
            component.pop("kubeconfig", None)
        return {"config": plain}

    def diagnose(self, changes: Mapping[str, Any] | None = None) -> Answer:
        """Run the doctor on this configuration, with changed top-level keys."""
        self.file.write_text(yaml.safe_dump({**self.config, **(changes or {})}, sort_keys=False))
        return ask("-c", self.file)


def expired(token: str, key: Path) -> str:
    """Return a service account token as an expired one, with a valid signature.

    Args:
        token: a token of a service account.
        key: the signing key of the API server.
    """
    head, body, _ = token.split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    for name in ("iat", "nbf", "exp"):
        claims[name] -= 7200
    signed = f"{head}.{_encoded(json.dumps(claims).encode())}"
    private = serialization.load_pem_private_key(key.read_bytes(), password=None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    found = utils.decode_dss_signature(private.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
    return f"{signed}.{_encoded(b''.join(number.to_bytes(32, 'big') for number in found))}"


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


@contextmanager
def other_exporter(port: int) -> Iterator[None]:
    """Serve a metrics page of dcgm-exporter on a port."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b"# HELP DCGM_FI_DEV_GPU_TEMP\nDCGM_FI_DEV_GPU_TEMP 30\n"
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", port), Page) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def wait_rights(
    kube: Cluster, name: str, rights: Mapping[tuple[str, str, str], bool], *, listed: bool
) -> None:
    """Wait until the API server applies the permissions of a service account.

    Args:
        kube: the cluster.
        name: name of the service account.
        rights: whether it is allowed, by verb, group and resource.
        listed: whether it may read the counters list.
    """
    api = kube.api.as_user(access.token(kube.api, name, seconds=access.SHORTEST))
    namespace, _, one = LIST.partition(":")
    reading = {"verb": "get", "resource": "configmaps", "namespace": namespace, "name": one}
    asked: list[tuple[dict[str, str], bool]] = [
        ({"verb": verb, "group": group, "resource": resource}, may)
        for (verb, group, resource), may in rights.items()
    ]
    asked.append((reading, listed))

    def followed() -> bool:
        return all(_may(api, attributes) is may for attributes, may in asked)

    wait_until(followed, "the permissions are in force")


def _may(api: Any, attributes: Mapping[str, str]) -> bool:
    answer = api.request(
        "POST",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": dict(attributes)},
        },
    )
    return bool(answer["status"]["allowed"])
