"""`podgpu topology` queries a server that is no daemon, or whose response is unusable."""

import asyncio
import json
import ssl
import traceback
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import orjson
import pytest

from pipeline.base.errors import ComponentError
from pipeline.component.contracts import HttpRequest, HttpResponse
from pipeline.http.builtin_pages import Pages
from podgpu.cli import daemon_client
from podgpu.cli.client_options import Access, CredentialOption
from tests.podgpu.cli.topology_command import (
    CREDENTIAL,
    USER,
    daemon,
    password_lines,
    query,
    run_in_thread,
)
from tests.support.web import Web, certificate


def responding(status: int, headers: Mapping[str, str], body: bytes = b"no\n") -> Pages:
    async def handler(_: HttpRequest) -> HttpResponse:
        return HttpResponse(body, status=status, headers=headers)

    return {"/topology": (handler, "")}


@pytest.mark.parametrize(
    ("location", "place"),
    [
        ("https://node-1.example.org/topology", "https://node-1.example.org/topology"),
        ("https://me:token@sso.example.org/in?state=token#token", "https://sso.example.org/in"),
        ("/login?next=token", "{url}/login"),
    ],
)
async def test_a_redirect_is_named_and_not_followed(
    web: Web, capsys: pytest.CaptureFixture[str], location: str, place: str
) -> None:
    async with daemon(responding(302, {"Location": location})) as port:
        url = f"http://127.0.0.1:{port}"
        status, out, err = await query(capsys, url, *USER)
    assert (status, out) == (1, "")
    to = place.format(url=url)
    found = (
        f"{url}/topology responded with status 302 and redirects to {to}; podgpu does not follow"
    )
    assert found in err
    assert "token" not in err


@pytest.mark.parametrize("headers", [{}, {"Location": ""}, {"Location": "http://[::1"}])
async def test_a_redirect_without_a_valid_location_is_an_error(
    web: Web, capsys: pytest.CaptureFixture[str], headers: dict[str, str]
) -> None:
    async with daemon(responding(302, headers)) as port:
        _, _, err = await query(capsys, f"http://127.0.0.1:{port}")
    assert "responded with status 302: no\n" in err


async def test_a_response_403_names_access_control_as_the_cause(
    web: Web, capsys: pytest.CaptureFixture[str]
) -> None:
    async with daemon(responding(403, {})) as port:
        _, _, err = await query(capsys, f"http://127.0.0.1:{port}", *USER)
    assert "status 403: no; check that access control there allows this user or" in err


async def test_the_body_of_an_error_is_shortened_to_one_printable_line(
    web: Web, capsys: pytest.CaptureFixture[str]
) -> None:
    body = b"\x1b[2Ja\nb\r\n" + b"x" * 9999
    async with daemon(responding(500, {}, body)) as port:
        _, _, err = await query(capsys, f"http://127.0.0.1:{port}")
    assert len(err.splitlines()) == 1
    assert err[:-1].isprintable()
    assert len(err) < 1000


HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b2J\x08\x7f\r\u202e\u2028"
"""Characters that control a terminal, or that it shows as something else."""


def harmless(*texts: str) -> bool:
    return all(line.isprintable() for text in texts for line in text.replace("\t", "").split("\n"))


@pytest.mark.parametrize("form", [(), ("--json",), ("--dot",)])
async def test_control_characters_are_removed_from_a_page_and_its_lines_stay(
    web: Web, capsys: pytest.CaptureFixture[str], form: tuple[str, ...]
) -> None:
    body = f"  a\n├─ {HOSTILE}GPU 0\n└─ GPU 1\n"
    async with daemon(responding(200, {}, body.encode())) as port:
        status, out, _ = await query(capsys, f"http://127.0.0.1:{port}", *form)
    assert (status, harmless(out)) == (0, True)
    first, second, *rest = out.split("\n")
    assert (first, rest) == ("  a", ["└─ GPU 1", ""])
    assert second.startswith("├─ ")
    assert second.endswith("GPU 0")


@pytest.mark.parametrize("form", [(), ("--json",)])
async def test_control_characters_are_removed_from_the_best_gpus(
    web: Web, capsys: pytest.CaptureFixture[str], form: tuple[str, ...]
) -> None:
    response = {"gpus": [{"index": 3, "uuid": f"GPU-\n{HOSTILE}"}], "why": HOSTILE, "x": HOSTILE}
    for body in (orjson.dumps(response), json.dumps(response).encode()):
        async with sending(page(body)) as url:
            status, out, err = await query(capsys, url, "best", "-n", "1", *form)
        assert (status, harmless(out, err)) == (0, True)
        assert len(out.splitlines()) == 1
        assert out.startswith("{" if form else "3\tGPU-")


async def test_a_deeply_nested_response_is_printed(
    web: Web, capsys: pytest.CaptureFixture[str]
) -> None:
    body = b'{"gpus": [], "why": "x", "x": ' + b"[" * 300 + b"]" * 300 + b"}"
    async with sending(page(body)) as url:
        result = await query(capsys, url, "best", "-n", "1", "--json")
    assert result == (3, f"{body.decode()}\n", "")


