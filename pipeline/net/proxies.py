"""The proxy that the environment names for a URL, as curl and Go's clients read it."""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final, TypeAlias
from urllib.parse import SplitResult, unquote, urlsplit

_PORTS: Final = {"http": 80, "https": 443}
_ENTRY: Final = re.compile(r"\[(?P<six>[^\]]*)\](?::(?P<at>\d+))?|(?P<host>[^:]*):(?P<port>\d+)")

_Address: TypeAlias = IPv4Address | IPv6Address


class ProxyError(ValueError):
    """A variable names no proxy that can be used; the text names it and the mend."""


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy.

    Attributes:
        url: where it is, without user and password.
        variable: what named it.
        headers: for the proxy alone.
    """

    url: str
    variable: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def sent(self, url: str) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """Return the headers of a request to a URL, and those of the proxy's own CONNECT.

        Without TLS there is no CONNECT: the proxy reads the request itself.
        """
        return ({}, self.headers) if url.lower().startswith("https:") else (self.headers, {})


def proxy_for(url: str, environ: Mapping[str, str]) -> Proxy | None:
    """Return the proxy for a URL; None if it is asked directly.

    `http_proxy`, `https_proxy` and `all_proxy` name it, and `no_proxy` what goes without one: names
    with all that is below them, addresses, networks such as 10.0.0.0/8, each with or without a
    port, and `*`. A variable in lower case hides the same one in capitals; a blank one names none.
    `localhost` and loopback addresses always go without one, as in Go.

    Args:
        url: one for anything but http and https is asked directly.
        environ: the variables.

    Raises:
        ProxyError: what a variable names can't be used. The text doesn't repeat it, since there may
            be a password in it.
    """
    parts = urlsplit(url)
    if parts.scheme not in _PORTS:
        return None
    for name in (f"{parts.scheme}_proxy", "all_proxy"):
        variable, value = _read(name, environ)
        if value:
            break
    else:
        return None
    port = parts.port or _PORTS[parts.scheme]
    if _direct(parts.hostname or "", port, _read("no_proxy", environ)[1]):
        return None
    return _proxy(variable, value)


def _read(name: str, environ: Mapping[str, str]) -> tuple[str, str]:
    name = name if name in environ else name.upper()
    return name, environ.get(name, "").strip()


def _proxy(variable: str, value: str) -> Proxy:
    text = value if "://" in value else f"http://{value}"
    scheme = text.partition("://")[0].lower()
    if scheme not in _PORTS:
        kind = f" of the kind {scheme}" if re.fullmatch(r"[a-z][a-z0-9+.-]{0,19}", scheme) else ""
        raise ProxyError(
            f"the variable {variable} names a proxy{kind}, which is not supported: it has to be "
            "one for http:// or https://"
        )
    try:
        parts = _checked(text)
    except ValueError:
        raise ProxyError(
            f"the variable {variable} is no address of a proxy: write for example http://proxy:3128"
        ) from None
    user, _, place = parts.netloc.rpartition("@")
    headers = {}
    if user:
        pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}".encode()
        headers["Proxy-Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
    return Proxy(f"{scheme}://{place}", variable, headers)


def _checked(text: str) -> SplitResult:
    parts = urlsplit(text)
    host = parts.hostname or ""
    if ":" not in host:
        # Fails for a name with a part that is too long, or empty.
        host = host.encode("idna").decode()
    if not host or parts.port == 0 or not text.isprintable() or " " in text:
        raise ValueError
    return parts


def _direct(host: str, port: int, exceptions: str) -> bool:
    host = host.lower().rstrip(".")
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    return any(
        _fits(entry.lower(), host, port, address) for entry in re.split(r"[,\s]+", exceptions)
    )


def _fits(entry: str, host: str, port: int, address: _Address | None) -> bool:
    if entry == "*":
        return True
    if found := _ENTRY.fullmatch(entry):
        wanted = found["at"] or found["port"]
        if wanted is not None and int(wanted) != port:
            return False
        entry = found["six"] or found["host"] or ""
    if address is not None:
        try:
            return address in ip_network(entry, strict=False)
        except ValueError:
            return False
    name = entry.removeprefix("*").strip(".")
    return bool(name) and (host == name or host.endswith(f".{name}"))


def _address(host: str) -> _Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None
