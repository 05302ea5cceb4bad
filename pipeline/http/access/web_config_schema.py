"""The shape of a web config file: keys, words and what they have to do with one another."""

import re
from collections.abc import Iterable, Iterator
from typing import Final, Literal

import msgspec

from config.message_text import nearest
from config.value_types import Duration, FormatError
from pipeline.http.access.cipher_names import ALWAYS, SUITES

Problems = Iterator[tuple[str | tuple[str, ...], str]]

CLIENT_AUTH: Final = "RequireAndVerifyClientCert", "VerifyClientCertIfGiven"
"""The ways in which a client's certificate is verified."""

MOST_COST: Final = 16
"""The highest cost of a password's hash: some five seconds of a core. Each step doubles it."""

_HASH: Final = re.compile(r"\$2[abxy]\$([0-9]{2})\$[./A-Za-z0-9]{53}")
_OLD: Final = "TLS10", "TLS11"
_HEADERS: Final[dict[str, tuple[str, ...]]] = {
    "Strict-Transport-Security": (),
    "X-Content-Type-Options": ("nosniff",),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-XSS-Protection": (),
    "Content-Security-Policy": (),
}

Version = Literal["TLS10", "TLS11", "TLS12", "TLS13"]


class TlsServer(msgspec.Struct, frozen=True, kw_only=True):
    """`tls_server_config`. An empty text counts as a key that isn't there."""

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
    def verifies(self) -> bool:
        """Whether a certificate that a client shows is verified."""
        return self.client_auth_type in CLIENT_AUTH

    def problems(self) -> Problems:
        """What goes together and what doesn't."""
        if self == TlsServer():
            return
        for name in ("cert", "key", "client_ca"):
            inline, file = getattr(self, name), getattr(self, f"{name}_file")
            if inline and file:
                yield name, f"there is {name}_file too: give one of the two"
            if not inline and not file and name != "client_ca":
                yield f"{name}_file", f"missing: TLS needs {name}_file or {name}"
        yield from self._clients()
        yield from self._versions()
        yield from self._suites()

    def _clients(self) -> Problems:
        kind = self.client_auth_type
        given = "client_ca" if self.client_ca else "client_ca_file"
        ca = self.client_ca or self.client_ca_file
        if kind in ("RequireAnyClientCert", "RequireClientCert"):
            yield (
                "client_auth_type",
                (
                    f"{kind} would take any certificate unverified, which can't be done here and "
                    "which keeps nobody out: take RequireAndVerifyClientCert with client_ca_file"
                ),
            )
            return
        if self.verifies and not ca:
            yield "client_ca_file", f"missing: {kind} needs to know who signs the certificates"
        if ca and kind in ("", "NoClientCert"):
            yield given, "without a client_auth_type it is of no effect: add one, or remove this"
        if self.client_allowed_sans is not None and kind != "RequireAndVerifyClientCert":
            yield (
                "client_allowed_sans",
                (
                    "names are of effect only where every client has to show a certificate: set "
                    "client_auth_type to RequireAndVerifyClientCert"
                ),
            )

    def _versions(self) -> Problems:
        if self.max_version in _OLD:
            yield "max_version", f"{self.max_version} is not spoken: the least is TLS12"
        elif self.min_version == "TLS13" and self.max_version == "TLS12":
            yield "max_version", "less than min_version: nothing would be left"

    def _suites(self) -> Problems:
        suites = self.cipher_suites or ()
        for name in suites:
            if name not in SUITES and name not in ALWAYS:
                guess = nearest(name, (*SUITES, *ALWAYS))
                mend = f"; did you mean {guess}?" if guess else ""
                yield "cipher_suites", f"{name[:60]} is no suite that is known here{mend}"
        if suites and self.only_newest and self.max_version == "TLS12":
            yield "cipher_suites", "none of them is of TLS 1.2, and max_version allows no other"

    @property
    def only_newest(self) -> bool:
        """Whether the suites leave nothing but TLS 1.3."""
        return bool(self.cipher_suites) and SUITES.keys().isdisjoint(self.cipher_suites or ())

    def warnings(self) -> Iterator[str]:
        """What is taken and yet comes to something else than it says."""
        if self.min_version in _OLD:
            yield f"min_version: {self.min_version} is not spoken any more, the least is TLS12"
        if self.client_auth_type == "RequestClientCert":
            yield (
                "client_auth_type: RequestClientCert would verify nothing and keep nobody out, so "
                "no certificate is asked for"
            )
        if self.curve_preferences is not None and len(self.curve_preferences) > 1:
            yield (
                "curve_preferences: of several, none can be preferred: the TLS library's own list "
                "holds; one alone would be enforced"
            )


class HttpServer(msgspec.Struct, frozen=True, kw_only=True):
    """`http_server_config`."""

    http2: bool | None = None
    headers: dict[str, str] | None = None

    def problems(self) -> Problems:
        """Only headers that every program of Prometheus' lets one set, with their known values."""
        for name, value in (self.headers or {}).items():
            if name not in _HEADERS:
                yield ("headers", name), f"can't be set here; those are {', '.join(_HEADERS)}"
            elif not (value.isascii() and (value.isprintable() or not value)):
                yield ("headers", name), "a header is of printable ASCII"
            elif value and _HEADERS[name] and value not in _HEADERS[name]:
                yield ("headers", name), f"must be {' or '.join(_HEADERS[name])}"


class RateLimit(msgspec.Struct, frozen=True, kw_only=True):
    """`rate_limit`: a bucket of `burst` requests that gets one more each `interval`."""

    interval: str = ""
    burst: int = 0

    @property
    def seconds(self) -> float:
        """The interval; 0 for no limit."""
        return 0.0 if self.interval in ("", "0") else float(Duration.parse(self.interval))

    def problems(self) -> Problems:
        """Check the interval here, since 0 needs no unit."""
        try:
            limited = self.seconds > 0
        except FormatError as error:
            yield "interval", str(error)
        else:
            if limited and self.burst < 1:
                yield "burst", "must be 1 or more: else every request is refused"


class WebOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The whole file."""

    tls_server_config: TlsServer | None = None
    http_server_config: HttpServer | None = None
    basic_auth_users: dict[str, str] | None = None
    rate_limit: RateLimit | None = None

    @property
    def tls(self) -> TlsServer | None:
        """What is said of TLS; None if nothing is, or nothing that isn't the default."""
        return None if self.tls_server_config in (None, TlsServer()) else self.tls_server_config

    def problems(self) -> Problems:
        """No message repeats a value: it may be a password that nobody has hashed."""
        for user, hashed in (self.basic_auth_users or {}).items():
            where = ("basic_auth_users", user)
            if ":" in user:
                yield where, "a user's name can have no colon"
            found = _HASH.fullmatch(hashed)
            if found is None:
                yield (
                    where,
                    (
                        "wanted a bcrypt hash, such as htpasswd -nBC 10 USER gives: $2y$10$ and 53 "
                        "characters"
                    ),
                )
            elif not 4 <= (cost := int(found[1])) <= MOST_COST:
                yield where, f"the cost {cost} is not from 4 to {MOST_COST}: hash it anew"

    def warnings(self) -> Iterator[str]:
        """What is taken and yet comes to something else than it says."""
        if self.tls is not None:
            yield from self.tls.warnings()
        http = self.http_server_config
        if http is not None and http.http2:
            yield "http2: HTTP/1.1 is spoken, which every client of HTTP/2 takes too"


def bcrypt_costs(hashes: Iterable[bytes]) -> list[str]:
    """Return the costs of hashes as they stand in them, two digits each."""
    return [hashed[4:6].decode() for hashed in hashes]
