"""Tests of the schema of the web configuration file, and of its error messages."""

import string
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.errors import ConfigError
from config.loader import parse_struct
from pipeline.http.access.cipher_names import ALWAYS, SUITES
from pipeline.http.access.web_config_schema import HttpServer, RateLimit, TlsServer, WebOptions
from tests.support.examples import examples

HASH = "$2y$10$X0h1gDsPszWURQaxFh.zoubFi6DXncSjhoQNJgRrnGs7EsimhC7zG"
PAIR = "  cert_file: a.crt\n  key_file: a.key\n"


def parsed(text: str) -> WebOptions:
    return parse_struct(text, WebOptions, origin="web.yml")


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parsed(text)
    return str(caught.value).splitlines()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing yet\n",
        "{}",
        "tls_server_config:\nbasic_auth_users:\nhttp_server_config:\nrate_limit:\n",
        "tls_server_config: {}",
        'tls_server_config: {cert_file: "", key_file: "", client_auth_type: ""}',
    ],
)
def test_an_empty_file_sets_neither_tls_nor_passwords(text: str) -> None:
    options = parsed(text)
    assert options.tls is None
    assert not options.basic_auth_users


def test_all_keys_are_read() -> None:
    options = parsed(
        f"""
tls_server_config:
  cert_file: tls.crt
  key_file: /etc/tls.key
  client_auth_type: RequireAndVerifyClientCert
  client_ca_file: ca.crt
  client_allowed_sans: [prometheus, 10.0.0.1]
  min_version: TLS12
  max_version: TLS13
  cipher_suites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, TLS_AES_128_GCM_SHA256]
  prefer_server_cipher_suites: false
  curve_preferences: [CurveP256, X25519]
http_server_config:
  http2: false
  headers:
    Content-Security-Policy: default-src 'self'
    X-Frame-Options: deny
    X-Content-Type-Options: nosniff
    X-XSS-Protection: "1"
    Strict-Transport-Security: max-age=31536000
basic_auth_users:
  prometheus: {HASH}
  007: '{HASH}'
rate_limit:
  interval: 100ms
  burst: 20
"""
    )
    assert options.tls == TlsServer(
        cert_file="tls.crt",
        key_file="/etc/tls.key",
        client_auth_type="RequireAndVerifyClientCert",
        client_ca_file="ca.crt",
        client_allowed_sans=("prometheus", "10.0.0.1"),
        min_version="TLS12",
        max_version="TLS13",
        cipher_suites=("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256"),
        prefer_server_cipher_suites=False,
        curve_preferences=("CurveP256", "X25519"),
    )
    assert options.http_server_config == HttpServer(
        http2=False,
        headers={
            "Content-Security-Policy": "default-src 'self'",
            "X-Frame-Options": "deny",
            "X-Content-Type-Options": "nosniff",
            "X-XSS-Protection": "1",
            "Strict-Transport-Security": "max-age=31536000",
        },
    )
    assert options.basic_auth_users == {"prometheus": HASH, "007": HASH}
    assert options.rate_limit == RateLimit(interval="100ms", burst=20)
    assert options.rate_limit.seconds == pytest.approx(0.1)


