"""Tests of users and passwords, and of attacks on them."""

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

from pipeline.http.access import password_check
from pipeline.http.access.access_checker import credentials
from pipeline.http.access.password_check import Passwords
from tests.support.attackers import under_attack
from tests.support.web import Web, basic, hashed

SECRET = "correct horse"  # noqa: S105 - only for these tests


@pytest.fixture
def guarded(web: Web) -> Web:
    web.write("basic_auth_users:", f"  alice: {hashed(SECRET)}")
    return web


class Checks:
    """Counts the checks by bcrypt, and how many run at the same time."""

    def __init__(self) -> None:
        self.made = self.most = self.now = 0
        self.gate = threading.Event()
        self.gate.set()


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> Checks:
    checks = Checks()
    real = password_check._matches

    def counted(password: bytes, stored: bytes) -> bool:
        checks.made += 1
        checks.now += 1
        checks.most = max(checks.most, checks.now)
        checks.gate.wait(10)
        checks.now -= 1
        return real(password, stored)

    monkeypatch.setattr(password_check, "_matches", counted)
    monkeypatch.setattr(password_check, "_MAX_PAUSE", 0.01)
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
async def test_requests_without_the_right_password_get_status_401(
    lines: list[str], status: int, guarded: Web
) -> None:
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
async def test_all_other_paths_need_a_password(path: str, method: str, guarded: Web) -> None:
    async with guarded.serving():
        assert (await (await guarded.connect()).get(path, method=method))[0] == 401


@pytest.mark.parametrize("letter", "abxy")
async def test_hashes_with_any_version_letter_are_accepted(letter: str, web: Web) -> None:
    web.write("basic_auth_users:", f"  alice: {hashed(SECRET).replace('$2b', f'$2{letter}')}")
    async with web.serving():
        assert (await web.scrape(None, basic("alice", SECRET)))[0] == 200


@pytest.mark.parametrize("letter", "./Aaz9")
async def test_a_salt_with_unused_bits_is_accepted_as_in_go(letter: str, web: Web) -> None:
    """Only two bits of its last letter count: all letters with these bits make the same hash."""
    letters = "./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
    salt = f"$2b$04${'x' * 21}{letters[letters.index(letter) & 0x30]}"
    made = bcrypt.hashpw(SECRET.encode(), salt.encode()).decode()
    web.write("basic_auth_users:", f"  alice: {made[:28]}{letter}{made[29:]}")
    async with web.serving():
        assert (await web.scrape(None, basic("alice", SECRET)))[0] == 200
        assert (await web.scrape(None, basic("alice", "wrong")))[0] == 401


async def test_bytes_of_a_password_after_the_72nd_are_ignored(web: Web) -> None:
    web.write("basic_auth_users:", f"  alice: {hashed('x' * 72)}")
    async with web.serving():
        assert (await web.scrape(None, basic("alice", "x" * 100)))[0] == 200
        assert (await web.scrape(None, basic("alice", "x" * 71)))[0] == 401


async def test_user_names_and_passwords_can_be_non_ascii(web: Web) -> None:
    web.write("basic_auth_users:", f"  jörg: {hashed('pässwörd')}")
    async with web.serving():
        assert (await web.scrape(None, basic("jörg", "pässwörd")))[0] == 200


# The cost of checks, and who waits for them.


async def test_a_repeated_request_needs_no_further_hash(guarded: Web, checks: Checks) -> None:
    async with guarded.serving():
        for _ in range(5):
            assert (await guarded.scrape(None, basic("alice", SECRET)))[0] == 200
            assert (await guarded.scrape(None, basic("alice", "the same wrong one")))[0] == 401
    assert checks.made == 2


async def test_equal_concurrent_requests_need_one_check(guarded: Web, checks: Checks) -> None:
    checks.gate.clear()
    async with guarded.serving():
        line = basic("alice", SECRET)
        requests = [asyncio.create_task(guarded.scrape(None, line)) for _ in range(10)]
        await asyncio.sleep(0.05)
        checks.gate.set()
        assert {status for status, _ in await asyncio.gather(*requests)} == {200}
    assert checks.made == 1


