"""Tests of the proxy that the environment variables set for a URL."""

import pytest

from pipeline.net.proxies import Proxy, ProxyError, proxy_for

HERE = "http://proxy:3128"


@pytest.mark.parametrize(
    ("url", "env", "variable"),
    [
        ("http://c/", {}, None),
        ("http://c/", {"http_proxy": HERE}, "http_proxy"),
        ("http://c/", {"HTTP_PROXY": HERE}, "HTTP_PROXY"),
        ("http://c/", {"https_proxy": HERE}, None),
        ("https://c/", {"https_proxy": HERE, "http_proxy": "http://x"}, "https_proxy"),
        ("https://c/", {"ALL_PROXY": HERE}, "ALL_PROXY"),
        ("https://c/", {"all_proxy": HERE, "ALL_PROXY": "http://x"}, "all_proxy"),
        ("https://c/", {"HTTPS_PROXY": HERE, "all_proxy": "http://x"}, "HTTPS_PROXY"),
        # A blank variable is ignored.
        ("http://c/", {"http_proxy": ""}, None),
        ("http://c/", {"http_proxy": "  "}, None),
        ("http://c/", {"http_proxy": "", "HTTP_PROXY": HERE}, None),
        ("http://c/", {"http_proxy": " ", "all_proxy": HERE}, "all_proxy"),
        ("http://c/", {"http_proxy": f" {HERE} "}, "http_proxy"),
        ("http://c/", {"http_proxy": HERE, "no_proxy": " "}, "http_proxy"),
    ],
)
def test_the_variable_that_applies_to_a_url(
    url: str, env: dict[str, str], variable: str | None
) -> None:
    found = proxy_for(url, env)
    assert found == (Proxy(HERE, variable) if variable else None)


@pytest.mark.parametrize(
    ("value", "url", "login"),
    [
        ("proxy:3128", "http://proxy:3128", None),
        ("http://proxy", "http://proxy", None),
        ("HTTPS://proxy:1/", "https://proxy:1", None),
        ("http://[::1]:3128", "http://[::1]:3128", None),
        ("http://user:p%40ss@proxy:1", "http://proxy:1", "Basic dXNlcjpwQHNz"),
        ("user@proxy:1", "http://proxy:1", "Basic dXNlcjo="),
    ],
)
def test_the_address_and_the_login_of_a_proxy(value: str, url: str, login: str | None) -> None:
    found = proxy_for("http://c/", {"http_proxy": value})
    assert found is not None
    assert found.url == url
    assert found.headers.get("Proxy-Authorization") == login
    assert "Basic" not in repr(found)


