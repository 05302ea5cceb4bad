"""Users and passwords."""

import asyncio
import logging
import random
import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address

import bcrypt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.web import passwords
from pipeline.web.access import credentials
from pipeline.web.passwords import Passwords, Verdict
from tests.support.attackers import attacked
from tests.support.web import Web, basic, hashed

SECRET = "correct horse"  # noqa: S105 - of these tests alone


@pytest.fixture
def guarded(web: Web) -> Web:
    web.write("basic_auth_users:", f"  alice: {hashed(SECRET)}")
    return web


class Checks:
    """Counts checks by bcrypt, and those that run at once."""

    def __init__(self) -> None:
        self.made = self.most = self.now = 0
        self.gate = threading.Event()
        self.gate.set()


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> Checks:
    checks = Checks()
    real = passwords._matches

    def counted(password: bytes, stored: bytes) -> bool:
        checks.made += 1
        checks.now += 1
        checks.most = max(checks.most, checks.now)
        checks.gate.wait(10)
        checks.now -= 1
        return real(password, stored)

    monkeypatch.setattr(passwords, "_matches", counted)
    monkeypatch.setattr(passwords, "_LONGEST_REST", 0.01)
    return checks


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        ([], 401),
        ([basic("alice", SECRET)], 200),
        ([basic("alice", SECRET).replace("Basic", "bAsIc")], 200),
        ([basic("alice", "wrong")], 401),
        ([basic("alice", "")], 401),
        ([basic("bob", SECRET)], 401),
        ([basic("", "")], 401),
        (["Authorization: Bearer abc"], 401),
        (["Authorization: Basic"], 401),
        (["Authorization: Basic !!!"], 401),
        (["Authorization: Basic YWxpY2U="], 401),
        ([basic("alice", "wrong"), basic("alice", SECRET)], 401),
    ],
)
async def test_who_is_answered(lines: list[str], status: int, guarded: Web) -> None:
    async with guarded.serving():
        client = await guarded.connect()
        client.send("\r\n".join(["GET /metrics HTTP/1.1", "Host: x", *lines, "", ""]))
        found, headers, body = await client.answer()
        assert found == status
        if status == 401:
            assert headers["www-authenticate"] == 'Basic realm="podgpu", charset="UTF-8"'
            assert b"page" not in body


@pytest.mark.parametrize("path", ["/healthz", "/health", "/readyz"])
async def test_health_needs_no_password(path: str, guarded: Web) -> None:
    async with guarded.serving():
        assert (await (await guarded.connect()).get(path))[0] in (200, 503)
        assert (await (await guarded.connect()).get(path, basic("a", "b")))[0] in (200, 503)


@pytest.mark.parametrize("path", ["/", "/metrics", "/nothing", "/healthz/", "//healthz"])
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "OPTIONS"])
async def test_everything_else_does(path: str, method: str, guarded: Web) -> None:
    async with guarded.serving():
        assert (await (await guarded.connect()).get(path, method=method))[0] == 401


@pytest.mark.parametrize("letter", "abxy")
async def test_hashes_of_every_program_are_taken(letter: str, web: Web) -> None:
    web.write("basic_auth_users:", f"  alice: {hashed(SECRET).replace('$2b', f'$2{letter}')}")
    async with web.serving():
        assert (await web.scrape(None, basic("alice", SECRET)))[0] == 200


@pytest.mark.parametrize("letter", "./Aaz9")
async def test_a_salt_that_somebody_made_up_is_taken_as_go_takes_it(letter: str, web: Web) -> None:
    """Of its last letter two bits count, and any of those that share them makes the same hash."""
    letters = "./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
    salt = f"$2b$04${'x' * 21}{letters[letters.index(letter) & 0x30]}"
    made = bcrypt.hashpw(SECRET.encode(), salt.encode()).decode()
    web.write("basic_auth_users:", f"  alice: {made[:28]}{letter}{made[29:]}")
    async with web.serving():
        assert (await web.scrape(None, basic("alice", SECRET)))[0] == 200
        assert (await web.scrape(None, basic("alice", "wrong")))[0] == 401


async def test_what_is_beyond_72_bytes_never_mattered(web: Web) -> None:
    web.write("basic_auth_users:", f"  alice: {hashed('x' * 72)}")
    async with web.serving():
        assert (await web.scrape(None, basic("alice", "x" * 100)))[0] == 200
        assert (await web.scrape(None, basic("alice", "x" * 71)))[0] == 401


async def test_names_and_passwords_beyond_ascii(web: Web) -> None:
    web.write("basic_auth_users:", f"  jörg: {hashed('pässwörd')}")
    async with web.serving():
        assert (await web.scrape(None, basic("jörg", "pässwörd")))[0] == 200


# What a check costs, and whom.


async def test_a_scrape_costs_no_hash(guarded: Web, checks: Checks) -> None:
    async with guarded.serving():
        for _ in range(5):
            assert (await guarded.scrape(None, basic("alice", SECRET)))[0] == 200
            assert (await guarded.scrape(None, basic("alice", "the same wrong one")))[0] == 401
    assert checks.made == 2


