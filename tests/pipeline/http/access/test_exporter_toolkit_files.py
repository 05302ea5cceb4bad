"""Web configurations as Prometheus' exporter-toolkit accepts and refuses them, shape by shape.

The rows are the cases of its `web/testdata`, in this project's own words: which clients are served
with each file that it accepts, and which files it refuses.
"""

import asyncio
import re
import ssl
from collections.abc import Sequence

import pytest
import trustme

from pipeline.base.errors import PermanentError
from pipeline.http.access.any_certificate import first_certificate
from pipeline.http.access.cipher_names import ALWAYS, SUITES
from pipeline.http.access.web_config_schema import TlsServer
from tests.pipeline.http.access.tls_clients import client_context
from tests.support.web import Web, authority, basic, certificate, hashed

NO_CERTIFICATE = None
SIGNED = certificate("clients", "test.example.org")
STRANGER = certificate("strangers", "test.example.org")
PUBLIC = certificate("public", "test.example.org")
CLIENTS = {"none": NO_CERTIFICATE, "signed": SIGNED, "stranger": STRANGER, "public": PUBLIC}
"""Clients without a certificate, and with one of the configured authority, of an unknown authority,
and of one in the machine's list."""

IF_GIVEN = "client_auth_type: VerifyClientCertIfGiven"
VERIFY = "client_auth_type: RequireAndVerifyClientCert"
ANY = "client_auth_type: RequireAnyClientCert"
CA = "client_ca_file: ca.crt"
AES = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"

GOOD: dict[str, tuple[Sequence[str], str]] = {
    "no clients' certificates": ([], "none signed stranger public"),
    "not wanted": (["client_auth_type: NoClientCert"], "none signed stranger public"),
    "requested": (["client_auth_type: RequestClientCert"], "none signed stranger public"),
    "verified if given, by the machine's list": ([IF_GIVEN], "none public"),
    "verified if given": ([IF_GIVEN, CA], "none signed"),
    "required, by the machine's list": ([VERIFY], "public"),
    "required and verified": ([VERIFY, CA], "signed"),
    "required, not verified": ([ANY], "signed stranger public"),
    "required, not verified, with an authority": ([ANY, CA], "signed stranger public"),
    "required, by its old name": (
        ["client_auth_type: RequireClientCert"],
        "signed stranger public",
    ),
    "an allowed name": ([VERIFY, CA, "client_allowed_sans: [one, test.example.org]"], "signed"),
    "no allowed name": ([VERIFY, CA, "client_allowed_sans: [one, two]"], ""),
    "an allowed name, not verified": (
        [ANY, "client_allowed_sans: [test.example.org]"],
        "signed stranger public",
    ),
    "no allowed name, not verified": ([ANY, "client_allowed_sans: [two]"], ""),
    "all cipher suites": (
        [IF_GIVEN, f"cipher_suites: [{', '.join([*SUITES, *ALWAYS])}]"],
        "none public",
    ),
    "some cipher suites": ([IF_GIVEN, f"cipher_suites: [{AES}]", "max_version: TLS12"], "none"),
    "the client's order": (
        [f"cipher_suites: [{AES}]", "prefer_server_cipher_suites: false", "max_version: TLS12"],
        "none",
    ),
    "all curves": (
        ["curve_preferences: [CurveP256, CurveP384, CurveP521, X25519]"],
        "none",
    ),
    "one curve": ([IF_GIVEN, "min_version: TLS13", "curve_preferences: [CurveP521]"], "none"),
    "not verified, with TLS 1.2": ([ANY, "max_version: TLS12"], "signed stranger public"),
    "not verified, with TLS 1.3": ([ANY, "min_version: TLS13"], "signed stranger public"),
}
PARTLY = {"some cipher suites", "the client's order", "all curves", "one curve"}
"""Shapes for which only the listed clients are tried."""


async def is_served(web: Web, leaf: trustme.LeafCert | None) -> bool:
    try:
        return await web.scrape(client_context(leaf)) == (200, "page")
    except (OSError, asyncio.IncompleteReadError):
        return False