async def test_guesses_are_limited_and_do_not_delay_a_known_user(
    guarded: Web, checks: Checks
) -> None:
    async with guarded.serving():
        assert (await guarded.scrape(None, basic("alice", SECRET)))[0] == 200
        checks.gate.clear()
        guesses = [
            asyncio.create_task(guarded.scrape(None, basic("alice", f"guess {at}")))
            for at in range(50)
        ]
        # All are refused immediately, except for the one that runs and those that wait.
        async with asyncio.timeout(10):
            while sum(task.done() for task in guesses) < 33:
                await asyncio.sleep(0.01)
        assert (await guarded.scrape(None, basic("alice", SECRET)))[0] == 200
        checks.gate.set()
        found = sorted(status for status, _ in await asyncio.gather(*guesses))
        assert found == [401] * 17 + [429] * 33
    assert (checks.made, checks.most) == (18, 1)


USERS = {b"alice": hashed(SECRET).encode()}
SOURCES = 300
"""Addresses with failures: more than one /24 network, and many more than may wait."""


@pytest.mark.slow
@pytest.mark.parametrize("addresses", [1, 4, 40, 1000])
async def test_r3_many_addresses_that_guess_do_not_exclude_another_address(
    addresses: int, checks: Checks
) -> None:
    """R3: the address with fewest requests is next, and gets the place of another in the queue."""
    checks.gate.clear()
    with password_checker() as checker:
        guesses = [
            asyncio.create_task(checker.check(USERS, b"alice", b"%d" % at, near(at % addresses)))
            for at in range(2 * addresses + 20)
        ]
        async with asyncio.timeout(10):
            while sum(not task.done() for task in guesses) > 17:
                await asyncio.sleep(0.01)
        result = asyncio.create_task(checker.check(USERS, b"alice", SECRET.encode(), "10.9.9.9"))
        await asyncio.sleep(0.05)
        checks.gate.set()
        assert await result is True
        # The check that runs, and one of the network of the other addresses.
        assert checks.made <= 3
        await asyncio.gather(*guesses)
        assert not checker._jobs


def near(at: int) -> str:
    return f"10.0.{at // 256}.{at % 256}"


def far(at: int) -> str:
    return str(IPv4Address(random.Random(at).getrandbits(32)))