async def test_the_same_question_at_once_is_one_check(guarded: Web, checks: Checks) -> None:
    checks.gate.clear()
    async with guarded.serving():
        line = basic("alice", SECRET)
        asking = [asyncio.create_task(guarded.scrape(None, line)) for _ in range(10)]
        await asyncio.sleep(0.05)
        checks.gate.set()
        assert {status for status, _ in await asyncio.gather(*asking)} == {200}
    assert checks.made == 1


async def test_guessing_is_bounded_and_harms_nobody_who_is_known(
    guarded: Web, checks: Checks
) -> None:
    async with guarded.serving():
        assert (await guarded.scrape(None, basic("alice", SECRET)))[0] == 200
        checks.gate.clear()
        guesses = [
            asyncio.create_task(guarded.scrape(None, basic("alice", f"guess {at}")))
            for at in range(50)
        ]
        # All but one and those that have a place to wait are turned away at once.
        async with asyncio.timeout(10):
            while sum(task.done() for task in guesses) < 33:
                await asyncio.sleep(0.01)
        assert (await guarded.scrape(None, basic("alice", SECRET)))[0] == 200
        checks.gate.set()
        found = sorted(status for status, _ in await asyncio.gather(*guesses))
        assert found == [401] * 17 + [429] * 33
    assert (checks.made, checks.most) == (18, 1)


USERS = {b"alice": hashed(SECRET).encode()}


@pytest.mark.parametrize("addresses", [1, 4, 40, 1000])
async def test_r3_no_number_of_guessing_addresses_locks_another_out(
    addresses: int, checks: Checks
) -> None:
    """Who has asked least is next, and has a place in the queue at another's cost."""
    checks.gate.clear()
    with gatekeeper() as keeper:
        guesses = [
            asyncio.create_task(keeper.check(USERS, b"alice", b"%d" % at, near(at % addresses)))
            for at in range(2 * addresses + 20)
        ]
        async with asyncio.timeout(10):
            while sum(not task.done() for task in guesses) > 17:
                await asyncio.sleep(0.01)
        asked = asyncio.create_task(keeper.check(USERS, b"alice", SECRET.encode(), "10.9.9.9"))
        await asyncio.sleep(0.05)
        checks.gate.set()
        assert await asked is Verdict.GOOD
        # The check under way, and one of the network that the others are in.
        assert checks.made <= 3
        await asyncio.gather(*guesses)
        assert not keeper._jobs


def near(at: int) -> str:
    return f"10.0.{at // 256}.{at % 256}"


def far(at: int) -> str:
    return str(IPv4Address(random.Random(at).getrandbits(32)))


