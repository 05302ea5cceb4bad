"""Checks passwords against their bcrypt hashes: seldom, one at a time, and never in the event loop.

A hash takes a twentieth of a second and more of a core, which is what makes it good. So what has
been found good is remembered, and a scrape costs nothing; who guesses waits in a short queue, with
pauses, and after who never guessed wrong. The only module that imports bcrypt.
"""

import asyncio
import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Container, Mapping
from enum import Enum
from typing import Final, TypeVar

import bcrypt

from pipeline.host.daemon_threads import DaemonExecutor
from pipeline.http.access.web_config_schema import bcrypt_costs
from pipeline.http.fair_queue import BusyError, FairQueue
from pipeline.http.network_fairness import largest_network, next_network, site_of

T = TypeVar("T")

_GOOD: Final = 64
_BAD: Final = 256
_FAILED: Final = 4096
_QUEUE: Final = 16
_MAX_WAIT: Final = 5.0
_PAUSE_FACTOR: Final = 3.0
_MAX_PAUSE: Final = 0.5
_LONGEST: Final = 72  # bytes that bcrypt looks at; the rest never mattered
_DECOY: Final = b"." * 53
_SALT_END: Final = 28  # where a hash's salt has its last letter
_LETTERS: Final = b"./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


class CheckResult(Enum):
    """What came of a check."""

    GOOD = "good"
    WRONG = "wrong"
    BUSY = "busy"
    """Not looked at: too many others wait."""


class _CheckQueue(FairQueue):
    """One check at a time; who has shown no wrong password goes first, site by site.

    Each source takes the place of others so once at most.

    Args:
        failed: sources that have shown a wrong one.
    """

    def __init__(self, failed: Container[str]) -> None:
        super().__init__(1, _QUEUE)
        self._failed = failed
        self._turn = 0

    def _next(self) -> str:
        if not (sites := self._sites()):
            return super()._next()
        self._turn += 1
        return min(sites[next_network(sorted(sites), self._turn)], key=self._served_count)

    def _next_to_reject(self) -> str:
        sites = self._sites()
        failed = [one for one in self._waiting if one in self._failed]
        if failed:
            return max(failed, key=self._asked.__getitem__)
        low, high = largest_network(sorted([site for site, of in sites.items() for _ in of]))
        many = [one for site, of in sites.items() if low <= site <= high for one in of]
        return max(many, key=self._asked.__getitem__)

    def _sites(self) -> dict[int, list[str]]:
        """Return the sources that wait and have not failed, by site."""
        sites: dict[int, list[str]] = {}
        for one in self._waiting:
            if one not in self._failed:
                sites.setdefault(site_of(one), []).append(one)
        return sites


class Passwords:
    """Checks passwords; remembers keyed digests of what it was asked, never a password.

    At most `_QUEUE` checks wait, in the order of `_CheckQueue`. After a wrong password there is a
    pause of three times the time that its check took, so that guessing costs a quarter of a core at
    most.
    """

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)
        self._good: OrderedDict[bytes, None] = OrderedDict()
        self._bad: OrderedDict[bytes, None] = OrderedDict()
        self._jobs: dict[bytes, asyncio.Task[CheckResult]] = {}
        self._failed: OrderedDict[str, None] = OrderedDict()
        self._queue = _CheckQueue(self._failed)
        self._thread = DaemonExecutor("podgpu-passwords")

    async def check(
        self, users: Mapping[bytes, bytes], user: bytes, password: bytes, client: str
    ) -> CheckResult:
        """Check a password.

        Args:
            users: names and hashes; at least one.
            user: who is said to ask. One who isn't known costs the same time as one who is.
            password: what is said to be the password.
            client: where it is asked from; see `source_of`.
        """
        hashed = users.get(user)
        known = hashed is not None
        if hashed is None:
            hashed = self._decoy(users, user)
        key = self._digest(user, password, hashed)
        for remembered, verdict in ((self._good, CheckResult.GOOD), (self._bad, CheckResult.WRONG)):
            if key in remembered:
                remembered.move_to_end(key)
                return verdict
        job = self._jobs.get(key)
        if job is None:
            work = self._check_in_thread(key, password, hashed, known, client)
            job = self._jobs[key] = asyncio.create_task(work, name="password")
        # A client that goes away doesn't get its place in the queue back by that, and one that is
        # told to come again finds there what came of it.
        done, _ = await asyncio.wait({job}, timeout=_MAX_WAIT)
        return job.result() if done else CheckResult.BUSY

    def close(self) -> None:
        """Give up what is still waiting."""
        for job in self._jobs.values():
            job.cancel()
        self._thread.shutdown()

    async def _check_in_thread(
        self, key: bytes, password: bytes, hashed: bytes, known: bool, client: str
    ) -> CheckResult:
        try:
            await self._queue.acquire(client)
            try:
                return await self._checked(key, password, hashed, known, client)
            finally:
                self._queue.release()
        except BusyError:
            return CheckResult.BUSY
        finally:
            self._jobs.pop(key, None)

    async def _checked(
        self, key: bytes, password: bytes, hashed: bytes, known: bool, client: str
    ) -> CheckResult:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        right = await loop.run_in_executor(self._thread, _matches, password, hashed)
        if right and known:
            _remember(self._good, key, _GOOD)
            self._failed.pop(client, None)
            return CheckResult.GOOD
        _remember(self._bad, key, _BAD)
        _remember(self._failed, client, _FAILED)
        await asyncio.sleep(min(_PAUSE_FACTOR * (loop.time() - begun), _MAX_PAUSE))
        return CheckResult.WRONG

    def _digest(self, user: bytes, password: bytes, hashed: bytes) -> bytes:
        digest = hashlib.blake2b(key=self._secret, digest_size=32)
        for part in (user, hashed, password):
            digest.update(len(part).to_bytes(8, "big") + part)
        return digest.digest()

    def _decoy(self, users: Mapping[bytes, bytes], user: bytes) -> bytes:
        """Return a hash of one of the costs that there are, for a name always the same."""
        known = bcrypt_costs(users.values())
        chosen = self._digest(user, b"", b"")[0] % len(known)
        return b"$2b$%s$%s" % (known[chosen].encode(), _DECOY)


def _matches(password: bytes, hashed: bytes) -> bool:
    # Go's programs write 2y, and take whatever letter stands there for the same. Of the salt's last
    # letter two bits count. Where the others are set, because somebody made the salt up, Go passes
    # over them; this library raises ValueError.
    last = _LETTERS.index(hashed[_SALT_END])
    end = _LETTERS[last & 0x30 : (last & 0x30) + 1]
    stored = b"$2b" + hashed[3:_SALT_END] + end + hashed[_SALT_END + 1 :]
    return bcrypt.checkpw(password[:_LONGEST], stored)


def _remember(known: OrderedDict[T, None], key: T, most: int) -> None:
    known[key] = None
    known.move_to_end(key)
    if len(known) > most:
        known.popitem(last=False)
