"""Certificates, keys and tokens from files, which may change while podgpu runs."""

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from config.value_types import ByteSize
from pipeline.base.clock import Clock
from pipeline.files.bounded_read import UnreadableError, read_file
from pipeline.model import NS
from pipeline.net.pem import PemError, client_context
from sinks.otlp.options import TlsOptions

_MAX_FILE_SIZE: Final = ByteSize.parse("1MiB")
_CHECK_INTERVAL_NS: Final = NS
"""How long file contents are used before the files are read again."""
_READ_TIMEOUT: Final = 5.0
"""Maximum number of seconds for reading the files."""


class CredentialsError(Exception):
    """A file can't be used. The message names the file and the fix."""


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS material of a connection. A new object means that a file has changed.

    Attributes:
        context: the context for HTTP. It is made for gRPC too, for its more precise errors.
        ca: CA certificates, PEM; None for the system's.
        cert: client certificate, PEM.
        key: private key of the certificate, PEM.
    """

    context: ssl.SSLContext
    ca: bytes | None = field(repr=False)
    cert: bytes | None = field(repr=False)
    key: bytes | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class RequestCredentials:
    """Credentials for one message.

    Attributes:
        tls: the TLS material; None without TLS.
        token: the token for the header authorization; empty without a token file.
    """

    tls: Tls | None
    token: str = field(default="", repr=False)


class Credentials:
    """Reads the files, and reads them again when they change.

    Args:
        options: paths of certificates and key; None without TLS.
        token_file: path of the token.
        clock: decides when to read the files again.
        system: CA certificates to use if the options name none; None leaves the choice to the
            library of the transport.
        names: names of the files for messages, by part; default: the names of the options.
    """

    def __init__(
        self,
        options: TlsOptions | None,
        token_file: Path | None,
        clock: Clock,
        system: Path | None = None,
        names: Mapping[str, str] | None = None,
    ) -> None:
        paths = {"token": token_file}
        if options is not None:
            paths["ca"] = options.ca_file or system
            paths |= {"cert": options.cert_file, "key": options.key_file}
        self._paths = {part: path for part, path in paths.items() if path}
        self._names = {**_NAMES, **(names or {})}
        if options is not None and options.ca_file is None:
            self._names["ca"] = "SSL_CERT_FILE"
        self._secure = options is not None
        self._clock = clock
        self._current: RequestCredentials | None = None
        self._checked_ns = 0
        self._read_future: asyncio.Future[RequestCredentials] | None = None

    @property
    def files(self) -> bool:
        """Whether podgpu authenticates with a file, so that reading it again may help."""
        return "token" in self._paths or "cert" in self._paths

    async def get(self, *, reload: bool = False) -> RequestCredentials:
        """Return the current credentials. Files are read at most once per second, or on `reload`.

        Args:
            reload: whether to read the files now.

        Raises:
            CredentialsError: a file can't be used; its earlier contents are not used either.
        """
        now_ns = self._clock.now().mono_ns
        is_due = reload or now_ns - self._checked_ns >= _CHECK_INTERVAL_NS
        if self._current is None or (is_due and self._paths):
            self._current = await self._load(self._current)
            self._checked_ns = now_ns
        return self._current

    async def _load(self, before: RequestCredentials | None) -> RequestCredentials:
        self._current = None
        if self._read_future is None:
            loop = asyncio.get_running_loop()
            self._read_future = loop.run_in_executor(None, self._read_files, before)
        # A disk that hangs blocks one thread, not one for each attempt.
        done, _ = await asyncio.wait({self._read_future}, timeout=_READ_TIMEOUT)
        if not done:
            path = next(iter(self._paths.values()), "the certificates of the system")
            raise CredentialsError(
                f"{path}: could not be read within {_READ_TIMEOUT:g} s; check the disk that it is "
                "on"
            )
        finished, self._read_future = self._read_future, None
        return finished.result()

    def _read_files(self, before: RequestCredentials | None) -> RequestCredentials:
        texts = {part: _read(path, self._names[part]) for part, path in self._paths.items()}
        token = _token(self._paths["token"], texts["token"]) if "token" in texts else ""
        if not self._secure:
            return RequestCredentials(None, token)
        previous = before.tls if before is not None else None
        ca, cert, key = texts.get("ca"), texts.get("cert"), texts.get("key")
        if previous is not None and (previous.ca, previous.cert, previous.key) == (ca, cert, key):
            return RequestCredentials(previous, token)
        try:
            context = client_context(ca, cert, key)
        except PemError as error:
            path, name = self._paths[error.part], self._names[error.part]
            raise CredentialsError(f"{path}: {error}; check {name}") from None
        return RequestCredentials(Tls(context, ca, cert, key), token)


_NAMES: Final = {
    "token": "bearer_token_file",
    "ca": "ca_file",
    "cert": "cert_file",
    "key": "key_file",
}


def _read(path: Path, name: str) -> bytes:
    try:
        return read_file(path, _MAX_FILE_SIZE, None).data or b""
    except UnreadableError as error:
        text = f"{error}; check that {name} is mounted and readable"
        raise CredentialsError(text) from None


def _token(path: Path, data: bytes) -> str:
    text = data.decode("utf-8", "replace").strip()
    if not text or not text.isascii() or not text.isprintable():
        raise CredentialsError(f"{path}: must contain only the token, on one line")
    return text


def system_certificates() -> Path | None:
    """Return the file with the CA certificates of this system. Blocking: call it in a thread.

    If there is none, the gRPC library uses its built-in list.
    """
    found = ssl.get_default_verify_paths().cafile
    return Path(found) if found else None
