"""`podgpu topology` queries a daemon with TLS, client certificates and passwords."""

from datetime import UTC, datetime, timedelta

import pytest

from pipeline.base.errors import ComponentError
from podgpu.cli import daemon_client
from podgpu.cli.client_options import Access, CredentialOption
from tests.podgpu.cli.topology_command import CREDENTIAL, USER, daemon, password_lines, query
from tests.support.web import Web, authority, certificate

CA_FILE = ("--ca-file", "server-ca.crt")
PAIR = ("--cert-file", "client.crt", "--key-file", "client.key")
MUTUAL = ("client_auth_type: RequireAndVerifyClientCert", "client_ca_file: ca.crt")


# -- accepted


async def test_a_certificate_of_a_private_authority_is_trusted_by_ca_file(
    web: Web, capsys: pytest.CaptureFixture[str]
) -> None:
    web.secure()
    async with daemon(web_config=web.path) as port:
        status, out, err = await query(capsys, f"https://127.0.0.1:{port}", *CA_FILE)
    assert (status, err) == (0, "")
    assert "ml/train-0" in out


async def test_insecure_accepts_any_certificate(
    web: Web, capsys: pytest.CaptureFixture[str]
) -> None:
    web.pair(certificate("strangers", "elsewhere.example.org"))
    web.secure()
    async with daemon(web_config=web.path) as port:
        status, _, err = await query(capsys, f"https://127.0.0.1:{port}", "--insecure")
    assert (status, err) == (0, "")


@pytest.mark.parametrize("newest", ["TLS12", "TLS13"])
async def test_a_client_certificate_is_sent(
    web: Web, capsys: pytest.CaptureFixture[str], newest: str
) -> None:
    web.secure(*MUTUAL, f"max_version: {newest}")
    async with daemon(web_config=web.path) as port:
        status, _, err = await query(capsys, f"https://127.0.0.1:{port}", *CA_FILE, *PAIR)
    assert (status, err) == (0, "")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_password_is_sent_over_plain_http_on_this_machine(
    web: Web, capsys: pytest.CaptureFixture[str], host: str
) -> None:
    web.write(*password_lines(web))
    async with daemon(web_config=web.path) as port:
        status, _, err = await query(capsys, f"http://{host}:{port}", *USER)
    assert (status, err) == (0, "")


async def test_certificates_and_passwords_can_be_combined_before_or_after_best(
    web: Web, capsys: pytest.CaptureFixture[str]
) -> None:
    web.secure(*MUTUAL)
    web.write(*web.path.read_text().splitlines(), *password_lines(web))
    async with daemon(web_config=web.path) as port:
        words = (*CA_FILE, *PAIR, *USER)
        url = f"https://127.0.0.1:{port}"
        after = await query(capsys, url, "best", "-n", "2", *words)
        before = await query(capsys, url, *words, "best", "-n", "2")
    assert after == before
    assert after[0] == 0
    assert len(after[1].splitlines()) == 2


async def test_variables_replace_options(
    web: Web, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    web.secure(*MUTUAL)
    web.write(*web.path.read_text().splitlines(), *password_lines(web))
    for name, value in {
        "CA_FILE": "server-ca.crt",
        "CERT_FILE": "client.crt",
        "KEY_FILE": "client.key",
        "USER": "me",
        "PASSWORD": CREDENTIAL,
    }.items():
        monkeypatch.setenv(f"PODGPU_{name}", value)
    async with daemon(web_config=web.path) as port:
        status, _, err = await query(capsys, f"https://127.0.0.1:{port}", "best", "-n", "1")
    assert status == 0, err


# -- refused, and the error


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "the server's certificate is not trusted; give the certificate of the authority"),
        (
            ("--ca-file", "strangers-ca.crt"),
            "the server's certificate is not trusted; --ca-file strangers-ca.crt must contain the",
        ),
    ],
)
async def test_a_server_certificate_that_is_not_trusted_is_refused(
    web: Web, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], why: str
) -> None:
    web.secure()
    async with daemon(web_config=web.path) as port:
        url = f"https://127.0.0.1:{port}"
        status, out, err = await query(capsys, url, *words)
    assert (status, out) == (1, "")
    assert err.startswith(f"podgpu: {url}: {why}")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_server_certificate_for_another_host_is_refused(
    web: Web, capsys: pytest.CaptureFixture[str], host: str
) -> None:
    web.pair(certificate("server", "node-1.example.org"))
    web.secure()
    async with daemon(web_config=web.path) as port:
        status, _, err = await query(capsys, f"https://{host}:{port}", *CA_FILE)
    assert status == 1
    assert f"the server's certificate is not valid for {host}; use a host name or address" in err


async def test_the_common_name_of_a_certificate_is_ignored(
    web: Web, capsys: pytest.CaptureFixture[str]
) -> None:
    web.pair(authority("server").issue_cert(common_name="localhost"))
    web.secure()
    async with daemon(web_config=web.path) as port:
        status, out, err = await query(capsys, f"https://localhost:{port}", *CA_FILE)
    assert (status, out) == (1, "")
    assert "certificate's subjectAltName (the common name does not count)" in err


