"""`podgpu top` in a terminal, with a real listener."""

import asyncio
import re
import signal
from collections.abc import AsyncIterator

import pytest

from pipeline.http.listener_registry import ListenerRegistry
from pipeline.model import Instant
from pipeline.status_page.endpoints import StatusPages
from tests.pipeline.status_page.scenes import mig_node
from tests.podgpu.cli.top.terminal import Session, Vt100, running
from tests.support.http import LOCAL


class Served:
    """A daemon that a test can stop."""

    def __init__(self) -> None:
        known, self.moment = mig_node(), 0
        pages = StatusPages(self._now, lambda: known)
        ok = (True, "ok")
        self.listeners = ListenerRegistry(
            node="n", version="0", health=lambda: ok, ready=lambda: ok, pages=pages.pages
        )
        self.gone = asyncio.Event()
        self.port: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def _now(self) -> Instant:
        self.moment += 1
        return Instant(self.moment, self.moment)

    async def run(self) -> None:
        async with self.listeners.listen(LOCAL) as mounts:
            self.port.set_result(mounts.port)
            await self.gone.wait()


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    found = Served()
    task = asyncio.create_task(found.run())
    await found.port
    yield found
    found.gone.set()
    await task


def shown(*texts: str):  # type: ignore[no-untyped-def]
    return lambda lines: all(text in "\n".join(lines) for text in texts)


async def drawn(session: Session) -> list[str]:
    return await session.until(lambda lines: "? help" in lines[-1])


@pytest.mark.slow
async def test_all_views_in_a_terminal_of_80_by_24(served: Served) -> None:
    url = f"http://127.0.0.1:{await served.port}"
    async with running("top", "--url", url, "--interval", "500ms") as session:
        lines = await drawn(session)
        assert lines[0].startswith("node-1  8 GPUs: 8 up; 56 MIG instances")
        assert lines[0].endswith("08:10:00 UTC")
        assert " ".join(lines[1].split()) == "GPU, HELD BY last 5m BUSY MEMORY GiB POWER TEMP,FOR"
        assert lines[2].startswith("0 H100 80GB HBM3 5 of 7 held")
        assert lines[4].startswith("  1g.10gb 8/0 ml/notebook~1-7c9d5f6b4  13%")
        assert "     ▁    1.3/10.0" in lines[4]
        assert lines[4].endswith("10m+")
        assert lines[-1].endswith("1-21 of 71")
        session.press("G")
        await session.until(shown("-71 of 71", "ml/noteboo~6-7c9d5f6b4", "prometheus"))
        session.press("f")
        folded = await session.until(shown("folded"))
        assert [line.split()[0] for line in folded[2:18:2]] == [str(n) for n in range(8)]
        session.press("f/notebook-3-4")
        await session.until(shown("filter: notebook-3-4_"))
        session.press("\x1b")
        await session.until(lambda lines: "filter:" not in lines[-1])
        session.press("e")
        await session.until(shown("reported by kubelet: kubelet ids"))
        session.press("ex")
        await session.until(shown("processes unknown"))
        session.press("xs")
        await session.until(shown("SOURCE", "podresources", "SINK", "sources and sinks"))
        session.press("d")
        await session.until(shown("There is no ledger on this node"))
        session.press("!")
        await session.until(shown("No problem is known."))
        session.press("?")
        await session.until(shown("sort by index"))
        session.press("y")
        await session.until(shown("HELD BY"))
        session.resize(40, 10)
        lines = await session.until(lambda lines: lines[-1].endswith("of 135"))
        assert all(len(line) <= 40 for line in lines)
        session.resize(200, 30)
        await session.until(shown("SHARE", "ENERGY", "ml/notebook-0-1-7c9d5f6b4 (jupyter)"))
        session.press("q")
        assert await asyncio.wait_for(session.process.wait(), 10) == 0


@pytest.mark.slow
async def test_a_daemon_that_stops_is_reported_and_the_last_table_stays(served: Served) -> None:
    url = f"http://127.0.0.1:{await served.port}"
    async with running("top", "--url", url, "--interval", "500ms") as session:
        await drawn(session)
        served.gone.set()
        lines = await session.until(shown("NO RESPONSE for"))
        assert f"no server responds at {url}" in " ".join(lines[1:3])
        assert "5 of 7 held" in "".join(lines)
        session.process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(session.process.wait(), 10) == 0


SGR = re.compile(rb"\x1b\[([0-9;]*)m")


def attributes(written: bytes) -> set[int]:
    """Return all parameters of the control sequences that set colours and attributes."""
    return {int(n or 0) for found in SGR.findall(written) for n in found.split(b";")}


BACKGROUNDS = {*range(40, 49), *range(100, 108)}


async def looked_at(session: Session) -> set[int]:
    """Show several views; return the attributes that they use."""
    for keys, expected in (("", b"quit"), ("s", b"SINK"), ("d", b"no ledger"), ("?", b"sort by")):
        session.press(keys)
        async with asyncio.timeout(20):
            while expected not in session.written:
                await asyncio.sleep(0.05)
    return attributes(session.written)


