"""Tests of TLS and client certificates with real clients."""

import asyncio
import shutil
import ssl
import time
import warnings
from functools import cache

import pytest
import trustme

from pipeline.base.errors import PermanentError
from pipeline.http.access.cipher_names import SUITES
from tests.pipeline.http.access.tls_clients import client_context
from tests.support.web import Web, authority, basic, certificate, hashed, pem

REQUIRE = "client_auth_type: RequireAndVerifyClientCert"
IF_GIVEN = "client_auth_type: VerifyClientCertIfGiven"
CA = "client_ca_file: ca.crt"

NO_CERTIFICATE = None
TRUSTED = certificate("clients", "prometheus.example.org")
UNTRUSTED = certificate("strangers", "prometheus.example.org")


async def is_served(web: Web, leaf: trustme.LeafCert | None) -> bool:
    """Return whether a client is served. If not, its connection is closed without a response."""
    try:
        return await web.scrape(client_context(leaf)) == (200, "page")
    except (OSError, asyncio.IncompleteReadError):
        return False


@pytest.mark.parametrize(
    ("keys", "without", "trusted", "untrusted"),
    [
        ([], True, True, True),
        (["client_auth_type: NoClientCert"], True, True, True),
        (["client_auth_type: RequestClientCert", CA], True, True, True),
        ([IF_GIVEN, CA], True, True, False),
        ([REQUIRE, CA], False, True, False),
    ],
)
async def test_client_auth_type_decides_which_clients_are_served(
    keys: list[str], without: bool, trusted: bool, untrusted: bool, web: Web
) -> None:
    web.trust("clients")
    web.secure(*keys)
    async with web.serving():
        assert await is_served(web, NO_CERTIFICATE) is without
        assert await is_served(web, TRUSTED) is trusted
        assert await is_served(web, UNTRUSTED) is untrusted


@pytest.mark.parametrize(
    ("names", "allowed", "served"),
    [
        (("a.example.org",), "a.example.org", True),
        (("a.example.org", "b.example.org"), "x, b.example.org", True),
        (("a.example.org",), "example.org", False),
        (("*.example.org",), "a.example.org", False),
        (("10.1.2.3",), "10.1.2.3", True),
        (("fd00::1",), "'fd00::1'", True),
        (("a@example.org",), "a@example.org", True),
        (("a.example.org",), "", False),
    ],
)
async def test_a_client_certificate_must_have_an_allowed_name(
    names: tuple[str, ...], allowed: str, served: bool, web: Web
) -> None:
    web.trust("clients")
    web.secure(REQUIRE, CA, f"client_allowed_sans: [{allowed}]")
    async with web.serving():
        assert await is_served(web, certificate("clients", *names)) is served


