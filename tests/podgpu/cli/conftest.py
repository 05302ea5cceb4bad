"""A folder with what a client of a guarded daemon needs."""

from pathlib import Path

import pytest

from tests.podgpu.cli.asked import KEPT
from tests.support.web import Web, authority, certificate


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Web:
    """A folder to work in, with what a client needs, and a web config to write."""
    made = Web(tmp_path)
    made.trust("clients")
    made.pair(certificate("clients", "prometheus.example.org"), "client")
    made.pair(certificate("strangers", "prometheus.example.org"), "stranger")
    for name in ("server", "strangers"):
        authority(name).cert_pem.write_to_path(str(tmp_path / f"{name}-ca.crt"))
    (tmp_path / "password").write_text(f"{KEPT}\n")
    (tmp_path / "wrong").write_text(f"{KEPT}!\n")
    monkeypatch.chdir(tmp_path)
    return made