@pytest.mark.parametrize(
    ("begins", "ends", "why"),
    [(-9, -1, "has expired; renew it"), (1, 9, "is not valid yet; renew it, or correct")],
)
async def test_a_server_certificate_that_is_expired_or_not_yet_valid_is_refused(
    web: Web, capsys: pytest.CaptureFixture[str], begins: int, ends: int, why: str
) -> None:
    now = datetime.now(UTC)
    first, last = now + timedelta(days=begins), now + timedelta(days=ends)
    web.pair(authority("server").issue_cert("127.0.0.1", not_before=first, not_after=last))
    web.secure()
    async with daemon(web_config=web.path) as port:
        status, _, err = await query(capsys, f"https://127.0.0.1:{port}", *CA_FILE)
    assert status == 1
    assert f"the server's certificate {why}" in err


@pytest.mark.parametrize(
    ("words", "more", "why"),
    [
        ((), (), "the server may require a client certificate: give --cert-file and --key-file"),
        (
            ("--cert-file", "stranger.crt", "--key-file", "stranger.key"),
            (),
            "check that the server accepts the client certificate of --cert-file stranger.crt",
        ),
        (
            PAIR,
            ("client_allowed_sans: [someone.example.org]",),
            "check that the server accepts the client certificate of --cert-file client.crt",
        ),
    ],
)
async def test_a_missing_or_wrong_client_certificate_is_the_likely_cause(
    web: Web,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    more: tuple[str, ...],
    why: str,
) -> None:
    # TLS 1.2 fails in the handshake, TLS 1.3 with the first response.
    for newest in ("TLS12", "TLS13"):
        web.secure(*MUTUAL, *more, f"max_version: {newest}")
        async with daemon(web_config=web.path) as port:
            url = f"https://127.0.0.1:{port}"
            result = await query(capsys, url, *CA_FILE, *words)
        assert result == (
            1,
            "",
            f"podgpu: {url}: the server closed the connection without a response; {why}\n",
        )


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (
            (),
            (
                "authentication required: user name and password; give --user, and --password-file "
                "or the variable"
            ),
        ),
        (
            ("--user", "me", "--password-file", "wrong"),
            "wrong user name or password; check that --user me and --password-file wrong match",
        ),
    ],
)
async def test_a_missing_or_wrong_password_is_reported(
    web: Web, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], why: str
) -> None:
    web.write(*password_lines(web))
    async with daemon(web_config=web.path) as port:
        url = f"http://127.0.0.1:{port}"
        status, out, err = await query(capsys, url, *words)
    assert (status, out) == (1, "")
    assert err.startswith(f"podgpu: {url}/topology responded with status 401: {why}")


async def test_plain_http_to_a_server_with_tls_is_an_error(
    web: Web, capsys: pytest.CaptureFixture[str]
) -> None:
    web.secure()
    async with daemon(web_config=web.path) as port:
        _, _, err = await query(capsys, f"http://127.0.0.1:{port}")
    assert (
        "the server closed the connection without a response; if the server uses TLS, give an https://"
        in err
    )


async def test_https_to_a_server_without_tls_is_an_error(
    web: Web, capsys: pytest.CaptureFixture[str]
) -> None:
    async with daemon() as port:
        _, _, err = await query(capsys, f"https://127.0.0.1:{port}", *CA_FILE)
    assert "the server does not use TLS; give an http:// address if it is a podgpu daemon" in err


# -- refused without a request


@pytest.mark.parametrize(
    "url", ["http://node-1.example.org:9400", "http://192.0.2.1", "http://[2001:db8::1]:9400"]
)
async def test_no_password_is_sent_over_plain_http_to_another_machine(
    web: Web, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setattr("http.client.HTTPConnection", None)
    status, _, err = await query(capsys, url, *USER)
    assert status == 2
    assert "over plain HTTP the password could be read on the network; give an https://" in err


@pytest.mark.parametrize(
    ("url", "insecure", "allowed"),
    [
        ("http://node-1:9400", False, False),
        ("http://node-1:9400", True, True),
        ("http://127.0.0.1", False, True),
        ("http://127.8.9.1:1", False, True),
        ("http://[::1]", False, True),
        ("http://LOCALHOST:9400", False, True),
        ("http://localhost.example.org", False, False),
        ("http://0.0.0.0", False, False),
        ("https://node-1:9400", False, True),
    ],
)
def test_addresses_to_which_a_password_may_be_sent(url: str, insecure: bool, allowed: bool) -> None:
    user, password = (
        CredentialOption("me", "--user", option=True),
        CredentialOption(CREDENTIAL, "x", option=False),
    )
    access = Access(user=user, password=password, insecure=insecure)
    try:
        daemon_client._check_access(daemon_client._address(url), access)
    except ComponentError:
        assert not allowed
    else:
        assert allowed


@pytest.mark.parametrize("words", [CA_FILE, PAIR])
async def test_options_for_tls_need_an_https_address(
    web: Web, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    status, _, err = await query(capsys, "http://127.0.0.1:1", *words)
    assert status == 2
    assert f"{words[0]} is for TLS: give --url https://HOST:PORT, not http://127.0.0.1:1" in err


async def test_variables_for_tls_are_ignored_with_plain_http(
    web: Web, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODGPU_CA_FILE", "none")
    async with daemon() as port:
        assert (await query(capsys, f"http://127.0.0.1:{port}"))[0] == 0


@pytest.mark.parametrize("url", ["localhost:9400", "10.0.0.1:80", "gpu-1.example:9400"])
def test_an_address_without_a_scheme_means_http(url: str) -> None:
    assert daemon_client.place(url) == f"http://{url}"
