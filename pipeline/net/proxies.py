"""Finds the proxy for a URL in the environment variables, like curl and Go's HTTP client."""

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
    """A variable contains no usable proxy. The text names the variable and says how to fix it."""


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy.

    Attributes:
        url: URL of the proxy, without user and password.
        variable: name of the environment variable that contains the URL.
        headers: headers that only the proxy may get.
    """

    url: str
    variable: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def sent(self, url: str) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """Return the additional headers of a request to a URL, and of the CONNECT to the proxy.

        Only https uses CONNECT. For http, the proxy reads the request itself.
        """
        return ({}, self.headers) if url.lower().startswith("https:") else (self.headers, {})


def proxy_for(url: str, environ: Mapping[str, str]) -> Proxy | None:
    """Return the proxy for a URL; None for a direct connection.

    `http_proxy`, `https_proxy` and `all_proxy` contain the proxy's URL. `no_proxy` lists
    exceptions: domain names including their subdomains, addresses, networks such as 10.0.0.0/8,
    each with or without a port, and `*`. A variable in lower case overrides the same one in upper
    case. A blank variable means no proxy. `localhost` and loopback addresses never use a proxy, as
    in Go.

    Args:
        url: URL of the request. Schemes other than http and https use no proxy.
        environ: the environment variables.

    Raises:
        ProxyError: the value of a variable cannot be used. The text does not contain the value,
            because it may contain a password.
    """
    parts = urlsplit(url)
    if parts.scheme not in _PORTS:
        return None
    for name in (f"{parts.scheme}_proxy", "all_proxy"):
        variable, value = _variable(name, environ)
        if value:
            break
    else:
        return None
    port = parts.port or _PORTS[parts.scheme]
    if _is_direct(parts.hostname or "", port, _variable("no_proxy", environ)[1]):
        return None
    return _proxy(variable, value)


def _variable(name: str, environ: Mapping[str, str]) -> tuple[str, str]:
    name = name if name in environ else name.upper()
    return name, environ.get(name, "").strip()


def _proxy(variable: str, value: str) -> Proxy:
    text = value if "://" in value else f"http://{value}"
    scheme = text.partition("://")[0].lower()
    if scheme not in _PORTS:
        kind = f" of the kind {scheme}" if re.fullmatch(r"[a-z][a-z0-9+.-]{0,19}", scheme) else ""
        raise ProxyError(
            f"the variable {variable} sets a proxy{kind}, which is not supported: it must be an "
            "http:// or https:// proxy"
        )
    try:
        parts = _parse(text)
    except ValueError:
        raise ProxyError(
            f"the variable {variable} is not a proxy address: write for example http://proxy:3128"
        ) from None
    user, _, host_and_port = parts.netloc.rpartition("@")
    headers = {}
    if user:
        pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}".encode()
        headers["Proxy-Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
    return Proxy(f"{scheme}://{host_and_port}", variable, headers)


def _parse(text: str) -> SplitResult:
    parts = urlsplit(text)
    host = parts.hostname or ""
    if ":" not in host:
        # Raises an error for a name with a part that is too long or empty.
        host = host.encode("idna").decode()
    if not host or parts.port == 0 or not text.isprintable() or " " in text:
        raise ValueError
    return parts


def _is_direct(host: str, port: int, exceptions: str) -> bool:
    host = host.lower().rstrip(".")
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    return any(
        _matches(entry.lower(), host, port, address) for entry in re.split(r"[,\s]+", exceptions)
    )


def _matches(entry: str, host: str, port: int, address: _Address | None) -> bool:
    if entry == "*":
        return True
    if found := _ENTRY.fullmatch(entry):
        wanted_port = found["at"] or found["port"]
        if wanted_port is not None and int(wanted_port) != port:
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
