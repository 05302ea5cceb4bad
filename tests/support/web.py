"""Listeners with a web configuration file, and clients with and without certificates."""

import base64
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Self

import bcrypt
import pytest
import trustme

from pipeline.http.access import AccessChecker, open_access
from pipeline.http.listener_registry import ListenerRegistry
from tests.support.http import LOCAL, Client, Clients, listeners, says

LOG = logging.getLogger("podgpu.http")


@cache
def authority(name: str) -> trustme.CA:
    """Return the certificate authority of that name, created for this run of the tests."""
    return trustme.CA(organization_name=name)


@cache
def certificate(ca: str, *names: str, serial: int = 0) -> trustme.LeafCert:
    return authority(ca).issue_cert(*names, common_name=f"{names[0]} {serial}")


@cache
def hashed(password: str, cost: int = 4) -> str:
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(cost)).decode()


def pem(leaf: trustme.LeafCert) -> tuple[bytes, bytes]:
    """Return the certificate chain and the key in PEM format."""
    return b"".join(blob.bytes() for blob in leaf.cert_chain_pems), leaf.private_key_pem.bytes()


def client_context(ca: str = "server", leaf: trustme.LeafCert | None = None) -> ssl.SSLContext:
    """Return a client's context that trusts an authority, with a certificate if one is given."""
    context = ssl.create_default_context()
    authority(ca).configure_trust(context)
    if leaf is not None:
        leaf.configure_cert(context)
    return context


def basic(user: str, password: str) -> str:
    return "Authorization: Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


class Web:
    """A folder with a web configuration file, and the listeners that use it."""

    def __init__(self, folder: Path, **limits: float) -> None:
        self.folder = folder
        self.path = folder / "web.yml"
        self.listeners: ListenerRegistry = listeners(**limits)
        self.clients = Clients()
        self.port = 0

    def pair(self, leaf: trustme.LeafCert, name: str = "tls") -> None:
        """Write a certificate and its key."""
        chain, key = pem(leaf)
        (self.folder / f"{name}.crt").write_bytes(chain)
        (self.folder / f"{name}.key").write_bytes(key)

    def secure(self, *more: str) -> None:
        """Write a configuration with a certificate of the authority `server`, and more TLS keys."""
        if not (self.folder / "tls.crt").exists():
            self.pair(certificate("server", "127.0.0.1"))
        lines = ("cert_file: tls.crt", "key_file: tls.key", *more)
        self.write("tls_server_config:", *(f"  {line}" for line in lines))

    def trust(self, ca: str) -> None:
        """Write the authority that has to sign clients' certificates."""
        authority(ca).cert_pem.write_to_path(str(self.folder / "ca.crt"))

    def write(self, *lines: str) -> None:
        self.path.write_text("\n".join(lines) + "\n")

    @property
    def access(self) -> AccessChecker:
        assert self.listeners.access is not None
        return self.listeners.access

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Self]:
        self.listeners.access = await open_access(self.path, LOG)
        async with self.listeners.listen(LOCAL) as mounts:
            mounts.mount("/metrics", says("page"), title="M")
            self.port = mounts.port
            async with self.clients:
                yield self
        self.access.close()

    async def connect(self, context: ssl.SSLContext | None = None) -> Client:
        return await self.clients.connect(self.port, context)

    async def scrape(self, context: ssl.SSLContext | None = None, *lines: str) -> tuple[int, str]:
        """Scrape over a new connection."""
        return await (await self.connect(context)).get("/metrics", *lines)


def always_check_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check the files at every connection and request."""
    monkeypatch.setattr("pipeline.http.access.access_checker._INTERVAL", 0.0)