def test_environment_variables_are_not_expanded() -> None:
    assert parsed("tls_server_config:\n  cert: '${X}'\n  key: '$${Y}'\n").tls == TlsServer(
        cert="${X}", key="$${Y}"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1", ["web.yml:1:1: a: unknown key; the keys are tls_server_config, "]),
        ("[1]", ["web.yml:1:1: expected a mapping, found a list"]),
        ("a: [", ["web.yml:2:1: not valid YAML: "]),
        (
            f"tls_server_config:\n{PAIR}  min_version: TLS9\n",
            ["web.yml:4:16: tls_server_config.min_version: expected one of TLS10, "],
        ),
        (
            f"tls_server_config:\n{PAIR}  max_version: TLS11\n",
            ["web.yml:4:16: tls_server_config.max_version: TLS11 is not supported: the lowest is "],
        ),
        (
            f"tls_server_config:\n{PAIR}  min_version: TLS13\n  max_version: TLS12\n",
            ["web.yml:5:16: tls_server_config.max_version: lower than min_version"],
        ),
        (
            "tls_server_config:\n  client_auth_type: NoClientCert\n",
            [
                "web.yml:2:3: tls_server_config.cert_file: missing: TLS needs cert_file or cert",
                "web.yml:2:3: tls_server_config.key_file: missing: TLS needs key_file or key",
            ],
        ),
        (
            "tls_server_config:\n  cert_file: a\n",
            ["web.yml:2:3: tls_server_config.key_file: missing"],
        ),
        (
            f"tls_server_config:\n{PAIR}  client_auth_type: Require\n",
            ["web.yml:4:21: tls_server_config.client_auth_type: expected one of NoClientCert, Re"],
        ),
        (
            f"tls_server_config:\n{PAIR}  client_ca_file: a\n",
            ["web.yml:4:19: tls_server_config.client_ca_file: has no effect without client_auth_"],
        ),
        (
            f"tls_server_config:\n{PAIR}  client_ca: a\n  client_auth_type: NoClientCert\n",
            ["web.yml:4:14: tls_server_config.client_ca: has no effect without client_auth_type"],
        ),
        (
            (
                f"tls_server_config:\n{PAIR}  client_ca: a\n"
                "  client_auth_type: VerifyClientCertIfGiven\n  client_allowed_sans: [a]\n"
            ),
            ["web.yml:6:24: tls_server_config.client_allowed_sans: has an effect only if "],
        ),
        (
            f"tls_server_config:\n{PAIR}  client_allowed_sans: []\n",
            ["web.yml:4:24: tls_server_config.client_allowed_sans: has an effect only if "],
        ),
        (
            f"tls_server_config:\n{PAIR}  cipher_suites: [TLS_RSA_WITH_AES_128_GCM_SHA265]\n",
            [
                (
                    "web.yml:4:18: tls_server_config.cipher_suites: TLS_RSA_WITH_AES_128_GCM_SHA265"
                    " is not a known cipher suite; did you mean TLS_RSA_WITH_AES_128_GCM_SHA256?"
                )
            ],
        ),
        (
            (
                f"tls_server_config:\n{PAIR}  cipher_suites: [TLS_AES_128_GCM_SHA256]\n"
                "  max_version: TLS12\n"
            ),
            ["web.yml:4:18: tls_server_config.cipher_suites: none of them is for TLS 1.2"],
        ),
        (
            f"tls_server_config:\n{PAIR}  curve_preferences: [P256]\n",
            ["web.yml:4:23: tls_server_config.curve_preferences[0]: expected one of CurveP256, "],
        ),
        (
            "http_server_config:\n  headers:\n    Cache-Control: no-store\n",
            ["web.yml:3:20: http_server_config.headers.Cache-Control: can't be set; allowed are "],
        ),
        (
            "http_server_config:\n  headers:\n    X-Frame-Options: allow\n",
            ["web.yml:3:22: http_server_config.headers.X-Frame-Options: must be deny or same"],
        ),
        (
            'http_server_config:\n  headers:\n    X-XSS-Protection: "1\\r\\nA: b"\n',
            ["web.yml:3:23: http_server_config.headers.X-XSS-Protection: a header must be print"],
        ),
        (
            "basic_auth_users:\n  alice: hunter2\n",
            ["web.yml:2:10: basic_auth_users.alice: must be a bcrypt hash, as htpasswd "],
        ),
        (
            f"basic_auth_users:\n  a: {HASH}\n  b: {HASH.replace('$10$', '$31$')}\n",
            ["web.yml:3:6: basic_auth_users.b: the cost 31 is not from 4 to 20: hash the pass"],
        ),
        (
            f"basic_auth_users:\n  'a:b': {HASH}\n",
            ['web.yml:2:10: basic_auth_users."a:b": a user name can\'t contain a colon'],
        ),
        ("basic_auth_users:\n  alice:\n", ["web.yml:2:9: basic_auth_users.alice: expected a text"]),
        ("rate_limit:\n  interval: 10\n", ['web.yml:2:13: rate_limit.interval: "10" has no unit']),
        ("rate_limit:\n  interval: 1s\n", ["web.yml:2:3: rate_limit.burst: must be 1 or more"]),
    ],
)
def test_an_invalid_file_is_refused_with_the_position_of_the_error(
    text: str, expected: list[str]
) -> None:
    found = problems(text)
    assert len(found) == len(expected)
    for line, start in zip(found, expected, strict=True):
        assert line.startswith(start)


