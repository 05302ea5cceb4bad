"""Tests of GET requests: pages, errors and their messages, TLS, secrets and proxies."""

import asyncio
import base64
import gzip
from pathlib import Path

import pytest

from pipeline.base.errors import TransientError
from pipeline.net.http_get import fetch, tls
from tests.support.pages import Answer, PageServer, authority, hangs, says, streams


async def test_a_page_is_fetched_with_the_expected_request_headers() -> None:
    async with PageServer(says("a 1\n")).serving() as server:
        page = await fetch(server.url, timeout=5, most=100, headers={"Accept": "text/plain"})
    assert page == b"a 1\n"
    [head] = server.heads
    assert head.startswith("GET /metrics HTTP/1.1\r\n")
    assert "Accept-Encoding: identity\r\n" in head
    assert "Accept: text/plain\r\n" in head
    assert "User-Agent: podgpu/" in head


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        pytest.param(says("", "404 Not Found"), "answered 404 Not Found; check the path", id="404"),
        pytest.param(says("", "401 No"), "401 No; check the user name, password", id="401"),
        pytest.param(says("", "500 Oh\tno"), "500 Oh no; check the log", id="500"),
        pytest.param(says("", "299 Odd"), "answered 299 Odd", id="odd"),
        pytest.param(
            says("", "302 Found", "Location: http://x/y"), "redirects: http://x/y", id="redirect"
        ),
        pytest.param(says("x" * 101), "larger than 100 bytes", id="large"),
        pytest.param(streams(b"x" * 60), "larger than 100 bytes", id="endless"),
        pytest.param(
            says(gzip.compress(b"a"), "200 OK", "Content-Encoding: gzip"), "compressed", id="packed"
        ),
        pytest.param(hangs, "no complete response within 0.2 s; check the address", id="silent"),
        pytest.param(says("abc", length=50), "no complete response within", id="incomplete"),
        pytest.param(says("", "200 OK", "x" * 70_000), "check|400", id="head too long"),
    ],
)
async def test_an_unusable_response_is_an_error_that_names_the_fix(
    answer: Answer, message: str
) -> None:
    async with PageServer(answer).serving() as server:
        with pytest.raises(TransientError, match=message) as caught:
            await fetch(server.url, timeout=0.2, most=100)
        assert str(caught.value).startswith(f"{server.url}: ")
        assert "\n" not in str(caught.value)