@pytest.mark.parametrize("place", [near, far])
async def test_r3_who_never_failed_is_ahead_of_all_who_have(
    place: Callable[[int], str], checks: Checks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each address costs others one check, wherever it is."""
    monkeypatch.setattr(passwords, "_REST", 0.0)
    with gatekeeper() as keeper:
        for at in range(1200):
            verdict = await keeper.check(USERS, b"alice", b"guess", place(at))
            assert verdict is Verdict.WRONG
            keeper._bad.clear()
        assert checks.made == 1200
        checks.gate.clear()
        guesses = [
            asyncio.create_task(keeper.check(USERS, b"alice", b"%d" % at, place(at % 1200)))
            for at in range(3000)
        ]
        await asyncio.sleep(0.05)
        asked = asyncio.create_task(keeper.check(USERS, b"alice", SECRET.encode(), place(5000)))
        await asyncio.sleep(0.05)
        checks.gate.set()
        assert await asked is Verdict.GOOD
        # The one under way, his own, and one that begins while he gets his answer.
        assert checks.made <= 1200 + 3
        await asyncio.gather(*guesses)


async def test_r3_no_supply_of_fresh_addresses_keeps_another_network_out(checks: Checks) -> None:
    """Also who had a right password before, and has another one now that the file has changed."""
    with gatekeeper() as keeper:
        for at in range(3):
            users = {b"alice": hashed(f"{SECRET} {at}").encode()}
            right = f"{SECRET} {at}".encode()
            checks.gate.clear()
            fresh = iter(range(at * 10_000, (at + 1) * 10_000))
            guesses: list[asyncio.Task[Verdict]] = []

            async def flood(users: dict[bytes, bytes], fresh: Iterator[int]) -> None:
                for number in fresh:
                    work = keeper.check(users, b"alice", b"%d" % number, near(number))
                    guesses.append(asyncio.create_task(work))  # noqa: B023
                    await asyncio.sleep(0.001 * (number % 10 == 0))

            flooding = asyncio.create_task(flood(users, fresh))
            await asyncio.sleep(0.05)
            asked = asyncio.create_task(keeper.check(users, b"alice", right, "10.200.0.1"))
            await asyncio.sleep(0.05)
            before = checks.made
            checks.gate.set()
            assert await asked is Verdict.GOOD
            assert checks.made <= before + 3
            flooding.cancel()
            await asyncio.wait([flooding, *guesses])
        assert len(keeper._failed) <= 4096


async def test_who_finds_the_right_one_after_a_wrong_one_has_not_failed(checks: Checks) -> None:
    del checks
    with gatekeeper() as keeper:
        assert await keeper.check(USERS, b"alice", b"typo", "10.0.0.1") is Verdict.WRONG
        assert list(keeper._failed) == ["10.0.0.1"]
        assert await keeper.check(USERS, b"alice", SECRET.encode(), "10.0.0.1") is Verdict.GOOD
        assert not keeper._failed


async def test_what_is_checked_too_late_is_known_when_it_is_asked_again(
    checks: Checks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passwords, "_PATIENCE", 0.05)
    checks.gate.clear()
    with gatekeeper() as keeper:
        assert await keeper.check(USERS, b"alice", SECRET.encode(), "c") is Verdict.BUSY
        checks.gate.set()
        while keeper._jobs:
            await asyncio.sleep(0.01)
        assert await keeper.check(USERS, b"alice", SECRET.encode(), "c") is Verdict.GOOD
    assert checks.made == 1


async def test_r3_a_thousand_addresses_that_guess_keep_nobody_from_a_fresh_podgpu(
    web: Web, checks: Checks
) -> None:
    """More than there may be connections, and all of them come again when they are thrown out."""
    web.write("basic_auth_users:", f"  alice: {hashed(SECRET, 8)}")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    try:
        async with web.serving(), asyncio.timeout(25):
            with attacked("guesses", web.port, connections=1040, sources=1040):
                while len(web.listeners.shares) < 256:
                    await asyncio.sleep(0.01)
                made = checks.made
                assert await web.scrape(None, basic("alice", SECRET)) == (200, "page")
                # While its request comes and is queued others are checked; all of them aren't.
                assert checks.made - made < 200
                assert await web.scrape(None, basic("alice", SECRET)) == (200, "page")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


async def test_who_leaves_keeps_the_place_that_he_took(checks: Checks) -> None:
    """Else somebody could start checks without end by coming and going."""
    checks.gate.clear()
    with gatekeeper() as keeper:
        for at in range(40):
            task = asyncio.create_task(keeper.check(USERS, b"alice", b"%d" % at, "10.0.0.1"))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            task.cancel()
        await asyncio.sleep(0.02)
        assert len(keeper._jobs) == 17
        checks.gate.set()
        while keeper._jobs:
            await asyncio.sleep(0.01)
    assert checks.made == 17


async def test_a_name_that_isnt_known_costs_the_same_as_one_that_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[bytes] = []

    def matches(_: bytes, stored: bytes) -> bool:
        seen.append(stored[4:6])
        return True

    monkeypatch.setattr(passwords, "_matches", matches)
    users = {b"a": b"$2y$12$" + b"x" * 53, b"b": b"$2y$12$" + b"y" * 53}
    with gatekeeper() as keeper:
        assert await keeper.check(users, b"nobody", b"x", "c") is Verdict.WRONG
        assert await keeper.check(users, b"a", b"x", "c") is Verdict.GOOD
    assert seen == [b"12", b"12"]


async def test_a_decoy_is_a_hash() -> None:
    with gatekeeper() as keeper:
        assert not bcrypt.checkpw(b"x", keeper._decoy(USERS, b"nobody"))
        assert len({keeper._decoy(USERS, b"nobody") for _ in range(3)}) == 1


async def test_memory_is_bounded_and_holds_no_password(checks: Checks) -> None:
    users = {b"%d" % at: hashed("x").encode() for at in range(80)}
    with gatekeeper() as keeper:
        for user in users:
            assert await keeper.check(users, user, b"x", "c") is Verdict.GOOD
        assert len(keeper._good) == 64
        assert all(len(key) == 32 for key in keeper._good)


@contextmanager
def gatekeeper() -> Iterator[Passwords]:
    keeper = Passwords()
    try:
        yield keeper
    finally:
        keeper.close()


async def test_no_line_of_the_log_holds_a_password(
    guarded: Web, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="podgpu")
    async with guarded.serving():
        for password in (SECRET, "hunter2"):
            await guarded.scrape(None, basic("alice", password))
        client = await guarded.connect()
        client.send(f"GET /metrics HTTP/1.1\r\n{basic('alice', 'hunter2')}\r\nbroken\r\n\r\n")
        await client.ended()
    token = basic("alice", "hunter2").split()[-1]
    for secret in ("hunter2", SECRET, token, hashed(SECRET)):
        assert secret not in caplog.text


@given(st.one_of(st.text(), st.text().map(lambda text: f"Basic {text}")))
def test_any_header_has_credentials_or_none(header: str) -> None:
    found = credentials(header)
    assert found is None or b":" not in found[0]