@pytest.mark.parametrize("status", [302, 400, 401, 403, 500])
@pytest.mark.parametrize("body", ["", HOSTILE])
async def test_control_characters_are_removed_from_errors(
    web: Web, capsys: pytest.CaptureFixture[str], status: int, body: str
) -> None:
    head = f"{status} Bad\x1b[2J\x9b2J\r\nLocation: http://a:{CREDENTIAL}@\x1b[2Jb/x?t=1"
    async with sending(page(body.encode(), head.encode("latin-1"))) as url:
        _, out, err = await query(capsys, url)
        with pytest.raises(ComponentError) as caught:
            await asyncio.to_thread(daemon_client.get, url, "/topology", {})
    assert (out, err) == ("", f"podgpu: {caught.value}\n")
    assert err[:-1].isprintable()
    assert "t=1" not in err
    assert err.startswith(f"podgpu: {url}/topology responded with status {status}") or status == 400


@pytest.mark.parametrize("words", [("--url", "http://h:1/a\x9bb"), ("--recording", "a\x1b[2J")])
async def test_control_characters_are_removed_from_options_in_messages(
    web: Web, capsys: pytest.CaptureFixture[str], words: tuple[str, str]
) -> None:
    status, out, err = await run_in_thread(capsys, *words)
    assert (status in (1, 2), out, harmless(err)) == (True, "", True)
    assert "a [2J" in err or "a b" in err


def test_control_characters_are_removed_from_an_address() -> None:
    assert daemon_client.place("http://h:1/a\x9bb/?#") == "http://h:1/a b/"


def page(body: bytes, head: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (head, len(body), body)


@asynccontextmanager
async def sending(
    *pieces: bytes, pause: float = 0, ends: bool = False, tls: bool = False
) -> AsyncIterator[str]:
    """Start a server that sends these pieces to every client; yield its URL."""

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            # Closing a socket with unread data resets the connection, also what was sent.
            await reader.readuntil(b"\r\n\r\n")
            for piece in pieces:
                writer.write(piece)
                await asyncio.sleep(pause)
            if not ends:
                await asyncio.sleep(3600)
        finally:
            writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if tls else None
    if context is not None:
        certificate("server", "127.0.0.1").configure_cert(context)
    server = await asyncio.start_server(served, "127.0.0.1", 0, ssl=context)
    before = asyncio.all_tasks()
    try:
        yield f"http{'s' if tls else ''}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in asyncio.all_tasks() - before:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n"


@pytest.mark.slow
@pytest.mark.parametrize("sent", [(), (HEAD,), (HEAD, b"half")])
async def test_a_server_that_stops_sending_is_a_timeout(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, sent: tuple[bytes, ...]
) -> None:
    monkeypatch.setattr(daemon_client, "_TIMEOUT_S", 0.3)
    async with sending(*sent) as url:
        result = await query(capsys, url)
    why = (
        "no complete response within 0.3 s; check the address, and that the server is reachable "
        "and not too slow"
    )
    assert result == (1, "", f"podgpu: {url}: {why}\n")


@pytest.mark.slow
@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("sent", [b"HTTP/1.1 200 OK\r\nX: ", HEAD])
async def test_a_response_that_never_ends_is_a_timeout(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, sent: bytes, tls: bool
) -> None:
    monkeypatch.setattr(daemon_client, "_TIMEOUT_S", 0.5)
    async with sending(sent, *[b"x"] * 500, pause=0.05, tls=tls) as url:
        async with asyncio.timeout(15):
            status, _, err = await query(capsys, url, "--insecure")
    assert status == 1
    assert "no complete response within 0.5 s" in err


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"SSH-2.0-x\r\n", "the response is invalid: BadStatusLine"),
        (HEAD + b"half", "the response is invalid: IncompleteRead"),
        (b"", "the server closed the connection without a response"),
    ],
)
async def test_a_server_that_does_not_speak_http_is_an_error(
    capsys: pytest.CaptureFixture[str], data: bytes, why: str
) -> None:
    async with sending(data, ends=True) as url:
        status, out, err = await query(capsys, url)
    assert (status, out) == (1, "")
    assert f"{url}: {why}" in err


@pytest.mark.parametrize(
    ("password_file", "scheme"),
    [("wrong", "http"), ("none", "http"), ("password", "https"), ("password", "ftp")],
)
async def test_no_password_in_the_text_of_an_error(
    web: Web, password_file: str, scheme: str
) -> None:
    web.write(*password_lines(web))
    access = Access(
        user=CredentialOption("me", "--user", option=True),
        password_file=CredentialOption(password_file, "--password-file", option=True),
    )
    async with daemon(web_config=web.path) as port:
        with pytest.raises(ComponentError) as caught:
            await asyncio.to_thread(
                daemon_client.get, f"{scheme}://127.0.0.1:{port}", "/topology", {}, access
            )
    assert CREDENTIAL not in "".join(traceback.format_exception(caught.value))
