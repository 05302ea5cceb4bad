"""Schema of a web configuration file: its keys, their values, and checks across keys."""

import re
from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from config.message_text import nearest
from config.value_types import Duration, FormatError
from pipeline.http.access.cipher_names import ALWAYS, SUITES

Problems = Iterator[tuple[str | tuple[str, ...], str]]

CLIENT_AUTH: Final = "RequireAndVerifyClientCert", "VerifyClientCertIfGiven"
"""Values of `client_auth_type` with which podgpu verifies a client's certificate."""

MOST_COST: Final = 20
"""Maximum cost of a password hash; a check then takes about 80 s of a core. Each step of 1 doubles
the time."""

_SLOW_COST: Final = 16
"""Cost of a hash whose check takes about five seconds, which is as long as a request waits."""

_SLOW_SECONDS: Final = 5

_ANY: Final = "RequireAnyClientCert", "RequireClientCert"
"""Values of `client_auth_type` that require a client's certificate and accept any. The second is an
old name of the first."""

_BCRYPT_HASH: Final = re.compile(r"\$2[abxy]\$([0-9]{2})\$[./A-Za-z0-9]{53}")
_OLD_VERSIONS: Final = "TLS10", "TLS11"
_ALLOWED_HEADERS: Final[dict[str, tuple[str, ...]]] = {
    "Strict-Transport-Security": (),
    "X-Content-Type-Options": ("nosniff",),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-XSS-Protection": (),
    "Content-Security-Policy": (),
}

Version = Literal["TLS10", "TLS11", "TLS12", "TLS13"]


class TlsServer(msgspec.Struct, frozen=True, kw_only=True):
    """The section `tls_server_config`. An empty text counts as a missing key."""

    cert: str = ""
    key: str = ""
    client_ca: str = ""
    cert_file: str = ""
    key_file: str = ""
    client_ca_file: str = ""
    client_auth_type: Literal[
        "",
        "NoClientCert",
        "RequestClientCert",
        "RequireAnyClientCert",
        "RequireClientCert",
        "VerifyClientCertIfGiven",
        "RequireAndVerifyClientCert",
    ] = ""
    client_allowed_sans: tuple[str, ...] | None = None
    min_version: Version | None = None
    max_version: Version | None = None
    cipher_suites: tuple[str, ...] | None = None
    prefer_server_cipher_suites: bool = True
    curve_preferences: (
        tuple[Literal["CurveP256", "CurveP384", "CurveP521", "X25519"], ...] | None
    ) = None

    @property
    def is_enabled(self) -> bool:
        """Whether the section enables TLS: exporters serve plain HTTP if it sets none of these."""
        names = ("cert", "key", "client_ca", "cert_file", "key_file", "client_ca_file")
        return any(getattr(self, name) for name in (*names, "client_auth_type"))

    @property
    def verifies(self) -> bool:
        """Whether podgpu verifies certificates of clients."""
        return self.client_auth_type in CLIENT_AUTH

    @property
    def requires_any(self) -> bool:
        """Whether clients must send a certificate, which is not verified."""
        return self.client_auth_type in _ANY

    @property
    def has_client_ca(self) -> bool:
        """Whether authorities of client certificates are set."""
        return bool(self.client_ca or self.client_ca_file)

    def problems(self) -> Problems:
        """Yield invalid combinations of keys."""
        if not self.is_enabled:
            return
        for name in ("cert", "key"):
            if not (getattr(self, name) or getattr(self, f"{name}_file")):
                yield f"{name}_file", f"missing: TLS needs {name}_file or {name}"
        yield from self._clients()
        yield from self._versions()
        yield from self._suites()

    def _clients(self) -> Problems:
        kind = self.client_auth_type
        given = "client_ca" if self.client_ca else "client_ca_file"
        if self.has_client_ca and kind in ("", "NoClientCert"):
            yield given, f"has no effect without client_auth_type: set it, or remove {given}"
        required = self.requires_any or kind == "RequireAndVerifyClientCert"
        if self.client_allowed_sans is not None and not required:
            text = (
                "has an effect only if every client must send a certificate: set client_auth_type "
                "to RequireAndVerifyClientCert"
            )
            yield "client_allowed_sans", text

    def _client_warnings(self) -> Iterator[str]:
        kind = self.client_auth_type
        if kind == "RequestClientCert":
            yield (
                "client_auth_type: podgpu requests no certificate, because RequestClientCert would "
                "not verify it"
            )
        elif self.requires_any:
            yield (
                f"client_auth_type: {kind} accepts any certificate, also one that a client has "
                "made itself, so it protects nothing; set RequireAndVerifyClientCert and "
                "client_ca_file"
            )
        elif self.verifies and not self.has_client_ca:
            yield (
                f"client_auth_type: {kind} without client_ca_file accepts the certificates of all "
                "authorities in this machine's list; set client_ca_file"
            )

    def _versions(self) -> Problems:
        if self.max_version in _OLD_VERSIONS:
            yield "max_version", f"{self.max_version} is not supported: the lowest is TLS12"
        elif self.min_version == "TLS13" and self.max_version == "TLS12":
            yield "max_version", "lower than min_version: no version is left"

    def _suites(self) -> Problems:
        suites = self.cipher_suites or ()
        for name in suites:
            if name not in SUITES and name not in ALWAYS:
                guess = nearest(name, (*SUITES, *ALWAYS))
                hint = f"; did you mean {guess}?" if guess else ""
                yield "cipher_suites", f"{name[:60]} is not a known cipher suite{hint}"
        if suites and self.only_newest and self.max_version == "TLS12":
            yield "cipher_suites", "none of them is for TLS 1.2, and max_version is TLS12"

    @property
    def only_newest(self) -> bool:
        """Whether the cipher suites allow TLS 1.3 only."""
        return bool(self.cipher_suites) and SUITES.keys().isdisjoint(self.cipher_suites or ())

    def warnings(self) -> Iterator[str]:
        """Yield warnings about settings that protect less than they seem to, or are ignored."""
        for name in ("cert", "key", "client_ca"):
            if getattr(self, name) and getattr(self, f"{name}_file"):
                yield f"{name}: has no effect, because {name}_file is set too; remove one of them"
        yield from self._client_warnings()
        if self.min_version in _OLD_VERSIONS:
            yield f"min_version: {self.min_version} is not supported; the lowest version is TLS12"
        if self.curve_preferences is not None and len(self.curve_preferences) > 1:
            yield (
                "curve_preferences: the TLS library accepts only one curve; with several curves, "
                "podgpu uses the library's own list"
            )