async def cut_off(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc")
    await writer.drain()
    writer.close()


async def not_http(writer: asyncio.StreamWriter) -> None:
    writer.write(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")
    await writer.drain()
    writer.close()


@pytest.mark.parametrize("answer", [cut_off, not_http])
async def test_a_broken_connection_is_an_error_that_names_the_url(answer: Answer) -> None:
    async with PageServer(answer).serving() as server:
        with pytest.raises(TransientError, match=server.url):
            await fetch(server.url, timeout=5, most=100)


async def test_an_unreachable_server_is_a_transient_error(unused_tcp_port: int) -> None:
    url = f"http://127.0.0.1:{unused_tcp_port}/metrics"
    with pytest.raises(TransientError, match="check that the server runs"):
        await fetch(url, timeout=5, most=100)


async def test_the_same_error_has_the_same_text(unused_tcp_port: int) -> None:
    """Callers log an error once: they recognize it by its text."""
    url = f"https://127.0.0.1:{unused_tcp_port}/metrics"
    contexts = [await asyncio.to_thread(tls) for _ in range(2)]
    messages = []
    for context in contexts:
        with pytest.raises(TransientError) as caught:
            await fetch(url, timeout=5, most=100, context=context)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    assert "object at" not in messages[0]


class TestTls:
    @pytest.fixture
    def ca_file(self, tmp_path: Path) -> Path:
        path = tmp_path / "ca.pem"
        authority().cert_pem.write_to_path(path)
        return path

    async def test_the_server_certificate_is_checked_with_ca_file(self, ca_file: Path) -> None:
        async with PageServer(says("a 1\n"), secure=True).serving() as server:
            context = await asyncio.to_thread(tls, ca_file)
            assert await fetch(server.url, timeout=5, most=9, context=context) == b"a 1\n"
            with pytest.raises(TransientError, match="TLS failed"):
                await fetch(server.url, timeout=5, most=9)

    async def test_an_insecure_context_accepts_any_certificate(self) -> None:
        async with PageServer(says("a 1\n"), secure=True).serving() as server:
            context = await asyncio.to_thread(lambda: tls(insecure=True))
            assert await fetch(server.url, timeout=5, most=9, context=context) == b"a 1\n"

    async def test_a_server_without_tls_is_an_error(self) -> None:
        async def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()

        server = await asyncio.start_server(refuse, "127.0.0.1", 0)
        async with server:
            url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/metrics"
            with pytest.raises(TransientError, match="TLS failed"):
                await fetch(url, timeout=5, most=9)

    @pytest.mark.parametrize(
        ("content", "message"),
        [(None, "no such file; check that ca_file is mounted"), ("nothing", "PEM format")],
    )
    def test_a_ca_file_without_certificates_is_an_error(
        self, tmp_path: Path, content: str | None, message: str
    ) -> None:
        path = tmp_path / "none.pem"
        if content is not None:
            path.write_text(content)
        with pytest.raises(TransientError, match=message):
            tls(path)

    def test_a_folder_as_ca_file_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(TransientError, match=str(tmp_path)):
            tls(tmp_path)


SECRET = "hunter2-and-more"  # noqa: S105 - only for this test
BASIC = base64.b64encode(f"u:{SECRET}".encode()).decode()
REQUESTS = [
    pytest.param("?token=" + SECRET, {}, [SECRET], id="query"),
    pytest.param("#" + SECRET, {}, [], id="fragment"),
    pytest.param("", {"Authorization": f"Bearer {SECRET}"}, [SECRET], id="bearer"),
    pytest.param("", {"Authorization": f"Basic {BASIC}"}, [SECRET, BASIC], id="basic"),
]


def responses_with(secret: str) -> list[Answer]:
    """Return responses that cause an error and repeat a secret of the request."""
    return [
        says("", f"401 No {secret}"),
        says("", "302 Found", f"Location: /{secret}"),
        says("", "302 Found", f"Location: /x?token={secret}"),
        says("x" * 101),
        says("a", "200 OK", "Content-Encoding: gzip"),
        cut_off,
        hangs,
    ]


QUERIES = [
    ("?token=a%2Bbcd%2Fef", ["a+bcd/ef"]),
    ("?x=1&token=a%2bbcd%2fef&y", ["a+bcd/ef"]),
    ("?token=one+two%20three", ["one two three", "one+two three"]),
    ("?token=p%C3%A4ss%3Dword", ["p\xe4ss=word"]),
    ("?a%2Bbcd%2Fef", ["a+bcd/ef"]),
    ("?token=abc%zzdef", ["abc%zzdef"]),
]


@pytest.mark.parametrize(("query", "decoded"), QUERIES)
async def test_no_encoding_of_a_query_value_is_in_a_message(query: str, decoded: list[str]) -> None:
    """The value as configured, as sent (other escapes), and as decoded."""
    async with PageServer(says("a 1\n")).serving() as server:
        await fetch(server.url + query, timeout=5, most=100)
        sent = server.heads[0].split(" ")[1].partition("?")[2]
    forms = [*decoded, query.removeprefix("?"), sent]
    forms += [word.rpartition("=")[2] for each in (query[1:], sent) for word in each.split("&")]
    for form in [each for each in forms if len(each) > 3]:
        async with PageServer(says("", f"401 No {form}!")).serving() as server:
            with pytest.raises(TransientError) as caught:
                await fetch(server.url + query, timeout=5, most=100)
        assert "401 No (concealed)!" in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize(("suffix", "headers", "secrets"), REQUESTS)
async def test_possible_secrets_of_a_request_are_in_no_message(
    suffix: str, headers: dict[str, str], secrets: list[str]
) -> None:
    """Even if a server repeats them, as they were sent or decoded."""
    for answer in [each for secret in secrets or ["nothing"] for each in responses_with(secret)]:
        async with PageServer(answer).serving() as server:
            with pytest.raises(TransientError, match=server.url) as caught:
                await fetch(server.url + suffix, timeout=0.5, most=100, headers=headers)
        message = str(caught.value)
        assert "?" not in message
        assert "#" not in message
        assert [each for each in [SECRET, *secrets] if each in message] == []


@pytest.mark.parametrize(("no_proxy", "direct"), [("", False), ("0.0.0.0/8", True)])
async def test_r16_a_page_is_fetched_through_the_proxy_of_the_variables(
    no_proxy: str, direct: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R16: requests to an exporter use the proxy variables, as all other requests do."""
    async with (
        PageServer(says("page")).serving() as server,
        PageServer(says("proxy")).serving() as p,
    ):
        monkeypatch.setenv("http_proxy", p.url.replace("//", "//u:p@"))
        monkeypatch.setenv("no_proxy", no_proxy)
        # This address reaches this machine, but is not a loopback address.
        url = server.url.replace("127.0.0.1", "0.0.0.0")  # noqa: S104
        assert await fetch(url, timeout=5, most=100) == (b"page" if direct else b"proxy")
        # A loopback address is reached without a proxy.
        assert await fetch(server.url, timeout=5, most=100) == b"page"
    assert all("Proxy-Authorization: Basic dTpw\r\n" in head for head in p.heads)
    assert len(p.heads) == (0 if direct else 1)


async def test_r16_a_proxy_that_cannot_be_used_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """R16: the message names the variable, and not the password in it."""
    monkeypatch.setenv("http_proxy", "socks5://u:secret@h:1")
    with pytest.raises(TransientError, match="the variable http_proxy sets a proxy") as caught:
        await fetch("http://exporter.test/metrics", timeout=5, most=100)
    assert "secret" not in str(caught.value)
