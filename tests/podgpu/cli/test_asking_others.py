"""`podgpu topology` asks what is no daemon, or answers what can't be used."""

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
from tests.podgpu.cli.asked import KEPT, USER, ask, daemon, given_out, guard
from tests.support.web import Web, certificate


def answering(status: int, headers: Mapping[str, str], body: bytes = b"no\n") -> Pages:
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
    async with daemon(answering(302, {"Location": location})) as port:
        url = f"http://127.0.0.1:{port}"
        status, out, err = await given_out(capsys, url, *USER)
    assert (status, out) == (1, "")
    to = place.format(url=url)
    assert f"{url}/topology answers 302 and redirects to {to}; podgpu does not follow" in err
    assert "token" not in err


@pytest.mark.parametrize("headers", [{}, {"Location": ""}, {"Location": "http://[::1"}])
async def test_a_redirect_to_nowhere(
    web: Web, capsys: pytest.CaptureFixture[str], headers: dict[str, str]
) -> None:
    async with daemon(answering(302, headers)) as port:
        _, _, err = await given_out(capsys, f"http://127.0.0.1:{port}")
    assert "answers 302: no\n" in err


async def test_who_is_forbidden(web: Web, capsys: pytest.CaptureFixture[str]) -> None:
    async with daemon(answering(403, {})) as port:
        _, _, err = await given_out(capsys, f"http://127.0.0.1:{port}", *USER)
    assert "answers 403: no; check that access control there allows this user or" in err


async def test_words_of_others_stay_on_one_line(
    web: Web, capsys: pytest.CaptureFixture[str]
) -> None:
    body = b"\x1b[2Ja\nb\r\n" + b"x" * 9999
    async with daemon(answering(500, {}, body)) as port:
        _, _, err = await given_out(capsys, f"http://127.0.0.1:{port}")
    assert len(err.splitlines()) == 1
    assert err[:-1].isprintable()
    assert len(err) < 1000


HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b2J\x08\x7f\r\u202e\u2028"
"""What a terminal acts on, or shows as something else."""


def harmless(*texts: str) -> bool:
    return all(line.isprintable() for text in texts for line in text.replace("\t", "").split("\n"))


@pytest.mark.parametrize("form", [(), ("--json",), ("--dot",)])
async def test_a_page_for_the_terminal_keeps_its_lines_and_nothing_a_terminal_acts_on(
    web: Web, capsys: pytest.CaptureFixture[str], form: tuple[str, ...]
) -> None:
    body = f"  a\n├─ {HOSTILE}GPU 0\n└─ GPU 1\n"
    async with daemon(answering(200, {}, body.encode())) as port:
        status, out, _ = await given_out(capsys, f"http://127.0.0.1:{port}", *form)
    assert (status, harmless(out)) == (0, True)
    first, second, *rest = out.split("\n")
    assert (first, rest) == ("  a", ["└─ GPU 1", ""])
    assert second.startswith("├─ ")
    assert second.endswith("GPU 0")


@pytest.mark.parametrize("form", [(), ("--json",)])
async def test_a_choice_for_the_terminal_likewise(
    web: Web, capsys: pytest.CaptureFixture[str], form: tuple[str, ...]
) -> None:
    answer = {"gpus": [{"index": 3, "uuid": f"GPU-\n{HOSTILE}"}], "why": HOSTILE, "x": HOSTILE}
    for body in (orjson.dumps(answer), json.dumps(answer).encode()):
        async with saying(page(body)) as url:
            status, out, err = await given_out(capsys, url, "best", "-n", "1", *form)
        assert (status, harmless(out, err)) == (0, True)
        assert len(out.splitlines()) == 1
        assert out.startswith("{" if form else "3\tGPU-")


async def test_an_answer_is_printed_however_deep_it_is(
    web: Web, capsys: pytest.CaptureFixture[str]
) -> None:
    body = b'{"gpus": [], "why": "x", "x": ' + b"[" * 300 + b"]" * 300 + b"}"
    async with saying(page(body)) as url:
        said = await given_out(capsys, url, "best", "-n", "1", "--json")
    assert said == (3, f"{body.decode()}\n", "")


