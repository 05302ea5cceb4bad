"""Reads a web config and the files that it names. Blocking: it runs in a thread."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from config.errors import ConfigError, Problem
from config.loader import parse_struct, read
from config.value_types import ByteSize
from pipeline.files import UnreadableError, read_file
from pipeline.http.access.tls_context import BrokenError, make_context
from pipeline.http.access.web_config_schema import RateLimit, TlsServer, WebOptions

_LARGEST: Final = ByteSize.parse("1MiB")
_SECTION: Final = "tls_server_config"
_UNLIMITED: Final = RateLimit()


@dataclass(frozen=True, slots=True)
class Rules:
    """Who may read, and how it is served.

    Attributes:
        context: for new connections; None for plain HTTP. The same object as long as nothing about
            TLS has changed.
        sans: a client's certificate must have one of these names; None if any will do.
        headers: that every answer gets.
        users: names and bcrypt hashes; empty if there are no passwords.
        limit: how many requests there may be.
        warnings: what of the file comes to something else than it says.
    """

    context: ssl.SSLContext | None = None
    sans: frozenset[str] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    users: Mapping[bytes, bytes] = field(default_factory=dict)
    limit: RateLimit = _UNLIMITED
    warnings: tuple[str, ...] = ()

    @property
    def identified(self) -> bool:
        """Whether a client has to say who it is, by a password or a certificate."""
        return bool(self.users) or (
            self.context is not None and self.context.verify_mode is ssl.CERT_REQUIRED
        )


class WebConfigReader:
    """Reads a web config again and again.

    Attributes:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._data: bytes | None = None
        self._options = WebOptions()
        self._seen: tuple[WebOptions, Mapping[str, bytes]] | None = None
        self._secured: tuple[TlsServer | None, Mapping[str, bytes]] = (None, {})
        self._context: ssl.SSLContext | None = None

    def reload(self) -> Rules | None:
        """Return what is said now, None if that is what the look before has found.

        Raises:
            ConfigError: something of it can't be used.
        """
        data = read(self.path)
        if data != self._data:
            self._options = parse_struct(data, WebOptions, origin=str(self.path))
            self._data = data
        options = self._options
        texts = self._texts(options.tls) if options.tls is not None else {}
        if self._seen == (options, texts):
            return None
        if self._secured != (options.tls, texts):
            self._context = self._secure(options.tls, texts)
            self._secured = options.tls, texts
        self._seen = options, texts
        return _rules(options, self._context)

    def _texts(self, tls: TlsServer) -> dict[str, bytes]:
        """Return the PEM texts, from where they stand.

        Relative paths begin at the web config's folder.
        """
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

    def _secure(self, tls: TlsServer | None, texts: Mapping[str, bytes]) -> ssl.SSLContext | None:
        if tls is None:
            return None
        try:
            return make_context(tls, texts)
        except BrokenError as error:
            problem = Problem(f"{_SECTION}.{error.key}", str(error))
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
    """Read a web config and all that it names.

    Raises:
        ConfigError: something of it can't be used.
    """
    WebConfigReader(path).reload()