async def test_a_server_certificate_is_refused_as_a_client_certificate(web: Web) -> None:
    """As in Go: a certificate is valid only for its extended key usages."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization

    ca = authority("clients")
    issuer = x509.load_pem_x509_certificate(ca.cert_pem.bytes())
    own = serialization.load_pem_private_key(TRUSTED.private_key_pem.bytes(), None)
    signer = serialization.load_pem_private_key(ca.private_key_pem.bytes(), None)
    built = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(issuer.subject)
        .public_key(own.public_key())  # type: ignore[arg-type]
        .serial_number(1)
        .not_valid_before(issuer.not_valid_before_utc)
        .not_valid_after(issuer.not_valid_after_utc)
        .add_extension(x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]), False)
        .sign(signer, hashes.SHA256())  # type: ignore[arg-type]
    )
    text = built.public_bytes(serialization.Encoding.PEM)
    leaf = trustme.LeafCert(TRUSTED.private_key_pem.bytes(), text, [])
    web.trust("clients")
    web.secure(REQUIRE, CA)
    async with web.serving():
        assert not await is_served(web, leaf)
        assert await is_served(web, TRUSTED)


async def test_an_intermediate_ca_is_trusted_without_its_root(web: Web) -> None:
    web.secure(REQUIRE, CA)
    child = authority("clients").create_child_ca()
    child.cert_pem.write_to_path(str(web.folder / "ca.crt"))
    async with web.serving():
        assert await is_served(web, child.issue_cert("127.0.0.1"))
        assert not await is_served(web, TRUSTED)


async def test_certificates_and_keys_can_be_inline(web: Web) -> None:
    chain, key = pem(certificate("server", "127.0.0.1"))
    ca = authority("clients").cert_pem.bytes()
    lines = ["tls_server_config:", f"  {REQUIRE}"]
    for name, text in (("cert", chain), ("key", key), ("client_ca", ca)):
        lines += [f"  {name}: |", *(f"    {line}" for line in text.decode().splitlines())]
    web.write(*lines)
    async with web.serving():
        assert await is_served(web, TRUSTED)
        assert not await is_served(web, NO_CERTIFICATE)


@pytest.mark.parametrize(
    ("keys", "least", "most", "served"),
    [
        ([], "TLSv1_2", "TLSv1_2", True),
        ([], "TLSv1_3", "TLSv1_3", True),
        (["min_version: TLS13"], "TLSv1_2", "TLSv1_2", False),
        (["min_version: TLS13"], "TLSv1_2", "TLSv1_3", True),
        (["max_version: TLS12"], "TLSv1_3", "TLSv1_3", False),
        (["max_version: TLS12"], "TLSv1_2", "TLSv1_3", True),
        (["min_version: TLS10"], "TLSv1_1", "TLSv1_1", False),
        (["cipher_suites: [TLS_AES_128_GCM_SHA256]"], "TLSv1_2", "TLSv1_2", False),
        (["cipher_suites: [TLS_AES_128_GCM_SHA256]"], "TLSv1_2", "TLSv1_3", True),
    ],
)
async def test_the_tls_versions_are_limited(
    keys: list[str], least: str, most: str, served: bool, web: Web
) -> None:
    web.secure(*keys)
    context = client_context()
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the test needs the deprecated versions
        context.minimum_version = ssl.TLSVersion[least]
        context.maximum_version = ssl.TLSVersion[most]
    async with web.serving():
        try:
            found = await web.scrape(context) == (200, "page")
        except OSError:
            found = False
        assert found is served


@cache
def with_rsa_key() -> trustme.LeafCert:
    """Return a server certificate with an RSA key, which takes 40 ms to make."""
    return authority("server").issue_cert("127.0.0.1", key_type=trustme.KeyType.RSA)


@pytest.mark.parametrize("suite", sorted(SUITES))
async def test_every_known_cipher_suite_can_be_configured(suite: str, web: Web) -> None:
    web.pair(certificate("server", "127.0.0.1") if "ECDSA" in suite else with_rsa_key())
    web.secure("max_version: TLS12", f"cipher_suites: [{suite}]")
    context = client_context()
    context.set_ciphers("ALL:@SECLEVEL=1")
    async with web.serving():
        client = await web.connect(context)
        assert await client.get("/metrics") == (200, "page")
        assert client.writer.get_extra_info("cipher")[0] == SUITES[suite]


@pytest.mark.parametrize("prefer", [True, False])
async def test_the_preferred_order_of_cipher_suites_is_used(prefer: bool, web: Web) -> None:
    first, second = "AES_128_GCM_SHA256", "AES_256_GCM_SHA384"
    web.pair(with_rsa_key())
    web.secure(
        "max_version: TLS12",
        f"cipher_suites: [TLS_ECDHE_RSA_WITH_{first}, TLS_ECDHE_RSA_WITH_{second}]",
        f"prefer_server_cipher_suites: {str(prefer).lower()}",
    )
    context = client_context()
    context.set_ciphers("ECDHE-RSA-AES256-GCM-SHA384:ECDHE-RSA-AES128-GCM-SHA256")
    async with web.serving():
        client = await web.connect(context)
        chosen = client.writer.get_extra_info("cipher")[0]
        assert chosen == f"ECDHE-RSA-AES{'128-GCM-SHA256' if prefer else '256-GCM-SHA384'}"


@pytest.mark.parametrize(
    ("curve", "offered", "served"),
    [
        ("CurveP384", "secp384r1", True),
        ("CurveP384", "prime256v1", False),
        ("X25519", "X25519", True),
        ("X25519", "prime256v1", False),
    ],
)
async def test_a_single_curve_is_enforced(curve: str, offered: str, served: bool, web: Web) -> None:
    web.secure(f"curve_preferences: [{curve}]")
    context = client_context()
    context.set_ecdh_curve(offered)
    async with web.serving():
        try:
            found = await web.scrape(context) == (200, "page")
        except OSError:
            found = False
        assert found is served


# Files that can't be used.


def encrypted(key: bytes) -> bytes:
    from cryptography.hazmat.primitives import serialization as form

    loaded = form.load_pem_private_key(key, None)
    return loaded.private_bytes(
        form.Encoding.PEM, form.PrivateFormat.PKCS8, form.BestAvailableEncryption(b"secret")
    )


CHAIN, KEY = pem(certificate("server", "127.0.0.1"))


@pytest.mark.parametrize(
    ("cert", "key", "ca", "message"),
    [
        (None, KEY, b"", r"cert_file: .*tls\.crt: no such file"),
        (CHAIN, None, b"", r"key_file: .*tls\.key: no such file"),
        (b"", KEY, b"", "cert_file: has no usable certificate in PEM"),
        (b"nonsense", KEY, b"", "cert_file: has no usable certificate in PEM"),
        (CHAIN, b"nonsense", b"", "key_file: has no usable key in PEM"),
        (CHAIN, CHAIN, b"", "key_file: has no usable key in PEM"),
        (CHAIN, pem(TRUSTED)[1], b"", "key_file: is not the key of the certificate"),
        (CHAIN, encrypted(KEY), b"", "key_file: is encrypted"),
        (CHAIN, KEY, b"nonsense", "client_ca_file: has no usable certificate in PEM"),
        (CHAIN, KEY, b"x" * (1 << 20) + b"x", "client_ca_file: .*larger than"),
        (CHAIN, KEY, None, r"client_ca_file: .*ca\.crt: no such file"),
    ],
)
async def test_unusable_certificate_files_end_the_start(
    cert: bytes | None, key: bytes | None, ca: bytes | None, message: str, web: Web
) -> None:
    web.secure(REQUIRE, CA)
    for name, text in (("tls.crt", cert), ("tls.key", key), ("ca.crt", ca)):
        (web.folder / name).unlink(missing_ok=True)
        if text is not None:
            (web.folder / name).write_bytes(text)
    expected = rf"^http\.web_config: {web.path}: tls_server_config\.{message}"
    with pytest.raises(PermanentError, match=expected):
        await web.serving().__aenter__()


async def test_a_missing_web_config_is_an_error(web: Web) -> None:
    with pytest.raises(PermanentError, match=r"web\.yml: there is no such file"):
        await web.serving().__aenter__()


# Clients that are slow, numerous or faulty.


async def test_a_plain_http_request_to_a_tls_port_is_closed_immediately(web: Web) -> None:
    web.secure()
    async with web.serving():
        client = await web.connect()
        client.send("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        start = time.perf_counter()
        assert await client.ended()
        assert time.perf_counter() - start < 1
        assert await is_served(web, NO_CERTIFICATE)


@pytest.mark.slow
async def test_a_connection_without_handshake_is_closed(web: Web, tmp_path: object) -> None:
    slow = Web(web.folder, handshake_seconds=0.3)
    slow.secure()
    async with slow.serving():
        client = await slow.connect()
        async with asyncio.timeout(5):
            assert await client.ended()
        assert not slow.listeners.accounting


async def test_handshakes_are_limited_and_do_not_exclude_a_scraper(web: Web) -> None:
    few = Web(web.folder, connections=10)
    few.secure()
    async with few.serving():
        slow = [await few.connect() for _ in range(50)]
        for client in slow[::2]:
            client.send(b"\x16\x03\x01")  # the start of a ClientHello
        assert await is_served(few, NO_CERTIFICATE)
        assert len(few.listeners.accounting) <= 10
        assert await slow[0].ended()


@pytest.mark.slow
async def test_many_scrapes_over_tls_at_the_same_time_succeed(web: Web) -> None:
    web.secure()
    async with web.serving():
        assert all(await asyncio.gather(*(is_served(web, NO_CERTIFICATE) for _ in range(60))))


@pytest.mark.parametrize("data", [b"", b"\x16\x03\x01\x00", b"GET / HTTP/1.1\r\n\r\n", b"\0" * 99])
async def test_other_bytes_instead_of_a_handshake_do_no_harm(data: bytes, web: Web) -> None:
    web.secure()
    async with web.serving():
        for end in (True, False):
            client = await web.connect()
            client.send(data)
            await asyncio.sleep(0)
            if end:
                client.writer.write_eof()
            else:
                client.writer.transport.abort()
        assert await is_served(web, NO_CERTIFICATE)


async def test_the_shutdown_does_not_wait_for_handshakes(web: Web) -> None:
    web.secure()
    async with web.serving():
        clients = [await web.connect() for _ in range(3)]
        await asyncio.sleep(0.05)
        start = time.perf_counter()
    assert time.perf_counter() - start < 1.5
    assert all([await client.ended() for client in clients])


async def test_a_large_page_is_served_over_tls(web: Web) -> None:
    from tests.support.http import LOCAL, says

    web.secure()
    async with web.serving(), web.listeners.listen(LOCAL) as mounts:
        mounts.mount("/large", says(b"x" * 5_000_000), title="L")
        client = await web.connect(client_context())
        assert (await client.get("/large"))[1] == "x" * 5_000_000


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
async def test_curl_with_a_client_certificate_is_served(web: Web) -> None:
    web.trust("clients")
    web.secure(REQUIRE, CA)
    web.pair(TRUSTED, "client")
    authority("server").cert_pem.write_to_path(str(web.folder / "server-ca.crt"))
    async with web.serving():
        process = await asyncio.create_subprocess_exec(
            "curl", "-sS", "--cacert", "server-ca.crt", "--cert", "client.crt",
            "--key", "client.key", f"https://127.0.0.1:{web.port}/metrics",
            cwd=web.folder, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, _ = await process.communicate()
    assert (process.returncode, out) == (0, b"page")


async def test_a_certificate_and_a_password_can_both_be_required(web: Web) -> None:
    web.trust("clients")
    web.secure("client_auth_type: RequireAndVerifyClientCert", "client_ca_file: ca.crt")
    with web.path.open("a") as file:
        file.write(f"basic_auth_users:\n  alice: {hashed('correct horse')}\n")
    context = client_context(certificate("clients", "p.example.org"))
    async with web.serving():
        assert (await web.scrape(context))[0] == 401
        assert (await web.scrape(context, basic("alice", "correct horse")))[0] == 200