@pytest.mark.parametrize("status", [302, 400, 401, 403, 500])
@pytest.mark.parametrize("body", ["", HOSTILE])
async def test_errors_for_the_terminal_likewise(
    web: Web, capsys: pytest.CaptureFixture[str], status: int, body: str
) -> None:
    head = f"{status} Bad\x1b[2J\x9b2J\r\nLocation: http://a:{KEPT}@\x1b[2Jb/x?t=1"
    async with saying(page(body.encode(), head.encode("latin-1"))) as url:
        _, out, err = await given_out(capsys, url)
        with pytest.raises(ComponentError) as caught:
            await asyncio.to_thread(daemon_client.get, url, "/topology", {})
    assert (out, err) == ("", f"podgpu: {caught.value}\n")
    assert err[:-1].isprintable()
    assert "t=1" not in err
    assert err.startswith(f"podgpu: {url}/topology answers {status}") or status == 400


@pytest.mark.parametrize("words", [("--url", "http://h:1/a\x9bb"), ("--recording", "a\x1b[2J")])
async def test_what_the_user_wrote_likewise(
    web: Web, capsys: pytest.CaptureFixture[str], words: tuple[str, str]
) -> None:
    status, out, err = await ask(capsys, *words)
    assert (status in (1, 2), out, harmless(err)) == (True, "", True)
    assert "a [2J" in err or "a b" in err


def test_an_address_likewise() -> None:
    assert daemon_client.place("http://h:1/a\x9bb/?#") == "http://h:1/a b/"


def page(body: bytes, head: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (head, len(body), body)


@asynccontextmanager
async def saying(
    *pieces: bytes, pause: float = 0, ends: bool = False, tls: bool = False
) -> AsyncIterator[str]:
    """A server that says the same to everybody, piece by piece; its URL."""

    async def served(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
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


@pytest.mark.parametrize("begun", [(), (HEAD,), (HEAD, b"half")])
async def test_a_server_that_falls_silent(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, begun: tuple[bytes, ...]
) -> None:
    monkeypatch.setattr(daemon_client, "_TIMEOUT_S", 0.3)
    async with saying(*begun) as url:
        said = await given_out(capsys, url)
    why = "no answer within 0.3 s; check that the address is right and reachable"
    assert said == (1, "", f"podgpu: {url}: {why}\n")


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("begun", [b"HTTP/1.1 200 OK\r\nX: ", HEAD])
async def test_a_server_that_never_comes_to_an_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, begun: bytes, tls: bool
) -> None:
    monkeypatch.setattr(daemon_client, "_TIMEOUT_S", 0.5)
    async with saying(begun, *[b"x"] * 500, pause=0.05, tls=tls) as url:
        async with asyncio.timeout(15):
            status, _, err = await given_out(capsys, url, "--insecure")
    assert status == 1
    assert "no answer within 0.5 s" in err


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"SSH-2.0-x\r\n", "the response is invalid: BadStatusLine"),
        (HEAD + b"half", "the response is invalid: IncompleteRead"),
        (b"", "the server closed the connection without a response"),
    ],
)
async def test_servers_of_another_kind(
    capsys: pytest.CaptureFixture[str], data: bytes, why: str
) -> None:
    async with saying(data, ends=True) as url:
        status, out, err = await given_out(capsys, url)
    assert (status, out) == (1, "")
    assert f"{url}: {why}" in err


@pytest.mark.parametrize(
    ("given", "scheme"),
    [("wrong", "http"), ("none", "http"), ("password", "https"), ("password", "ftp")],
)
async def test_no_password_in_the_text_of_an_error(web: Web, given: str, scheme: str) -> None:
    web.write(*guard(web))
    access = Access(
        user=CredentialOption("me", "--user", option=True),
        password_file=CredentialOption(given, "--password-file", option=True),
    )
    async with daemon(web_config=web.path) as port:
        with pytest.raises(ComponentError) as caught:
            await asyncio.to_thread(
                daemon_client.get, f"{scheme}://127.0.0.1:{port}", "/topology", {}, access
            )
    assert KEPT not in "".join(traceback.format_exception(caught.value))