class HttpServer(msgspec.Struct, frozen=True, kw_only=True):
    """The section `http_server_config`."""

    http2: bool | None = None
    headers: dict[str, str] | None = None

    def problems(self) -> Problems:
        """Yield problems of headers that may not be set, or not to this value."""
        for name, value in (self.headers or {}).items():
            if name not in _ALLOWED_HEADERS:
                yield ("headers", name), f"can't be set; allowed are {', '.join(_ALLOWED_HEADERS)}"
            elif not (value.isascii() and (value.isprintable() or not value)):
                yield ("headers", name), "a header must be printable ASCII"
            elif value and _ALLOWED_HEADERS[name] and value not in _ALLOWED_HEADERS[name]:
                yield ("headers", name), f"must be {' or '.join(_ALLOWED_HEADERS[name])}"


class RateLimit(msgspec.Struct, frozen=True, kw_only=True):
    """The section `rate_limit`: a bucket of `burst` requests, refilled by one per `interval`."""

    interval: str = ""
    burst: int = 0

    @property
    def seconds(self) -> float:
        """The interval in seconds; 0 if requests are not limited."""
        return 0.0 if self.interval in ("", "0") else float(Duration.parse(self.interval))

    def problems(self) -> Problems:
        """Yield errors of the interval, which is text because 0 needs no unit."""
        try:
            limited = self.seconds > 0
        except FormatError as error:
            yield "interval", str(error)
        else:
            if limited and self.burst < 1:
                yield "burst", "must be 1 or more: with 0 every request would be refused"


class WebOptions(msgspec.Struct, frozen=True, kw_only=True):
    """A web configuration file."""

    tls_server_config: TlsServer | None = None
    http_server_config: HttpServer | None = None
    basic_auth_users: dict[str, str] | None = None
    rate_limit: RateLimit | None = None

    @property
    def tls(self) -> TlsServer | None:
        """The section `tls_server_config`; None if it is missing or does not enable TLS."""
        section = self.tls_server_config
        return section if section is not None and section.is_enabled else None

    def problems(self) -> Problems:
        """Yield errors. No message contains a value, because it may be a password in plain text."""
        for user, hashed in (self.basic_auth_users or {}).items():
            where = ("basic_auth_users", user)
            if ":" in user:
                yield where, "a user name can't contain a colon"
            found = _BCRYPT_HASH.fullmatch(hashed)
            if found is None:
                made = "as htpasswd -nBC 10 USER makes it: $2y$10$ and 53 characters"
                yield where, f"must be a bcrypt hash, {made}"
            elif not 4 <= (cost := int(found[1])) <= MOST_COST:
                text = f"the cost {cost} is not from 4 to {MOST_COST}: hash the password again"
                yield where, text

    def warnings(self) -> Iterator[str]:
        """Yield warnings about settings that protect less than they seem to, or are ignored."""
        if self.tls is not None:
            yield from self.tls.warnings()
        elif self.tls_server_config not in (None, TlsServer()):
            yield (
                "tls_server_config: podgpu serves plain HTTP, because the section has no "
                "certificate; set cert_file and key_file"
            )
        for user, hashed in (self.basic_auth_users or {}).items():
            cost = int(found[1]) if (found := _BCRYPT_HASH.fullmatch(hashed)) else 0
            if cost > _SLOW_COST:
                seconds = _SLOW_SECONDS << (cost - _SLOW_COST)
                yield (
                    f"basic_auth_users.{user}: the check of a hash of cost {cost} takes about "
                    f"{seconds} s of a core; until podgpu knows the password, requests get status "
                    "429; hash the password again with a cost of 10"
                )
        http = self.http_server_config
        if http is not None and http.http2:
            yield "http2: podgpu serves HTTP/1.1 only, which every HTTP/2 client accepts too"