@pytest.fixture
def known(web: Web, monkeypatch: pytest.MonkeyPatch) -> Web:
    """Return a folder with the authority of clients, on a machine with a list of authorities."""
    web.trust("clients")
    listed = web.folder / "machine.crt"
    authority("public").cert_pem.write_to_path(str(listed))
    monkeypatch.setenv("SSL_CERT_FILE", str(listed))
    monkeypatch.setenv("SSL_CERT_DIR", str(web.folder / "none"))
    return web


@pytest.mark.parametrize("shape", GOOD)
async def test_a_file_that_it_accepts_is_served_to_the_same_clients(shape: str, known: Web) -> None:
    keys, served = GOOD[shape]
    known.secure(*keys)
    async with known.serving():
        for name, leaf in CLIENTS.items():
            if shape not in PARTLY or name in served.split():
                assert await is_served(known, leaf) is (name in served.split()), name


SECTION = "tls_server_config:\n  cert_file: tls.crt\n  key_file: tls.key\n"
BAD: dict[str, tuple[str, str]] = {
    "junk": ("hey! hello\n  junk:", "web.yml"),
    "an unknown key": ("foo: bar\n", "foo: unknown key"),
    "no certificate": ("tls_server_config: {key_file: tls.key}", "cert_file: missing: TLS needs"),
    "no key": ("tls_server_config: {cert_file: tls.crt}", "key_file: missing: TLS needs"),
    "empty paths": (
        "tls_server_config: {cert_file: '', key_file: '', client_auth_type: NoClientCert}",
        "cert_file: missing: TLS needs",
    ),
    "no such certificate": (
        "tls_server_config: {cert_file: no.crt, key_file: tls.key}",
        "no such file",
    ),
    "no such key": (
        "tls_server_config: {cert_file: tls.crt, key_file: no.key}",
        "no such file",
    ),
    "an unknown policy": (
        "tls_server_config: {cert_file: tls.crt, key_file: tls.key, client_auth_type: Some}",
        "client_auth_type: expected one of NoClientCert, RequestClientCert",
    ),
    "an authority without policy": (
        "tls_server_config: {cert_file: tls.crt, key_file: tls.key, client_ca_file: ca.crt}",
        "client_ca_file: has no effect without client_auth_type",
    ),
    "no such authority": (
        f"{SECTION}  {VERIFY}\n  client_ca_file: no.crt",
        "no such file",
    ),
    "an authority without certificates": (
        f"{SECTION}  {VERIFY}\n  client_ca: none",
        "client_ca: has no usable certificate",
    ),
    "names of clients that need no certificate": (
        "tls_server_config: {cert_file: tls.crt, key_file: tls.key, client_allowed_sans: [a]}",
        "client_allowed_sans: has an effect only if every client must send a certificate",
    ),
    "invented cipher suites": (
        "tls_server_config: {cert_file: tls.crt, key_file: tls.key, cipher_suites: [TLS_X]}",
        "TLS_X is not a known cipher suite",
    ),
    "invented curves": (
        "tls_server_config: {cert_file: tls.crt, key_file: tls.key, curve_preferences: [P1]}",
        "expected one of CurveP256",
    ),
    "an invented version": (
        "tls_server_config: {cert_file: tls.crt, key_file: tls.key, min_version: TLS111}",
        "min_version: expected one of TLS10",
    ),
    "a password that is not hashed": ("basic_auth_users: {a: b}", "must be a bcrypt hash"),
    "a header with a wrong value": (
        "http_server_config: {headers: {X-Content-Type-Options: sniff}}",
        "must be nosniff",
    ),
    "a frame option with a wrong value": (
        "http_server_config: {headers: {X-Frame-Options: all}}",
        "must be deny or sameorigin",
    ),
    "another header": ("http_server_config: {headers: {Server: a}}", "can't be set"),
}


@pytest.mark.parametrize("shape", BAD)
async def test_a_file_that_it_refuses_is_refused_with_a_reason(shape: str, web: Web) -> None:
    text, reason = BAD[shape]
    web.secure()
    web.trust("clients")
    web.write(text)
    with pytest.raises(PermanentError, match=re.escape(reason)):
        await web.serving().__aenter__()


