"""Checks the host name of HTTP requests, as a protection against DNS rebinding.

With DNS rebinding, a web page makes its own host name point to podgpu's address. The browser of a
visitor then lets the page read podgpu's pages. Such requests contain the page's host name, so
podgpu refuses host names that are not allowed.
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
"""Always allowed, in addition to IP addresses, names without a dot, and names of host and node."""

_NAME: Final = re.compile(r"[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*")
_BRACKETED: Final = re.compile(r"\[([^\]]*)\](?::[0-9]*)?")
_MAX_LOGGED: Final = 32
"""Maximum number of refused names that are logged, because clients can invent names."""


class Hosts:
    """The allowed host names.

    Args:
        setting: name of the option that allows further names, for messages.
    """

    def __init__(self, setting: str = "http.allowed_hosts") -> None:
        self._setting = setting
        self._own: frozenset[str] = frozenset()
        self._patterns: tuple[str, ...] = ALWAYS
        self._logged: set[str] = set()

    def allow(self, own: Iterable[str], patterns: Iterable[str]) -> None:
        """Set the names that are allowed in addition to `ALWAYS`.

        Args:
            own: names of this machine; `NAME` also allows names that begin with `NAME.`.
            patterns: names; `*.` at the start stands for all subdomains, `*` for every name.
        """
        self._own = frozenset(map(_normalized, own))
        self._patterns = (*ALWAYS, *map(_normalized, patterns))
        self._logged.clear()

    def refusal(self, hosts: Iterable[str], own_host: str = "") -> str | None:
        """Return why a request is refused, as text for users; None if it is allowed.

        Args:
            hosts: hosts in the request's target and its `Host` headers, with or without a port.
                Empty if the request has none; browsers always send one.
            own_host: the host in the listener's address, which is allowed too.
        """
        names = [name for name in map(_without_port, hosts) if name != _normalized(own_host)]
        refused = next((name for name in names if not self._allows(name)), None)
        if refused is None:
            return None
        text = f"the host name {shown(refused)} is not allowed; add it to {self._setting}"
        self._log_refused(refused)
        return text

    def _allows(self, name: str) -> bool:
        if not name or ANY_HOST in self._patterns or _is_address(name):
            return True
        if _NAME.fullmatch(name) is None:
            return False
        first, dot, _ = name.partition(".")
        return (
            not dot
            or name in self._own
            or first in self._own
            or any(
                name.endswith(pattern[1:]) if pattern.startswith("*.") else name == pattern
                for pattern in self._patterns
            )
        )

    def _log_refused(self, name: str) -> None:
        if name in self._logged or len(self._logged) > _MAX_LOGGED:
            return
        self._logged.add(name)
        if len(self._logged) > _MAX_LOGGED:
            _LOG.warning(
                "podgpu refuses requests for further host names too, and does not log them"
            )
            return
        _LOG.warning(
            "refused a request for the host name %s (status 421): it is not an allowed name, and a "
            "web page could use its own name for an attack (DNS rebinding). If the name is right, "
            "add it to %s, or use the IP address",
            shown(name),
            self._setting,
        )


def _normalized(name: str) -> str:
    return name.lower().removesuffix(".")


def _without_port(host: str) -> str:
    """Return the host of `HOST`, `HOST:PORT`, `[ADDRESS]`, `[ADDRESS]:PORT` or an address."""
    host = host.strip()
    if bracketed := _BRACKETED.fullmatch(host):
        host = bracketed[1]
    elif host.count(":") == 1:
        host = host.partition(":")[0]
    return _normalized(host)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
