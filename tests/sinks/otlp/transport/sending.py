"""A push under test: what it sends to, and what becomes of it."""

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
    made = pushing_options(endpoint, protocol, timeout=timeout, **options)
    async with OtlpPush(made, FakeSinkContext(clock=clock), environ or {}) as push:
        yield push


class TurnedClock:
    """Stands still until a test turns it, so that files are looked at when it says so."""

    def __init__(self) -> None:
        self.seconds = 0

    def now(self) -> Instant:
        return Instant(self.seconds * NS, self.seconds * NS)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def turn(self) -> None:
        self.seconds += 1


class Files:
    """Certificates and keys on the disk, which a test exchanges."""

    def __init__(self, folder: Path) -> None:
        self.ca = folder / "ca.pem"
        self.cert = folder / "cert.pem"
        self.key = folder / "key.pem"

    def trust(self, name: str) -> None:
        """Trust an authority."""
        self._write(self.ca, authority(name).cert_pem.bytes())

    def show(self, leaf: trustme.LeafCert) -> None:
        """Show a certificate."""
        chain, key = pem(leaf)
        self._write(self.cert, chain)
        self._write(self.key, key)

    @staticmethod
    def _write(path: Path, data: bytes) -> None:
        # As whoever exchanges certificates: never half of one.
        fresh = path.with_suffix(".new")
        fresh.write_bytes(data)
        fresh.replace(path)

    def options(self, *, client: bool = False, name: str = "") -> TlsOptions:
        return TlsOptions(
            ca_file=self.ca,
            cert_file=self.cert if client else None,
            key_file=self.key if client else None,
            server_name=name,
        )
