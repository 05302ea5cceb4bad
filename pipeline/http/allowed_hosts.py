"""By which names podgpu may be asked over HTTP.

A web page can have its own name lead to podgpu's address (DNS rebinding), and the browser of
whoever reads it then lets it read podgpu's pages. The request has the page's name in it, so that a
name nobody has given to podgpu is refused.
"""

import ipaddress
import logging
import re
from collections.abc import Iterable
from typing import Final

from config.message_text import shown
from pipeline.base.logs import ROOT

_LOG = logging.getLogger(f"{ROOT}.http")

ANY_HOST: Final = "*"
"""Allows all names."""

ALWAYS: Final = ("localhost", "*.svc", "*.cluster.local")
"""Allowed besides IP addresses, names without a dot, and those of host and node."""

_NAME: Final = re.compile(r"[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*")
_BRACKETED: Final = re.compile(r"\[([^\]]*)\](?::[0-9]*)?")
_MAX_LOGGED: Final = 32
"""Names that are logged: those who ask make them up."""


class Hosts:
    """The names that are allowed, and what was said of others.

    Args:
        setting: what allows a further name, for messages.
    """

    def __init__(self, setting: str = "http.allowed_hosts") -> None:
        self._setting = setting
        self._own: frozenset[str] = frozenset()
        self._patterns: tuple[str, ...] = ALWAYS
        self._logged: set[str] = set()

    def allow(self, own: Iterable[str], patterns: Iterable[str]) -> None:
        """Set what is allowed besides `ALWAYS`.

        Args:
            own: names of this machine; a name whose first label is one of them is allowed too.
            patterns: names; `*.` before one stands for all names below it, `*` for every name.
        """
        self._own = frozenset(map(_plain, own))
        self._patterns = (*ALWAYS, *map(_plain, patterns))
        self._logged.clear()

    def refusal(self, asked: Iterable[str], here: str = "") -> str | None:
        """Return why a request is not answered, for people; None if it is.

        Args:
            asked: what the request's target and its `Host` have of a host, with or without a port;
                nothing where neither has one, which no browser does.
            here: the host that is listened on, which is allowed too.
        """
        names = [name for name in map(_without_port, asked) if name != _plain(here)]
        wrong = next((name for name in names if not self._allows(name)), None)
        if wrong is None:
            return None
        text = f"podgpu is not known as {shown(wrong)} here; {self._setting} allows further names"
        self._log_refused(wrong)
        return text

    def _allows(self, name: str) -> bool:
        if not name or ANY_HOST in self._patterns or _is_address(name):
            return True
        if _NAME.fullmatch(name) is None:
            return False
        first, dot, _ = name.partition(".")
        return not dot or name in self._own or first in self._own or self._matches(name)

    def _matches(self, name: str) -> bool:
        return any(
            name.endswith(pattern[1:]) if pattern.startswith("*.") else name == pattern
            for pattern in self._patterns
        )

    def _log_refused(self, name: str) -> None:
        if name in self._logged or len(self._logged) > _MAX_LOGGED:
            return
        self._logged.add(name)
        if len(self._logged) > _MAX_LOGGED:
            _LOG.warning("requests for further hosts are refused, and no longer logged")
            return
        _LOG.warning(
            "a request for the host %s is refused (421): podgpu is not known by that name here, "
            "and a web page could make its own name lead here; if the name is right, add it to "
            "%s, or ask by the IP address",
            shown(name),
            self._setting,
        )


def _plain(name: str) -> str:
    return name.lower().removesuffix(".")


def _without_port(host: str) -> str:
    """Return the host of `HOST`, `HOST:PORT`, `[ADDRESS]`, `[ADDRESS]:PORT` or a bare address."""
    host = host.strip()
    if bracketed := _BRACKETED.fullmatch(host):
        host = bracketed[1]
    elif host.count(":") == 1:
        host = host.partition(":")[0]
    return _plain(host)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
