"""Checks passwords against bcrypt hashes, one at a time and outside of the event loop.

A bcrypt check takes 0.05 s of a core or more, which makes guessing slow. Correct passwords are
remembered, so that a scrape needs no check. Clients that guess wait in a short queue, with pauses,
behind clients that sent no wrong password. Only this module imports bcrypt.
"""

import asyncio
import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Container, Mapping
from typing import Final

import bcrypt

from pipeline.base.bounded_dict import set_last
from pipeline.host.daemon_threads import DaemonExecutor
from pipeline.http.fair_queue import BusyError, FairQueue
from pipeline.http.network_fairness import largest_network, next_network, site_of

_MAX_GOOD: Final = 64
_MAX_BAD: Final = 256
_MAX_FAILED: Final = 4096
_MAX_QUEUED: Final = 16
_MAX_WAIT: Final = 5.0
_PAUSE_FACTOR: Final = 3.0
_MAX_PAUSE: Final = 0.5
_MAX_PASSWORD_BYTES: Final = 72  # bytes that bcrypt uses; it ignores the rest
_DECOY: Final = b"." * 53
_SALT_END: Final = 28  # index of the salt's last character in a hash
_BASE64_LETTERS: Final = b"./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


class _CheckQueue(FairQueue):
    """One check at a time. Sources without a wrong password go first, and take turns by site.

    A source loses this priority with a wrong password, until it sends a correct one.

    Args:
        failed: sources whose last checked password was wrong.
    """

    def __init__(self, failed: Container[str]) -> None:
        super().__init__(1, _MAX_QUEUED)
        self._failed = failed
        self._turn = 0

    def _next(self) -> str:
        if not (sites := self._sites()):
            return super()._next()
        self._turn += 1
        return min(sites[next_network(sorted(sites), self._turn)], key=self._served_count)

    def _next_to_reject(self) -> str:
        sites = self._sites()
        failed = [source for source in self._waiting if source in self._failed]
        if failed:
            return max(failed, key=self._requests.__getitem__)
        low, high = largest_network(
            sorted([site for site, sources in sites.items() for _ in sources])
        )
        candidates = [
            source for site, sources in sites.items() if low <= site <= high for source in sources
        ]
        return max(candidates, key=self._requests.__getitem__)

    def _sites(self) -> dict[int, list[str]]:
        """Return the waiting sources that have not failed, by site."""
        sites: dict[int, list[str]] = {}
        for source in self._waiting:
            if source not in self._failed:
                sites.setdefault(site_of(source), []).append(source)
        return sites


class Passwords:
    """Checks passwords. It remembers keyed digests of checked passwords, never a password.

    At most `_MAX_QUEUED` checks wait, in the order of `_CheckQueue`. After a wrong password, the
    next check starts after a pause of three times the duration of the check, at most 0.5 s. So
    guessing uses about a quarter of a core, if the hashes have a usual cost.
    """

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)
        self._good: OrderedDict[bytes, None] = OrderedDict()
        self._bad: OrderedDict[bytes, None] = OrderedDict()
        self._jobs: dict[bytes, asyncio.Task[bool | None]] = {}
        self._failed: OrderedDict[str, None] = OrderedDict()
        self._queue = _CheckQueue(self._failed)
        self._thread = DaemonExecutor("podgpu-passwords")

    async def check(
        self, users: Mapping[bytes, bytes], user: bytes, password: bytes, client: str
    ) -> bool | None:
        """Return whether a password is right; None if it is not known within five seconds.

        If too many checks wait, the password is not checked, and the result is None immediately.

        Args:
            users: bcrypt hashes by user name; at least one.
            user: the user name. The check of an unknown name takes the same time as of a known one.
            password: the password.
            client: address of the client; see `source_of`.
        """
        hashed = users.get(user)
        known = hashed is not None
        if hashed is None:
            hashed = self._decoy(users, user)
        key = self._digest(user, password, hashed)
        for is_right, known_results in ((True, self._good), (False, self._bad)):
            if key in known_results:
                known_results.move_to_end(key)
                return is_right
        job = self._jobs.get(key)
        if job is None:
            work = self._check_in_thread(key, password, hashed, known, client)
            job = self._jobs[key] = asyncio.create_task(work, name="password")
            job.add_done_callback(lambda _: self._jobs.pop(key, None))
        # The check continues if the client disconnects, so that this does not free its place in the
        # queue. A client that retries finds the result.
        done, _ = await asyncio.wait({job}, timeout=_MAX_WAIT)
        return job.result() if done else None

    def close(self) -> None:
        """Cancel the checks, running ones included."""
        for job in self._jobs.values():
            job.cancel()
        self._thread.shutdown()

    async def _check_in_thread(
        self, key: bytes, password: bytes, hashed: bytes, known: bool, client: str
    ) -> bool | None:
        loop = asyncio.get_running_loop()
        try:
            await self._queue.acquire(client)
        except BusyError:
            return None
        try:
            started = loop.time()
            matches = await loop.run_in_executor(self._thread, _matches, password, hashed)
            if matches and known:
                set_last(self._good, key, None, _MAX_GOOD)
                self._failed.pop(client, None)
                return True
            set_last(self._bad, key, None, _MAX_BAD)
            set_last(self._failed, client, None, _MAX_FAILED)
            await asyncio.sleep(min(_PAUSE_FACTOR * (loop.time() - started), _MAX_PAUSE))
            return False
        finally:
            self._queue.release()

    def _digest(self, user: bytes, password: bytes, hashed: bytes) -> bytes:
        digest = hashlib.blake2b(key=self._secret, digest_size=32)
        for part in (user, hashed, password):
            digest.update(len(part).to_bytes(8, "big") + part)
        return digest.digest()

    def _decoy(self, users: Mapping[bytes, bytes], user: bytes) -> bytes:
        """Return an invented hash, always the same for a name, with the cost of a real one."""
        known = [hashed[4:6] for hashed in users.values()]
        chosen = self._digest(user, b"", b"")[0] % len(known)
        return b"$2b$%s$%s" % (known[chosen], _DECOY)


def _matches(password: bytes, hashed: bytes) -> bool:
    # Go's programs write 2y, and accept any letter there. Only two bits of the salt's last
    # character count. If others are set, because the salt was made up, Go ignores them and this
    # library raises ValueError; so they are cleared.
    salt_bits = _BASE64_LETTERS.index(hashed[_SALT_END])
    end = _BASE64_LETTERS[salt_bits & 0x30 : (salt_bits & 0x30) + 1]
    stored = b"$2b" + hashed[3:_SALT_END] + end + hashed[_SALT_END + 1 :]
    return bcrypt.checkpw(password[:_MAX_PASSWORD_BYTES], stored)