@pytest.mark.slow
@pytest.mark.parametrize("term", ["xterm", "xterm-256color", "linux", "screen-256color", "vt100"])
async def test_the_background_of_the_terminal_is_never_changed(served: Served, term: str) -> None:
    """Neither by a colour, nor by reverse video."""
    url = f"http://127.0.0.1:{await served.port}"
    async with running("top", "--url", url, term=term) as session:
        used = await looked_at(session)
    assert not used & {*BACKGROUNDS, 7}
    assert bool(used & set(range(30, 38))) is (term != "vt100")
    assert 1 in used


@pytest.mark.slow
@pytest.mark.parametrize(("value", "coloured"), [("1", False), ("", True)])
async def test_the_user_can_choose_no_colours(served: Served, value: str, coloured: bool) -> None:
    url = f"http://127.0.0.1:{await served.port}"
    async with running("top", "--url", url, term="xterm", env={"NO_COLOR": value}) as session:
        used = await looked_at(session)
    assert bool(used & set(range(30, 38))) is coloured
    assert not used & {*BACKGROUNDS, 7}


@pytest.mark.slow
async def test_graphs_are_ascii_if_the_terminal_has_nothing_else(served: Served) -> None:
    url = f"http://127.0.0.1:{await served.port}"
    async with running("top", "--url", url, env={"LC_ALL": "C", "PYTHONUTF8": "0"}) as session:
        lines = await drawn(session)
        assert "".join(lines).isascii()
        assert "52%      :    5.2/10.0" in "\n".join(lines)
        session.press("q")
        assert await asyncio.wait_for(session.process.wait(), 10) == 0


@pytest.mark.slow
@pytest.mark.parametrize("term", ["dumb", "unknown", "no-such-terminal"])
async def test_a_terminal_without_cursor_control_gets_the_table_once(
    served: Served, term: str
) -> None:
    url = f"http://127.0.0.1:{await served.port}"
    async with running("top", "--url", url, term=term) as session:
        assert await asyncio.wait_for(session.process.wait(), 20) == 0
        async with asyncio.timeout(15):
            while b"prometheus" not in session.written:
                await asyncio.sleep(0.05)
        assert b"\x1b" not in session.written
        assert session.written.startswith(b"node-1  8 GPUs: 8 up; 56 MIG instances")
        assert session.is_in_shell_mode


@pytest.mark.slow
async def test_without_a_daemon_it_ends_with_an_error() -> None:
    async with running("top", "--url", "http://127.0.0.1:1") as session:
        await asyncio.wait_for(session.process.wait(), 15)
        assert session.process.returncode == 1
        await session.until(shown("no server responds at http://127.0.0.1:1"))


# The end of the program.


@pytest.mark.slow
async def test_a_signal_restores_the_mode_of_the_terminal(served: Served) -> None:
    url = f"http://127.0.0.1:{await served.port}"
    async with running("top", "--url", url) as session:
        await drawn(session)
        assert not session.is_in_shell_mode
        session.process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(session.process.wait(), 10) == 128 + signal.SIGTERM
        assert session.is_in_shell_mode


@pytest.mark.slow
async def test_a_signal_restores_the_previous_screen(served: Served) -> None:
    url = f"http://127.0.0.1:{await served.port}"
    async with running("top", "--url", url, term="xterm") as session:
        async with asyncio.timeout(15):
            while b"quit" not in session.written:
                await asyncio.sleep(0.05)
        assert b"\x1b[?1049h" in session.written
        session.process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(session.process.wait(), 10)
        async with asyncio.timeout(15):
            while b"\x1b[?1049l" not in session.written:
                await asyncio.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("ignores_hangup", [False, True])
async def test_it_ends_when_its_terminal_is_closed(served: Served, ignores_hangup: bool) -> None:
    """Otherwise it would read the end of its input forever."""
    url = f"http://127.0.0.1:{await served.port}"
    async with running("top", "--url", url, ignores_hangup=ignores_hangup) as session:
        await drawn(session)
        session.hang_up()
        await asyncio.wait_for(session.process.wait(), 10)


@pytest.mark.slow
async def test_it_works_with_a_locale_that_is_not_installed(served: Served) -> None:
    url = f"http://127.0.0.1:{await served.port}"
    async with running("top", "--url", url, env={"LC_ALL": "xx_XX.UTF-8"}) as session:
        lines = await drawn(session)
        assert lines[0].startswith("node-1  8 GPUs: 8 up; 56 MIG instances")
        session.press("q")
        assert await asyncio.wait_for(session.process.wait(), 10) == 0


def test_the_emulator_obeys_control_sequences() -> None:
    screen = Vt100(10, 3)
    screen.feed("0123456789ab\r\nc\x1b[1;4Hxyz\x1b[K\x1b[3;1H\x1b[1mlast")
    screen.feed("\x1b[")
    screen.feed("2;2Hd")
    assert screen.lines == ["012xyz", "ad", "last"]
    with pytest.raises(AssertionError):
        screen.feed("\x1b[5X")
