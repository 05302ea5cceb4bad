"""An `OtlpPush` for tests, with a clock and certificate files that a test controls."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trustme

from config.value_types import Duration
from pipeline.base.clock import Clock
from pipeline.model import NS, Instant
from sinks.otlp.options import Options, TlsOptions
from sinks.otlp.push import OtlpPush
from tests.support.sinks import FakeSinkContext
from tests.support.web import authority, pem


def pushing_options(
    endpoint: str = "http://127.0.0.1:4317",
    protocol: str = "grpc",
    *,
    timeout: str = "5s",
    **options: Any,
) -> Options:
    return Options(
        endpoint=endpoint,
        protocol=protocol,  # type: ignore[arg-type]
        timeout=Duration.parse(timeout),
        **options,
    )


@asynccontextmanager
async def pushing(
    endpoint: str,
    protocol: str = "grpc",
    *,
    timeout: str = "5s",
    environ: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    **options: Any,
) -> AsyncIterator[OtlpPush]:
    options_ = pushing_options(endpoint, protocol, timeout=timeout, **options)
    async with OtlpPush(options_, FakeSinkContext(clock=clock), environ or {}) as push:
        yield push


class ManualClock:
    """A clock that a test advances, so that files are checked at known times."""

    def __init__(self) -> None:
        self.seconds = 0

    def now(self) -> Instant:
        return Instant(self.seconds * NS, self.seconds * NS)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def advance(self) -> None:
        self.seconds += 1


class CertificateFiles:
    """Certificate and key files that a test replaces."""

    def __init__(self, folder: Path) -> None:
        self.ca = folder / "ca.pem"
        self.cert = folder / "cert.pem"
        self.key = folder / "key.pem"

    def trust(self, name: str) -> None:
        """Write the certificate of an authority to `ca`."""
        self._write(self.ca, authority(name).cert_pem.bytes())

    def write_certificate(self, leaf: trustme.LeafCert) -> None:
        """Write a client certificate and its key."""
        chain, key = pem(leaf)
        self._write(self.cert, chain)
        self._write(self.key, key)

    @staticmethod
    def _write(path: Path, data: bytes) -> None:
        # Atomically, as tools that rotate certificates do it.
        new_file = path.with_suffix(".new")
        new_file.write_bytes(data)
        new_file.replace(path)

    def options(self, *, client: bool = False, name: str = "") -> TlsOptions:
        return TlsOptions(
            ca_file=self.ca,
            cert_file=self.cert if client else None,
            key_file=self.key if client else None,
            server_name=name,
        )
