"""Reads a web configuration and the files that it names. It blocks: call it in a thread."""

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from config.errors import ConfigError, Problem
from config.loader import parse_struct, read
from config.value_types import ByteSize
from pipeline.files.bounded_read import UnreadableError, read_file
from pipeline.http.access.any_certificate import AnyCertificateContext
from pipeline.http.access.tls_context import make_context
from pipeline.http.access.web_config_schema import RateLimit, TlsServer, WebOptions
from pipeline.net.pem import PemError

_LARGEST: Final = ByteSize.parse("1MiB")
_SECTION: Final = "tls_server_config"
_UNLIMITED: Final = RateLimit()


@dataclass(frozen=True, slots=True)
class Rules:
    """Access rules of a web configuration.

    Attributes:
        context: TLS context of new connections; None for plain HTTP. It is the same object as long
            as nothing about TLS changes.
        sans: names of which a client's certificate must have one; None if names are not limited.
        headers: additional headers of every response.
        users: bcrypt hashes by user name; empty if no password is needed.
        limit: limit for the rate of requests.
        warnings: warnings about settings that protect less than they seem to, or are ignored.
    """

    context: ssl.SSLContext | None = None
    sans: frozenset[str] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    users: Mapping[bytes, bytes] = field(default_factory=dict)
    limit: RateLimit = _UNLIMITED
    warnings: tuple[str, ...] = ()

    @property
    def identified(self) -> bool:
        """Whether every client must authenticate, by a password or a certificate."""
        return bool(self.users) or (
            self.context is not None
            and self.context.verify_mode is ssl.CERT_REQUIRED
            and not isinstance(self.context, AnyCertificateContext)
        )

    async def context_of_connection(self) -> ssl.SSLContext | None:
        """Return the TLS context for one new connection; None for plain HTTP.

        Raises:
            OSError: it cannot be made, for example because no file descriptors are left.
        """
        if not isinstance(self.context, AnyCertificateContext):
            return self.context
        try:
            return await asyncio.to_thread(self.context.fresh)
        except PemError as error:
            raise OSError(str(error)) from error


class WebConfigReader:
    """Reads a web configuration, and reads it again when `reload` is called.

    Attributes:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._data: bytes | None = None
        self._options = WebOptions()
        self._last_read: tuple[WebOptions, Mapping[str, bytes]] | None = None
        self._context: ssl.SSLContext | None = None

    def reload(self) -> Rules | None:
        """Read the files; return the rules, or None if nothing has changed since the last call.

        Raises:
            ConfigError: the configuration is invalid.
        """
        data = read(self.path)
        if data != self._data:
            self._options = parse_struct(data, WebOptions, origin=str(self.path))
            self._data = data
        options = self._options
        texts = self._texts(options.tls) if options.tls is not None else {}
        if self._last_read == (options, texts):
            return None
        last_options, last_texts = self._last_read or (WebOptions(), {})
        if (last_options.tls, last_texts) != (options.tls, texts):
            self._context = self._make_context(options.tls, texts) if options.tls else None
        self._last_read = options, texts
        return _rules(options, self._context)

    def _texts(self, tls: TlsServer) -> dict[str, bytes]:
        """Return the PEM texts, inline or from files. Paths are relative to the configuration."""
        texts: dict[str, bytes] = {}
        problems: list[Problem] = []
        for name in ("cert", "key", "client_ca"):
            file = getattr(tls, f"{name}_file")
            if not file:
                texts[name] = getattr(tls, name).encode()
                continue
            try:
                texts[name] = read_file(self.path.parent / file, _LARGEST, None).data or b""
            except (UnreadableError, ValueError) as error:
                problems.append(Problem(f"{_SECTION}.{name}_file", str(error)))
        if problems:
            raise ConfigError(str(self.path), problems)
        return texts

    def _make_context(self, tls: TlsServer, texts: Mapping[str, bytes]) -> ssl.SSLContext:
        try:
            return make_context(tls, texts)
        except PemError as error:
            file = f"{error.part}_file"
            key = file if getattr(tls, file, "") else error.part
            problem = Problem(f"{_SECTION}.{key}", str(error))
            raise ConfigError(str(self.path), [problem]) from error


def _rules(options: WebOptions, context: ssl.SSLContext | None) -> Rules:
    tls, http = options.tls, options.http_server_config
    sans = tls.client_allowed_sans if tls is not None else None
    headers = (http.headers if http is not None else None) or {}
    users = options.basic_auth_users or {}
    return Rules(
        context=context,
        sans=frozenset(sans) if sans is not None else None,
        headers={name: value for name, value in headers.items() if value},
        users={user.encode(): hashed.encode() for user, hashed in users.items()},
        limit=options.rate_limit or _UNLIMITED,
        warnings=tuple(options.warnings()),
    )


def check(path: Path) -> None:
    """Check a web configuration and the certificates that it names. It blocks.

    Raises:
        ConfigError: the configuration is invalid.
    """
    WebConfigReader(path).reload()