@pytest.mark.slow
@pytest.mark.parametrize("place", [near, far])
async def test_r3_an_address_without_failures_is_served_before_those_with_failures(
    place: Callable[[int], str], checks: Checks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R3: each address delays others by one check, in one network or in many."""
    monkeypatch.setattr(password_check, "_PAUSE_FACTOR", 0.0)
    with password_checker() as checker:
        for at in range(SOURCES):
            verdict = await checker.check(USERS, b"alice", b"guess", place(at))
            assert verdict is False
            checker._bad.clear()
        assert checks.made == SOURCES
        checks.gate.clear()
        guesses = [
            asyncio.create_task(checker.check(USERS, b"alice", b"%d" % at, place(at % SOURCES)))
            for at in range(5 * SOURCES // 2)
        ]
        await asyncio.sleep(0.05)
        result = asyncio.create_task(checker.check(USERS, b"alice", SECRET.encode(), place(5000)))
        await asyncio.sleep(0.05)
        checks.gate.set()
        assert await result is True
        # The check that runs, its own, and one that begins before its response.
        assert checks.made <= SOURCES + 3
        await asyncio.gather(*guesses)


@pytest.mark.slow
async def test_r3_new_addresses_without_end_do_not_exclude_another_network(checks: Checks) -> None:
    """R3: also if its user gets a new password because the file changes."""
    with password_checker() as checker:
        for at in range(3):
            users = {b"alice": hashed(f"{SECRET} {at}").encode()}
            right = f"{SECRET} {at}".encode()
            checks.gate.clear()
            fresh = iter(range(at * 10_000, (at + 1) * 10_000))
            guesses: list[asyncio.Task[bool | None]] = []

            async def flood(users: dict[bytes, bytes], fresh: Iterator[int]) -> None:
                for number in fresh:
                    work = checker.check(users, b"alice", b"%d" % number, near(number))
                    guesses.append(asyncio.create_task(work))  # noqa: B023
                    await asyncio.sleep(0.001 * (number % 10 == 0))

            flooding = asyncio.create_task(flood(users, fresh))
            await asyncio.sleep(0.05)
            result = asyncio.create_task(checker.check(users, b"alice", right, "10.200.0.1"))
            await asyncio.sleep(0.05)
            before = checks.made
            checks.gate.set()
            assert await result is True
            assert checks.made <= before + 3
            flooding.cancel()
            await asyncio.wait([flooding, *guesses])
        assert len(checker._failed) <= 4096


async def test_the_right_password_clears_the_failures_of_an_address(checks: Checks) -> None:
    del checks
    with password_checker() as checker:
        assert await checker.check(USERS, b"alice", b"typo", "10.0.0.1") is False
        assert list(checker._failed) == ["10.0.0.1"]
        assert await checker.check(USERS, b"alice", SECRET.encode(), "10.0.0.1") is True
        assert not checker._failed


async def test_a_check_that_ends_too_late_is_known_for_the_next_request(
    checks: Checks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(password_check, "_MAX_WAIT", 0.05)
    checks.gate.clear()
    with password_checker() as checker:
        assert await checker.check(USERS, b"alice", SECRET.encode(), "c") is None
        checks.gate.set()
        while checker._jobs:
            await asyncio.sleep(0.01)
        assert await checker.check(USERS, b"alice", SECRET.encode(), "c") is True
    assert checks.made == 1


@pytest.mark.slow
async def test_r3_a_thousand_guessing_addresses_do_not_exclude_a_scraper_after_a_start(
    web: Web, checks: Checks
) -> None:
    """R3: more than the connection limit, and all of them reconnect when they are evicted."""
    web.write("basic_auth_users:", f"  alice: {hashed(SECRET, 6)}")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    try:
        async with web.serving(), asyncio.timeout(25):
            with under_attack("guesses", web.port, connections=1040, sources=1040):
                while len(web.listeners.accounting) < 256:
                    await asyncio.sleep(0.01)
                made = checks.made
                assert await web.scrape(None, basic("alice", SECRET)) == (200, "page")
                # Some of the others are checked before its request is queued, but not all of them.
                assert checks.made - made < 200
                assert await web.scrape(None, basic("alice", SECRET)) == (200, "page")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


async def test_a_client_that_disconnects_still_occupies_its_place_in_the_queue(
    checks: Checks,
) -> None:
    """Otherwise a client could start any number of checks by connecting and disconnecting."""
    checks.gate.clear()
    with password_checker() as checker:
        for at in range(40):
            task = asyncio.create_task(checker.check(USERS, b"alice", b"%d" % at, "10.0.0.1"))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            task.cancel()
        await asyncio.sleep(0.02)
        assert len(checker._jobs) == 17
        checks.gate.set()
        while checker._jobs:
            await asyncio.sleep(0.01)
    assert checks.made == 17


async def test_an_unknown_user_name_needs_the_same_time_as_a_known_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[bytes] = []

    def matches(_: bytes, stored: bytes) -> bool:
        seen.append(stored[4:6])
        return True

    monkeypatch.setattr(password_check, "_matches", matches)
    users = {b"a": b"$2y$12$" + b"x" * 53, b"b": b"$2y$12$" + b"y" * 53}
    with password_checker() as checker:
        assert await checker.check(users, b"unknown", b"x", "c") is False
        assert await checker.check(users, b"a", b"x", "c") is True
    assert seen == [b"12", b"12"]


async def test_a_decoy_is_a_valid_hash_that_stays_the_same() -> None:
    with password_checker() as checker:
        assert not bcrypt.checkpw(b"x", checker._decoy(USERS, b"unknown"))
        assert len({checker._decoy(USERS, b"unknown") for _ in range(3)}) == 1


@pytest.mark.slow
async def test_the_memory_of_checks_is_limited_and_contains_no_password(checks: Checks) -> None:
    users = {b"%d" % at: hashed("x").encode() for at in range(80)}
    with password_checker() as checker:
        for user in users:
            assert await checker.check(users, user, b"x", "c") is True
        assert len(checker._good) == 64
        assert all(len(key) == 32 for key in checker._good)


@contextmanager
def password_checker() -> Iterator[Passwords]:
    checker = Passwords()
    try:
        yield checker
    finally:
        checker.close()


async def test_no_log_line_contains_a_password(
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
def test_any_header_value_is_parsed_without_an_error(header: str) -> None:
    found = credentials(header)
    assert found is None or b":" not in found[0]
