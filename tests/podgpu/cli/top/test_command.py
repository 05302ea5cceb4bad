"""`podgpu top` without a terminal, and its errors."""

import asyncio
import json
import os
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from pipeline.base.clock import SystemClock
from pipeline.base.errors import PermanentError, TransientError
from pipeline.component.contracts import HttpRequest, HttpResponse
from pipeline.http.builtin_pages import Pages
from pipeline.http.listener_registry import ListenerRegistry
from pipeline.model import Instant
from pipeline.status_page.endpoints import PATH, StatusPages
from pipeline.status_page.status_document import StatusDocument
from podgpu.cli.terminal_text import written
from podgpu.cli.top.command import fetch_status
from podgpu.cli.top.daemon_status import DaemonStatus
from podgpu.cli.top.poller import Poller
from tests.pipeline.status_page.scenes import SCENES, status
from tests.support.http import LOCAL, says

Result = tuple[int, str, str]
"""The exit status of a command, and its output on stdout and stderr."""


def run(capsys: pytest.CaptureFixture[str], *words: str) -> Result:
    from podgpu.cli.commands import run_command

    code = run_command(["top", *words])
    out, err = capsys.readouterr()
    return code, out, err


@asynccontextmanager
async def served(pages: Pages) -> AsyncIterator[str]:
    ok = (True, "ok")
    listeners = ListenerRegistry(
        node="n", version="0", health=lambda: ok, ready=lambda: ok, pages=pages
    )
    async with listeners.listen(LOCAL) as mounts:
        yield f"http://127.0.0.1:{mounts.port}"


def pages_of(name: str) -> Pages:
    known = SCENES[name]()
    return StatusPages(lambda: known.now, lambda: known).pages


async def query(capsys: pytest.CaptureFixture[str], pages: Pages, *words: str) -> Result:
    async with served(pages) as url:
        return await asyncio.to_thread(run, capsys, "--url", url, *words)


@pytest.mark.slow
@pytest.mark.parametrize("words", [(), ("--once",)])
async def test_the_table_is_printed_once(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    code, out, err = await query(capsys, pages_of("troubled"), *words)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith("node-1  4 GPUs: 2 up, 1 lost, 1 unknown")
    assert lines[0].endswith(" 08:10:00 UTC")
    assert lines[1].startswith(
        "critical GPU 0 is lost: it was present before and no longer responds"
    )
    assert lines[2].startswith("         advice: look for its XID errors, drain the node")
    assert len([line for line in lines if line.startswith(("critical ", "warning "))]) == 6
    assert [line.split()[0] for line in lines if line[:1] in set("0123")] == ["0", "1", "2", "3"]
    assert "ml/serve-2 (main)" in out
    assert "kubelet            podresources  down" in out
    assert "push               otlp          stuck" in out
    assert not any(line != line.rstrip() for line in lines)
    assert written(out, "ascii") == out.replace("°", " ")


async def test_all_devices_of_a_large_node_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = await query(capsys, pages_of("mig"))
    assert out.count("1g.10gb") == 56
    assert "ml/notebook-7-6-7c9d5f6b4 (jupyter)" in out


def test_a_daemon_that_does_not_run_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "--url", "http://127.0.0.1:1")
    assert (code, out) == (1, "")
    assert err == (
        "podgpu: no server responds at http://127.0.0.1:1: Connection refused; "
        "check that podgpu runs there, or give its address as --url\n"
    )


@pytest.mark.parametrize("url", ["ftp://x", "http://a:b@127.0.0.1", "http://x:y"])
def test_an_invalid_address_ends_with_status_2(
    capsys: pytest.CaptureFixture[str], url: str
) -> None:
    code, out, err = run(capsys, "--url", url)
    assert (code, out) == (2, "")
    assert err.startswith("podgpu: ")


@pytest.mark.parametrize(
    "body", ["", "ok", "[]", "{}", '{"version":1}', '{"version":1,"node":"x"}', '{"version":"x"}']
)
async def test_a_response_that_is_not_from_podgpu_is_refused(
    capsys: pytest.CaptureFixture[str], body: str
) -> None:
    code, out, err = await query(capsys, {PATH: (says(body), "")})
    assert (code, out) == (2, "")
    assert "the response is not from podgpu" in err