@pytest.mark.parametrize("interval", ["0", "0s", '""'])
def test_an_interval_of_zero_sets_no_rate_limit(interval: str) -> None:
    limit = parsed(f"rate_limit:\n  interval: {interval}\n").rate_limit
    assert limit is not None
    assert limit.seconds == 0


@pytest.mark.parametrize("secret", ["hunter2", "$2y$10$tooshort", "s3cr3t: x", "[hunter2]"])
def test_no_message_contains_a_possible_password(secret: str) -> None:
    (line,) = problems(f"basic_auth_users:\n  alice: {secret!r}\n")
    assert secret not in line
    assert "hunter2" not in line


@pytest.mark.parametrize(
    ("keys", "warning"),
    [
        ("min_version: TLS10", "min_version: TLS10 is not supported; "),
        ("client_auth_type: RequestClientCert", "client_auth_type: podgpu requests no certificate"),
        (
            "client_auth_type: RequireAnyClientCert",
            "client_auth_type: RequireAnyClientCert accepts",
        ),
        (
            "client_auth_type: RequireClientCert",
            "client_auth_type: RequireClientCert accepts any c",
        ),
        (
            "client_auth_type: VerifyClientCertIfGiven",
            "client_auth_type: VerifyClientCertIfGiven without client_ca_file accepts the certific",
        ),
        (
            "client_auth_type: RequireAndVerifyClientCert",
            "client_auth_type: RequireAndVerifyClientCert without client_ca_file accepts the certi",
        ),
        ("cert: PEM", "cert: has no effect, because cert_file is set too"),
        ("key: PEM", "key: has no effect, because key_file is set too"),
        (
            "curve_preferences: [X25519, CurveP256]",
            "curve_preferences: the TLS library accepts only one curve",
        ),
    ],
)
def test_settings_without_full_effect_cause_a_warning(keys: str, warning: str) -> None:
    (found,) = parsed(f"tls_server_config:\n{PAIR}  {keys}\n").warnings()
    assert found.startswith(warning)
    assert not list(parsed(f"tls_server_config:\n{PAIR}").warnings())


def test_http2_causes_a_warning_if_it_is_requested() -> None:
    assert list(parsed("http_server_config: {http2: true}").warnings())
    assert not list(parsed("http_server_config: {http2: false}").warnings())


def test_cipher_suites_of_tls_1_3_only_disable_older_versions() -> None:
    assert TlsServer(cipher_suites=ALWAYS).only_newest
    assert not TlsServer(cipher_suites=(*ALWAYS, next(iter(SUITES)))).only_newest
    assert not TlsServer().only_newest


WORDS = [
    "tls_server_config", "cert", "key_file", "client_auth_type", "RequireAndVerifyClientCert",
    "client_allowed_sans", "cipher_suites", "TLS_AES_128_GCM_SHA256", "min_version", "TLS13",
    "http_server_config", "headers", "X-Frame-Options", "basic_auth_users", HASH, "rate_limit",
    "interval", "burst", "1s", ":", ": ", "\n", "\n  ", "[", "]", "{", "}", ",", "- ", "&a ", "*a",
    "!x ", "'", '"', "|", ">", "#", "\t", "\0", "\x85", "${X}", "null", "~", "0x", "-1", "1e9",
]  # fmt: skip


@given(
    st.one_of(
        st.text(),
        st.binary(),
        st.lists(st.one_of(st.sampled_from(WORDS), st.text(string.printable, max_size=3)))
        .map("".join),
    )
)  # fmt: skip
@settings(max_examples=examples(200), deadline=None)
def test_any_text_is_a_web_config_or_a_config_error(text: str | bytes) -> None:
    try:
        found: object = parse_struct(text, WebOptions, origin="web.yml")
    except ConfigError as error:
        found = error.problems
    assert found


def test_the_documentation_names_every_key() -> None:
    page = (Path(__file__).parents[4] / "docs" / "web-config.md").read_text(encoding="utf-8")
    for options in (WebOptions, TlsServer, HttpServer, RateLimit):
        for key in options.__struct_fields__:
            assert f"`{key}`" in page, key
    for suite in SUITES:
        assert f"`{suite}`" in page, suite