@pytest.mark.parametrize(
    ("entries", "url", "direct"),
    [
        ("*", "http://c/", True),
        ("a, *", "http://c/", True),
        ("c", "http://c:1/", True),
        ("C", "http://c:1/", True),
        ("c", "http://C.:1/", True),
        ("a,,b c", "http://c/", True),
        ("c", "http://ac/", False),
        ("b.c", "http://a.b.c/", True),
        (".b.c", "http://a.b.c/", True),
        ("*.b.c", "http://a.b.c/", True),
        (".svc,.cluster.local", "http://otel.monitoring.svc:4318/", True),
        ("b.c", "http://ab.c/", False),
        # With a port.
        ("c:4318", "http://c:4318/", True),
        ("c:4318", "http://c:4317/", False),
        ("c:80", "http://c/", True),
        ("c:443", "https://c/", True),
        ("c:443", "http://c/", False),
        # Addresses.
        ("10.0.0.1", "http://10.0.0.1:4318/", True),
        ("10.0.0.1", "http://10.0.0.10:4318/", False),
        ("10.0.0.1:4318", "http://10.0.0.1:4318/", True),
        ("0.0.1", "http://10.0.0.1/", False),
        ("fd00::1", "http://[fd00::1]:4318/", True),
        ("[fd00::1]", "http://[fd00::1]:4318/", True),
        ("[fd00::1]:4318", "http://[fd00::1]:4318/", True),
        ("[fd00::1]:4317", "http://[fd00::1]:4318/", False),
        ("fd00:0:0:0:0:0:0:1", "http://[fd00::1]/", True),
        ("fd00::2", "http://[fd00::1]:4318/", False),
        # Networks.
        ("10.0.0.0/8", "http://10.1.2.3:4318/", True),
        ("10.0.0.0/8", "http://11.1.2.3:4318/", False),
        ("10.1.2.3/8", "http://10.9.9.9/", True),
        ("10.0.0.0/8,192.168.0.0/16", "http://192.168.3.4/", True),
        ("fd00::/8", "http://[fd00::1]:4318/", True),
        ("fd00::/8", "http://[fe80::1]:4318/", False),
        ("10.0.0.0/8", "http://[fd00::1]/", False),
        # Host names are not resolved for this check.
        ("10.0.0.0/8", "http://c/", False),
        # Invalid entries match no host.
        ("10.0.0.0/99,[bad,:,[],.,*.", "http://10.0.0.1/", False),
        ("10.0.0.0/99,[bad,:,[],.,*.", "http://c/", False),
    ],
)
@pytest.mark.parametrize("name", ["no_proxy", "NO_PROXY"])
def test_no_proxy_selects_the_urls_without_a_proxy(
    name: str, entries: str, url: str, direct: bool
) -> None:
    found = proxy_for(url, {"all_proxy": HERE, name: entries})
    assert (found is None) == direct


@pytest.mark.parametrize(
    ("url", "direct"),
    [
        ("https://localhost:6443/", True),
        ("https://LOCALHOST.:6443/", True),
        ("http://127.0.0.1:8001/", True),
        ("http://127.9.9.9/", True),
        ("https://[::1]:6443/", True),
        ("https://localhost.test/", False),
        ("https://128.0.0.1/", False),
    ],
)
def test_r16_loopback_addresses_are_reached_without_a_proxy(url: str, direct: bool) -> None:
    """R16: a proxy can't reach the loopback of this machine. Go's clients do the same."""
    assert (proxy_for(url, {"all_proxy": HERE}) is None) == direct


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("http://[bad", "is not a proxy address: write for example http://proxy:3128"),
        ("http://", "is not a proxy address"),
        ("http://:3128", "is not a proxy address"),
        ("http://u:secret@", "is not a proxy address"),
        ("http://u:secret@h:99999", "is not a proxy address"),
        ("http://u:secret@h:x", "is not a proxy address"),
        ("http://u:secret@h:0", "is not a proxy address"),
        ("u:sec/ret@h:1", "is not a proxy address"),
        ("http://a b", "is not a proxy address"),
        ("http://a\x00b", "is not a proxy address"),
        (f"http://{64 * 'a'}:1", "is not a proxy address"),
        ("http://a..b:1", "is not a proxy address"),
        ("socks5://u:secret@h:1", "sets a proxy of the kind socks5, which is not supported"),
        ("SOCKS5h://h:1", "sets a proxy of the kind socks5h, which is not supported"),
        ("sec\nret://h:1", "sets a proxy, which is not supported"),
    ],
)
def test_an_unusable_variable_is_named_but_its_value_is_not_shown(value: str, message: str) -> None:
    with pytest.raises(ProxyError) as caught:
        proxy_for("https://c/", {"HTTPS_PROXY": value})
    text = str(caught.value)
    assert text.startswith(f"the variable HTTPS_PROXY {message}")
    assert "secret" not in text
    assert "ret@" not in text
    assert text.isprintable()


def test_an_unusable_proxy_is_no_error_for_a_host_in_no_proxy() -> None:
    env = {"all_proxy": "socks5://h:1", "no_proxy": "c"}
    assert proxy_for("http://c/", env) is None
