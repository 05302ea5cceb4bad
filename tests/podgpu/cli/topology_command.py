"""Run `podgpu topology` as a user does, and start a daemon's listener that it can query."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from config.schema import Http
from pipeline.http.builtin_pages import Pages
from pipeline.http.listener_registry import ListenerRegistry
from pipeline.runtime.http_service import HttpService
from pipeline.status_page.topology_endpoint import TopologyPages
from podgpu.cli.commands import run_command
from tests.support.http import LOCAL
from tests.support.topology import busy_node
from tests.support.web import Web, hashed

Result = tuple[int, str, str]
"""The exit status of a command, and its output on stdout and stderr."""

CREDENTIAL = "correct horse"
"""The password of `me`, in the file `password`; see conftest.py."""

USER = ("--user", "me", "--password-file", "password")


def run(capsys: pytest.CaptureFixture[str], *words: str) -> Result:
    try:
        status = run_command(["topology", *words])
    except SystemExit as ended:  # argparse refused the options
        status = int(ended.code or 0)
    out, err = capsys.readouterr()
    return status, out, err


async def run_in_thread(capsys: pytest.CaptureFixture[str], *words: str) -> Result:
    """Run the command in a thread, so that a listener in this event loop can respond."""
    return await asyncio.to_thread(run, capsys, *words)


async def query(capsys: pytest.CaptureFixture[str], url: str, *words: str) -> Result:
    """Query a daemon, and check that the output contains no password."""
    status, out, err = await run_in_thread(capsys, "--url", url, *words)
    assert CREDENTIAL not in out + err
    return status, out, err


def password_lines(web: Web) -> tuple[str, ...]:
    """Return the lines of a web configuration file that allow only the user `me`."""
    return ("basic_auth_users:", f"  me: {hashed(CREDENTIAL)}")


@asynccontextmanager
async def daemon(pages: Pages | None = None, web_config: Path | None = None) -> AsyncIterator[int]:
    """Serve `busy_node`, or other pages, on a daemon's listener; yield its port on 127.0.0.1."""
    topology = TopologyPages(lambda: busy_node().snapshot())
    ok = (True, "ok")
    shown = topology.pages if pages is None else pages
    serving = HttpService(ListenerRegistry("n", lambda: ok, lambda: ok, shown))
    await serving.enter(Http(web_config=web_config))
    async with serving.listeners.listen(LOCAL) as mounts:
        yield mounts.port
    await serving.leave()
    topology.close()
