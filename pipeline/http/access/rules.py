"""The rules in force: looked up at most once a second, when somebody comes."""

import asyncio
import base64
import binascii
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from config.errors import ConfigError
from pipeline.base.errors import PermanentError
from pipeline.component.contracts import HttpResponse
from pipeline.http.access.password_check import CheckResult, Passwords
from pipeline.http.access.tls_context import alternative_names
from pipeline.http.access.web_config_reader import Rules, WebConfigReader
from pipeline.http.builtin_pages import plain

OPEN_RULES: Final = Rules()
"""Plain HTTP for everybody."""

_INTERVAL: Final = 1.0
_READ_TIMEOUT: Final = 1.0
_UNAUTHORIZED: Final = {"WWW-Authenticate": 'Basic realm="podgpu", charset="UTF-8"'}


class Access:
    """Lets in whom a web config lets in; made by `open_access`.

    A change of the file or of one that it names counts from the next connection or request on. If
    it can't be used, what was in force stays so.

    Attributes:
        rules: in force as of the last look.
    """

    def __init__(self, reader: WebConfigReader, rules: Rules, log: logging.Logger) -> None:
        self.rules = rules
        self._reader = reader
        self._log = log
        self._passwords = Passwords()
        self._bucket = _Bucket(rules)
        self._reload_task: asyncio.Task[None] | None = None
        self._begun = self._due = asyncio.get_running_loop().time()
        self._fault = self._logged = ""
        self._warn()

    async def current(self) -> Rules:
        """Return the rules after a look at the files, if the last one was a second ago.

        A disk that doesn't answer is waited for once, not by everyone who comes.
        """
        now = asyncio.get_running_loop().time()
        if self._reload_task is None and now >= self._due:
            self._begun = now
            self._reload_task = asyncio.create_task(self._reload(), name="web config")
        if self._reload_task is not None and (left := self._begun + _READ_TIMEOUT - now) > 0:
            await asyncio.wait({self._reload_task}, timeout=left)
        return self.rules

    async def _reload(self) -> None:
        try:
            found = await asyncio.to_thread(self._reader.reload)
        except ConfigError as error:
            self._on_failure(str(error))
        else:
            self._on_success(found)
        finally:
            self._reload_task = None
            self._due = asyncio.get_running_loop().time() + _INTERVAL

    def _on_success(self, found: Rules | None) -> None:
        if found is not None:
            if found.limit != self.rules.limit:
                self._bucket = _Bucket(found)
            warned, self.rules = self.rules.warnings, found
            self._log.info("%s: what has changed is in force", self._reader.path)
            if found.warnings != warned:
                self._warn()
        elif self._logged:
            self._log.info("%s: is good again", self._reader.path)
        self._fault = self._logged = ""

    def _on_failure(self, fault: str) -> None:
        # A pair of files is seldom written in one step: what was wrong once may be right at the
        # next look.
        if fault == self._fault != self._logged:
            self._logged = fault
            self._log.warning("%s\nwhat was in force stays so", fault)
        self._fault = fault

    def _warn(self) -> None:
        for text in self.rules.warnings:
            self._log.warning("%s: %s", self._reader.path, text)

    async def refusal(self, headers: Mapping[str, str], client: str) -> HttpResponse | None:
        """Return why a request isn't answered; None if it is.

        Args:
            headers: the request's, names in lower case.
            client: its address.
        """
        rules = self.rules
        if not self._bucket.take(asyncio.get_running_loop().time()):
            return plain(429, "too many requests")
        if not rules.users:
            return None
        given = credentials(headers.get("authorization", ""))
        if given is None:
            return plain(401, "a user and a password are needed", _UNAUTHORIZED)
        match await self._passwords.check(rules.users, *given, client):
            case CheckResult.GOOD:
                return None
            case CheckResult.WRONG:
                return plain(401, "this user has not that password", _UNAUTHORIZED)
            case CheckResult.BUSY:
                text = "too many passwords wait to be checked"
                return plain(429, text, {"Retry-After": "1"})

    def allows_certificate(self, certificate: Mapping[str, Any] | None) -> bool:
        """Return whether a client's certificate has one of the names that it must have."""
        sans = self.rules.sans
        return sans is None or not sans.isdisjoint(alternative_names(certificate or {}))

    def close(self) -> None:
        """Give up what is going on."""
        if self._reload_task is not None:
            self._reload_task.cancel()
        self._passwords.close()


async def open_access(path: Path, log: logging.Logger, setting: str = "http.web_config") -> Access:
    """Read a web config.

    Args:
        path: the file.
        log: where it is said what later becomes of it.
        setting: what names the file, for messages.

    Raises:
        PermanentError: something of it can't be used.
    """
    reader = WebConfigReader(path)
    try:
        rules = await asyncio.to_thread(reader.reload)
    except ConfigError as error:
        raise PermanentError(f"{setting}: {error}") from error
    return Access(reader, rules or OPEN_RULES, log)


def credentials(header: str) -> tuple[bytes, bytes] | None:
    """Return user and password of an `Authorization` header; None if it has none."""
    scheme, _, text = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(text.strip(), validate=True).partition(b":")
    except (binascii.Error, ValueError):
        return None
    return (user, password) if colon else None


class _Bucket:
    """So many requests at once, and one more for each interval."""

    def __init__(self, rules: Rules) -> None:
        self._interval = rules.limit.seconds
        self._most = float(rules.limit.burst)
        self._left = self._most
        self._at: float | None = None

    def take(self, now: float) -> bool:
        if not self._interval:
            return True
        if self._at is not None:
            self._left = min(self._most, self._left + (now - self._at) / self._interval)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True