def altered(name: str, **changes: object) -> str:
    """Return a scene's document, with other values of its first holder or GPU, or of itself."""
    document = json.loads(msgspec.json.encode(status(name)))
    card, holder = document["gpus"][0], document["gpus"][0]["holders"][0]
    for key, value in changes.items():
        place = next(part for part in (holder, card, document) if key in part)
        place[key] = value
    return json.dumps(document)


INVALID = {
    "nested deeply": '{"version":1,"node":"x","x":' + "[" * 200_000 + "]" * 200_000 + "}",
    "a time without its zone": altered("two-gpus", time="2026-01-01T00:00:00"),
    "a holder's time without its zone": altered("two-gpus", since="2026-01-01T00:00:00"),
    "an unlimited number": altered("two-gpus", memory_used_bytes=10**400),
    "a number that is too large": altered("two-gpus", memory_used_bytes=2**63),
    "a number of too many digits": altered("two-gpus", index=7).replace(": 7,", f": {'7' * 5000},"),
    "an unlimited floating-point number": altered("two-gpus", power_watts=10**400),
    "a negative number": altered("two-gpus", memory_used_bytes=-1),
}


@pytest.mark.parametrize("fault", INVALID)
async def test_a_hostile_document_is_refused(
    capsys: pytest.CaptureFixture[str], fault: str
) -> None:
    code, out, err = await query(capsys, {PATH: (says(INVALID[fault]), "")})
    assert (code, out) == (2, "")
    assert "the response is not from podgpu" in err


ODD = "x\x1b[2J\x1b]0;y\x07\x9b31m\N{RIGHT-TO-LEFT OVERRIDE}\r\nz"


def filled(value: object) -> object:
    """Return a document with every text replaced that a user can choose."""
    if isinstance(value, dict):
        unchanged = ("time", "started", "since", "state", "version", "severity", "part")
        return {k: v if k in unchanged else filled(v) for k, v in value.items()}
    if isinstance(value, list):
        return [filled(each) for each in value]
    return ODD if isinstance(value, str) else value


@pytest.mark.parametrize("name", ["troubled", "mig", "two-gpus"])
async def test_control_characters_are_removed_from_the_table(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    body = json.dumps(filled(json.loads(msgspec.json.encode(status(name)))))
    code, out, _ = await query(capsys, {PATH: (says(body), "")})
    assert code == 0
    assert "x?[2J" in out
    assert all(line.isprintable() for line in out.split("\n"))


async def test_control_characters_are_removed_from_an_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def refuses(_: HttpRequest) -> HttpResponse:
        return HttpResponse(ODD.encode(), "text/plain", status=503)

    code, out, err = await query(capsys, {PATH: (refuses, "")})
    assert (code, out) == (1, "")
    assert err.removesuffix("\n").isprintable()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("encoding", "name"), [("ascii", "p?-??"), ("latin-1", "pé-??"), ("utf-8", "pé-日本")]
)
async def test_characters_that_stdout_cannot_encode_are_replaced(encoding: str, name: str) -> None:
    async with served({PATH: (says(altered("two-gpus", pod="pé-日本")), "")}) as url:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "podgpu", "top", "--once", "--url", url,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONIOENCODING": encoding},
        )  # fmt: skip
        out, _ = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 0
    assert f"ml/{name} (main)" in out.decode(encoding)