async def test_users_with_costs_up_to_its_own_example_are_accepted(web: Web) -> None:
    """Its example has a hash of cost 18, whose check takes 20 s: no password can be tried here."""
    costly = hashed("slow").replace("$04$", "$18$", 1)
    web.write("basic_auth_users:", f"  slow: {costly}", f"  dave: {hashed('dave123')}")
    async with web.serving():
        assert (await web.scrape())[0] == 401
        assert (await web.scrape(None, basic("dave", "dave123")))[0] == 200
        (warning,) = web.access.rules.warnings
        assert warning.startswith("basic_auth_users.slow: the check of a hash of cost 18 takes ab")


async def test_headers_and_a_rate_limit_without_limit_are_accepted(web: Web) -> None:
    web.write(
        "http_server_config:",
        "  headers:",
        "    X-Frame-Options: deny",
        "    Strict-Transport-Security: max-age=31536000; includeSubDomains",
        "    X-XSS-Protection: 1",
        "rate_limit: {interval: 0, burst: 0}",
    )
    async with web.serving():
        assert [(await web.scrape())[0] for _ in range(10)] == [200] * 10
        assert web.access.rules.headers["X-XSS-Protection"] == "1"


async def test_the_file_precedes_the_inline_text_with_a_warning(web: Web) -> None:
    web.secure("key: nonsense")
    async with web.serving():
        assert await is_served(web, NO_CERTIFICATE)
        (warning,) = web.access.rules.warnings
        assert warning.startswith("key: has no effect, because key_file is set too")


async def test_a_section_without_certificate_enables_no_tls(web: Web) -> None:
    web.write("tls_server_config: {min_version: TLS13}")
    async with web.serving():
        assert (await web.scrape())[0] == 200
        (warning,) = web.access.rules.warnings
        assert warning.startswith("tls_server_config: podgpu serves plain HTTP, because")


# Any certificate.


async def test_any_certificate_is_no_proof_of_who_a_client_is(known: Web) -> None:
    """So the host of requests is still checked, as for clients without a certificate."""
    for keys, identified in (([ANY], False), ([VERIFY, CA], True), ([IF_GIVEN, CA], False)):
        known.secure(*keys)
        async with known.serving():
            assert known.access.rules.identified is identified


async def test_a_certificate_of_one_connection_is_unknown_to_the_next(web: Web) -> None:
    """The certificates of clients do not add up in memory."""
    web.secure(ANY)
    async with web.serving():
        context = web.access.rules.context
        assert context is not None
        for at in range(3):
            assert await is_served(web, certificate("strangers", "a.example.org", serial=at))
        assert context.cert_store_stats()["x509"] == 0
        assert not await is_served(web, NO_CERTIFICATE)


DER = ssl.PEM_cert_to_DER_cert(STRANGER.cert_chain_pems[0].bytes().decode())


def three(value: int) -> bytes:
    return value.to_bytes(3)


@pytest.mark.parametrize(
    ("body", "is_tls13", "expected"),
    [
        (three(len(DER) + 3) + three(len(DER)) + DER, False, DER),
        (three(len(DER) + 9) + (three(len(DER)) + DER) + three(3) + b"abc", False, DER),
        (b"\0" + three(len(DER) + 5) + three(len(DER)) + DER + b"\0\0", True, DER),
        (three(0), False, b""),
        (b"\0" + three(0), True, b""),
        (b"", False, b""),
        (b"", True, b""),
        (three(len(DER) + 3) + three(len(DER)) + DER[:-1], False, b""),
        (three(3) + three(len(DER)), False, b""),
        (b"\xff", True, b""),
    ],
    ids=range(10),  # the bytes are others in each process
)
def test_the_first_certificate_of_a_message_is_found(
    body: bytes, is_tls13: bool, expected: bytes
) -> None:
    message = b"\x0b" + three(len(body)) + body
    assert first_certificate(message, is_tls13=is_tls13) == expected


def test_the_old_name_is_one_of_the_names_that_accept_any_certificate() -> None:
    for kind in ("RequireAnyClientCert", "RequireClientCert"):
        assert TlsServer(client_auth_type=kind).requires_any
