"""What podgpu shows and checks certificates with: files that are exchanged while it runs."""

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from config.value_types import ByteSize
from pipeline.base.clock import Clock
from pipeline.files.bounded_read import Stamp, UnreadableError, read_file
from pipeline.model import NS
from pipeline.net.pem import Part, PemError, client_context
from sinks.otlp.options import TlsOptions

_MOST: Final = ByteSize.parse("1MiB")
_FRESH_NS: Final = NS
"""How long what was read stands before the files are looked at again."""
_READ_TIMEOUT: Final = 5.0
"""Seconds that reading them may take."""


class CredentialsError(Exception):
    """A file can't be used; the text names it and the mend."""


@dataclass(frozen=True, slots=True)
class Tls:
    """What a connection is made with. Another object means that a file has changed.

    Attributes:
        context: for HTTP; it is made for gRPC too, which tells less of what is wrong.
        ca: certificates to check with, PEM; None for the system's.
        cert: our own certificate, PEM.
        key: its key, PEM.
    """

    context: ssl.SSLContext
    ca: bytes | None = field(repr=False)
    cert: bytes | None = field(repr=False)
    key: bytes | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class RequestCredentials:
    """What a message is sent with.

    Attributes:
        tls: None where there is no TLS.
        token: for the header authorization; empty without a file.
    """

    tls: Tls | None
    token: str = field(default="", repr=False)


class Credentials:
    """Reads the files, again and again.

    Args:
        options: where certificates and key are; None without TLS.
        token_file: where the token is.
        clock: tells when to look again.
        system: certificates to check with where the options name none; None leaves that to who
            makes the connection.
        names: what the files are called in messages, by their part; else as the options call them.
    """

    def __init__(
        self,
        options: TlsOptions | None,
        token_file: Path | None,
        clock: Clock,
        system: Path | None = None,
        names: Mapping[Part, str] | None = None,
    ) -> None:
        self._paths: dict[Part, Path] = {}
        if options is not None:
            ca = options.ca_file or system
            named = {"ca": ca, "cert": options.cert_file, "key": options.key_file}
            self._paths = {part: path for part, path in named.items() if path}  # type: ignore[misc]
        self._names = {**_NAMES, **(names or {})}
        if options is not None and options.ca_file is None:
            self._names["ca"] = "SSL_CERT_FILE"
        self._token_file = token_file
        self._secure = options is not None
        self._clock = clock
        self._read: dict[Path, tuple[Stamp, bytes]] = {}
        self._current: RequestCredentials | None = None
        self._read_ns = 0
        self._reading: asyncio.Future[RequestCredentials] | None = None

    @property
    def files(self) -> bool:
        """Whether there is a file that shows who we are, so that reading it anew may help."""
        return self._token_file is not None or "cert" in self._paths

    async def get(self, *, reload: bool = False) -> RequestCredentials:
        """Return what holds now. Files are looked at once a second at most.

        Args:
            reload: what was read before is not accepted: look now.

        Raises:
            CredentialsError: a file can't be used; what it held before isn't used any more either.
        """
        now_ns = self._clock.now().mono_ns
        if self._current is None or reload or now_ns - self._read_ns >= _FRESH_NS:
            if not self._paths and self._token_file is None and self._current is not None:
                return self._current
            if reload:
                # Two writes within a tick of the filesystem's clock bear one stamp.
                self._read.clear()
            self._current = await self._found(self._current)
            self._read_ns = now_ns
        return self._current

    async def _found(self, before: RequestCredentials | None) -> RequestCredentials:
        self._current = None
        if self._reading is None:
            loop = asyncio.get_running_loop()
            self._reading = loop.run_in_executor(None, self._read_files, before)
        # A disk that hangs costs one thread, not one each time.
        done, _ = await asyncio.wait({self._reading}, timeout=_READ_TIMEOUT)
        if not done:
            raise CredentialsError(
                f"{self._place()}: can't be read within {_READ_TIMEOUT:g} s; see the disk that it "
                "is on"
            )
        looking, self._reading = self._reading, None
        return looking.result()

    def _place(self) -> Path:
        return self._token_file or next(iter(self._paths.values()))

    def _read_files(self, before: RequestCredentials | None) -> RequestCredentials:
        texts = {part: self._file(path, self._names[part]) for part, path in self._paths.items()}
        token = ""
        if self._token_file is not None:
            token = _token(self._token_file, self._file(self._token_file, "bearer_token_file"))
        if not self._secure:
            return RequestCredentials(None, token)
        was = before.tls if before is not None else None
        ca, cert, key = texts.get("ca"), texts.get("cert"), texts.get("key")
        if was is not None and (was.ca, was.cert, was.key) == (ca, cert, key):
            return RequestCredentials(was, token)
        try:
            context = client_context(ca, cert, key)
        except PemError as error:
            path, name = self._paths[error.part], self._names[error.part]
            raise CredentialsError(f"{path}: {error}; see {name}") from None
        return RequestCredentials(Tls(context, ca, cert, key), token)

    def _file(self, path: Path, name: str) -> bytes:
        stamp, data = self._read.get(path, (None, b""))
        try:
            content = read_file(path, _MOST, stamp)
        except UnreadableError as error:
            self._read.pop(path, None)
            raise CredentialsError(f"{error}; see that {name} is mounted and readable") from None
        if content.data is None:
            return data
        self._read[path] = (content.stamp, content.data)
        return content.data


_NAMES: Final[dict[Part, str]] = {"ca": "ca_file", "cert": "cert_file", "key": "key_file"}


def _token(path: Path, data: bytes) -> str:
    text = data.decode("utf-8", "replace").strip()
    if not text or not text.isascii() or not text.isprintable():
        raise CredentialsError(f"{path}: has to be one line with the token alone")
    return text


def system_certificates() -> Path | None:
    """Return the file with the certificates that this machine trusts. Blocking: in a thread.

    The gRPC library has a list of its own, which is used where there is no such file.
    """
    found = ssl.get_default_verify_paths().cafile
    return Path(found) if found else None
