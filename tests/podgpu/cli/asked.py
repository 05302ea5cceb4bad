"""`podgpu topology` as a user calls it, and a daemon's listener to ask."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from config.schema import Http
from pipeline.http.builtin_pages import Pages
from pipeline.runtime.http_service import Serving
from pipeline.status_page.topology_endpoint import TopologyPages
from podgpu.cli.commands import run_command
from tests.support.http import LOCAL
from tests.support.joints import busy_node
from tests.support.web import Web, hashed

Said = tuple[int, str, str]

KEPT = "correct horse"
"""The password of `me`, in the file `password`; see conftest.py."""

USER = ("--user", "me", "--password-file", "password")


def run(capsys: pytest.CaptureFixture[str], *words: str) -> Said:
    """The exit status of a command, and what it says on stdout and stderr."""
    try:
        status = run_command(["topology", *words])
    except SystemExit as ended:  # options that argparse refuses
        status = int(ended.code or 0)
    out, err = capsys.readouterr()
    return status, out, err


async def ask(capsys: pytest.CaptureFixture[str], *words: str) -> Said:
    """The same, beside a listener in this event loop."""
    return await asyncio.to_thread(run, capsys, *words)


async def given_out(capsys: pytest.CaptureFixture[str], url: str, *words: str) -> Said:
    """What the command says, which never has a password in it."""
    status, out, err = await ask(capsys, "--url", url, *words)
    assert KEPT not in out + err
    return status, out, err


def guard(web: Web) -> tuple[str, ...]:
    """The lines of a web config that let in the user alone."""
    return ("basic_auth_users:", f"  me: {hashed(KEPT)}")


@asynccontextmanager
async def daemon(pages: Pages | None = None, web_config: Path | None = None) -> AsyncIterator[int]:
    """A daemon's listener that shows `busy_node`, or other pages; its port on 127.0.0.1."""
    topology = TopologyPages(lambda: busy_node().snapshot())
    well = (True, "ok")
    shown = topology.pages if pages is None else pages
    serving = Serving("n", lambda: well, lambda: well, shown)
    await serving.enter(Http(web_config=web_config))
    async with serving.listen(LOCAL) as mounts:
        yield mounts.port
    await serving.leave()
    topology.close()
