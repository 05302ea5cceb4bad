"""A folder with the certificates and passwords of a client, and folders without a demo's ledger."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.podgpu.cli.topology_command import CREDENTIAL
from tests.support.web import Web, authority, certificate


@pytest.fixture(autouse=True, scope="session")
def _no_demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Set the folders in which the commands look for the ledger of `podgpu demo`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patch.setitem(os.environ, "TMPDIR", str(tmp_path_factory.mktemp("temporary")))
        yield


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Web:
    """Return a working folder with a client's files, and a web configuration file to write."""
    folder = Web(tmp_path)
    folder.trust("clients")
    folder.pair(certificate("clients", "prometheus.example.org"), "client")
    folder.pair(certificate("strangers", "prometheus.example.org"), "stranger")
    for name in ("server", "strangers"):
        authority(name).cert_pem.write_to_path(str(tmp_path / f"{name}-ca.crt"))
    (tmp_path / "password").write_text(f"{CREDENTIAL}\n")
    (tmp_path / "wrong").write_text(f"{CREDENTIAL}!\n")
    monkeypatch.chdir(tmp_path)
    return folder
