"""The access rules in force. Requests and connections check their files, at most once a second."""

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
from pipeline.http.access.password_check import Passwords
from pipeline.http.access.tls_context import alternative_names
from pipeline.http.access.web_config_reader import Rules, WebConfigReader
from pipeline.http.builtin_pages import plain

_INTERVAL: Final = 1.0
_READ_TIMEOUT: Final = 1.0
_UNAUTHORIZED: Final = {"WWW-Authenticate": 'Basic realm="podgpu", charset="UTF-8"'}


class AccessChecker:
    """Checks clients against a web configuration. `open_access` creates it.

    Connections and requests trigger a check of the file, and of the files that it names, at most
    once a second. So a change can apply a second late, or later if a check takes longer than a
    second. If the new configuration is invalid, the previous one stays in force.

    Attributes:
        rules: the rules in force since the last check of the files.
    """

    def __init__(self, reader: WebConfigReader, rules: Rules, log: logging.Logger) -> None:
        self.rules = rules
        self._reader = reader
        self._log = log
        self._passwords = Passwords()
        self._bucket = _TokenBucket(rules)
        self._reload_task: asyncio.Task[None] | None = None
        self._reload_started = self._next_reload = asyncio.get_running_loop().time()
        self._last_error = self._logged = ""
        self._warn()

    async def current(self) -> Rules:
        """Return the rules. Check the files first, if the last check was a second ago or more.

        If a check hangs, its callers together wait for at most a second, not each of them.
        """
        now = asyncio.get_running_loop().time()
        if self._reload_task is None and now >= self._next_reload:
            self._reload_started = now
            self._reload_task = asyncio.create_task(self._reload(), name="web config")
        if (
            self._reload_task is not None
            and (seconds_left := self._reload_started + _READ_TIMEOUT - now) > 0
        ):
            await asyncio.wait({self._reload_task}, timeout=seconds_left)
        return self.rules

    async def _reload(self) -> None:
        try:
            rules = await asyncio.to_thread(self._reader.reload)
        except ConfigError as error:
            self._on_failure(str(error))
        else:
            self._on_success(rules)
        finally:
            self._reload_task = None
            self._next_reload = asyncio.get_running_loop().time() + _INTERVAL

    def _on_success(self, rules: Rules | None) -> None:
        if rules is not None:
            if rules.limit != self.rules.limit:
                self._bucket = _TokenBucket(rules)
            warned, self.rules = self.rules.warnings, rules
            self._log.info("%s: the new configuration is in force", self._reader.path)
            if rules.warnings != warned:
                self._warn()
        elif self._logged:
            self._log.info("%s is valid again", self._reader.path)
        self._last_error = self._logged = ""

    def _on_failure(self, message: str) -> None:
        # Two files are seldom replaced in one step, so that an error is logged only if the next
        # check finds it again.
        if message == self._last_error != self._logged:
            self._logged = message
            self._log.warning("%s\nthe previous web configuration stays in force", message)
        self._last_error = message

    def _warn(self) -> None:
        for text in self.rules.warnings:
            self._log.warning("%s: %s", self._reader.path, text)

    async def refusal(self, headers: Mapping[str, str], client: str) -> HttpResponse | None:
        """Return the response that refuses a request; None if it is allowed.

        Args:
            headers: headers of the request, names in lower case.
            client: address of the client.
        """
        rules = self.rules
        if not self._bucket.take(asyncio.get_running_loop().time()):
            return plain(429, "too many requests")
        if not rules.users:
            return None
        user_password = credentials(headers.get("authorization", ""))
        if user_password is None:
            return plain(401, "authentication required: user name and password", _UNAUTHORIZED)
        is_right = await self._passwords.check(rules.users, *user_password, client)
        if is_right is None:
            text = "too many password checks are waiting: try again later"
            return plain(429, text, {"Retry-After": "1"})
        return None if is_right else plain(401, "wrong user name or password", _UNAUTHORIZED)

    def allows_certificate(self, certificate: Mapping[str, Any] | None) -> bool:
        """Return whether a client's certificate has an allowed name, or names are not limited."""
        sans = self.rules.sans
        return sans is None or not sans.isdisjoint(alternative_names(certificate or {}))

    def close(self) -> None:
        """Cancel the checks of the files and of passwords."""
        if self._reload_task is not None:
            self._reload_task.cancel()
        self._passwords.close()


async def open_access(
    path: Path, log: logging.Logger, setting: str = "http.web_config"
) -> AccessChecker:
    """Read a web configuration, and return the checker for it.

    Args:
        path: the web configuration file.
        log: logger for later changes of the file.
        setting: name of the option that names the file, for messages.

    Raises:
        PermanentError: the configuration is invalid.
    """
    reader = WebConfigReader(path)
    try:
        rules = await asyncio.to_thread(reader.reload)
    except ConfigError as error:
        raise PermanentError(f"{setting}: {error}") from error
    return AccessChecker(reader, rules or Rules(), log)


def credentials(header: str) -> tuple[bytes, bytes] | None:
    """Return user and password of a basic `Authorization` header; None if it has none."""
    scheme, _, text = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(text.strip(), validate=True).partition(b":")
    except (binascii.Error, ValueError):
        return None
    return (user, password) if colon else None


class _TokenBucket:
    """A token bucket for requests: it holds up to `burst` tokens, and gets one per interval."""

    def __init__(self, rules: Rules) -> None:
        self._interval = rules.limit.seconds
        self._burst = float(rules.limit.burst)
        self._tokens = self._burst
        self._at = 0.0

    def take(self, now: float) -> bool:
        if not self._interval:
            return True
        self._tokens = min(self._burst, self._tokens + (now - self._at) / self._interval)
        self._at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