UNWRITTEN = b"podgpu top: the table can't be written: "


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shell", "status", "message"),
    [
        ('exec "$@" >/dev/full', 3, UNWRITTEN + b"No space left on device\n"),
        ('exec "$@" >&-', 3, UNWRITTEN + b"there is no stdout\n"),
        ('exec "$@" >&- 2>&-', 3, b""),
        ('exec "$@" >/dev/full 2>/dev/full', 3, b""),
        ('exec "$@" >/dev/null 2>&-', 0, b""),
        ('exec "$@" >/dev/null <&-', 0, b""),
        ('"$@" | true', 0, b""),
    ],
)
async def test_a_table_that_cannot_be_written_is_an_error(
    shell: str, status: int, message: bytes
) -> None:
    async with served(pages_of("mig")) as url:
        process = await asyncio.create_subprocess_exec(
            "bash", "-o", "pipefail", "-c", shell, "bash",
            sys.executable, "-m", "podgpu", "top", "--url", url,
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        _, err = await asyncio.wait_for(process.communicate(), 30)
    assert (process.returncode, err) == (status, message)


async def test_without_a_terminal_a_name_is_on_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A search for a name in the table finds it, regardless of its length."""
    pod = "p" * 250
    _, out, _ = await query(capsys, {PATH: (says(altered("two-gpus", pod=pod)), "")})
    [line] = [line for line in out.splitlines() if "pp" in line]
    assert line.startswith(f"  ml/{pod} (main) ")
    assert line.endswith(" 10m+")


async def test_an_older_podgpu_without_the_page_is_an_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, _, err = await query(capsys, {})
    assert code == 1
    assert "/status responded with status 404" in err


async def test_a_newer_document_version_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    body = json.dumps({"version": 2, "node": "x", "gpus": "otherwise"})
    code, _, err = await query(capsys, {PATH: (says(body), "")})
    assert code == 2
    assert "the podgpu there is newer than this one; use its version of `podgpu top`" in err


async def test_unknown_keys_of_the_document_are_ignored() -> None:
    async def more(request: HttpRequest) -> HttpResponse:
        handler, _ = pages_of("mig")[PATH]
        document = json.loads((await handler(request)).body)
        document["new"] = {"x": [1]}
        document["gpus"][0]["instances"][0]["new"] = 1
        return HttpResponse(json.dumps(document).encode(), "application/json")

    async with served({PATH: (more, "")}) as url:
        assert await asyncio.to_thread(fetch_status, url) == status("mig")


@pytest.mark.parametrize("interval", ["0s", "499ms", "61m", "5", "x"])
def test_an_invalid_interval_is_refused(capsys: pytest.CaptureFixture[str], interval: str) -> None:
    with pytest.raises(SystemExit) as ended:
        run(capsys, "--interval", interval)
    assert ended.value.code == 2


# Repeated polling.


class ManualClock(SystemClock):
    seconds = 0.0

    def now(self) -> Instant:
        return Instant(round(self.seconds * 1e9), round(self.seconds * 1e9))


class Script:
    """Return or raise the given answers in turn; block after the last."""

    def __init__(self, *answers: StatusDocument | Exception) -> None:
        self.left = list(answers)
        self.done = threading.Event()
        self.gate = threading.Event()

    def __call__(self, _: str) -> StatusDocument:
        if not self.left:
            self.done.set()
            self.gate.wait(20)
            raise TransientError("the end")
        answer = self.left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.mark.parametrize(
    "error",
    [
        TransientError("refused"),
        PermanentError("a page of others"),
        RecursionError("a bug"),
        MemoryError("a bug"),
        AssertionError("a bug"),
    ],
)
def test_after_an_error_the_last_document_stays(error: Exception) -> None:
    script = Script(status("mig"), error)
    poller = Poller("http://x", 0.001, SystemClock(), status("two-gpus"), script)
    assert poller.daemon().status == status("two-gpus")
    poller.start()
    assert script.done.wait(10)
    poller.stop()
    daemon = poller.daemon()
    assert daemon.status == status("mig")
    assert str(error) in daemon.error
    assert daemon.is_stale
    script.gate.set()


@pytest.mark.parametrize("error", [TransientError("refused"), RecursionError("a bug")])
def test_a_response_clears_the_error(error: Exception) -> None:
    script = Script(error, status("troubled"))
    poller = Poller("http://x", 0.001, SystemClock(), status("mig"), script)
    poller.start()
    assert script.done.wait(10)
    poller.stop()
    assert (poller.daemon().status, poller.daemon().error) == (status("troubled"), "")
    script.gate.set()


def test_a_response_that_does_not_come_is_reported() -> None:
    clock = ManualClock()
    poller = Poller("http://x", 1.0, clock, status("mig"), Script())
    assert poller.daemon() == DaemonStatus(status("mig"))
    clock.seconds = 4.9
    assert poller.daemon() == DaemonStatus(status("mig"))
    clock.seconds = 6.2
    assert poller.daemon() == DaemonStatus(status("mig"), 6.0, is_late=True)
