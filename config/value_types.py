"""Types of values with a unit or a structure: durations, sizes, listen addresses."""

import ipaddress
import math
import re
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Self

from config.message_text import shown

NUMBER: Final = r"[0-9]+(?:\.[0-9]+)?"
_LONGEST: Final = 64  # characters; also limits the digits that int() gets
_NS: Final = 1_000_000_000
_BARE = re.compile(rf"[-+]?(?:{NUMBER}|\.[0-9]+)\Z")


class FormatError(ValueError):
    """A text is not a value of the expected type.

    Attributes:
        text: The text as given.
        reason: The problem; it completes a sentence about the text: ``has no unit``.
        hint: What to write instead; may repeat parts of the text.
    """

    def __init__(self, text: str, reason: str, hint: str) -> None:
        self.text = text
        self.reason = reason
        self.hint = hint
        super().__init__(text, reason, hint)

    def __str__(self) -> str:
        """Return text, reason and hint on one line."""
        return f"{shown(self.text)} {self.reason}; {self.hint}"


def _match(
    form: re.Pattern[str], text: str, noun: str, units: tuple[str, str], hint: str
) -> re.Match[str]:
    """Return the match of a number with units.

    Raises:
        FormatError: The text does not match.
    """
    if len(text) <= _LONGEST and _BARE.match(text):
        number, (one, other) = text.lstrip("+-"), units
        raise FormatError(text, "has no unit", f"write {number}{one} or {number}{other}")
    if text.startswith("-") and form.match(text[1:_LONGEST]):
        raise FormatError(text, "is negative", f"{noun} is zero or more")
    match = form.match(text) if text and len(text) <= _LONGEST else None
    if match is None:
        raise FormatError(text, f"is not {noun}", hint)
    return match


class Duration(float):
    """A duration in seconds; zero or more, exact to the nanosecond."""

    __slots__ = ()

    example: Final = "5s or 500ms"
    units: Final = {"d": 86_400 * _NS, "h": 3_600 * _NS, "m": 60 * _NS, "s": _NS, "ms": _NS // 1000}
    longest: Final = 36_500 * 86_400
    """The longest duration in seconds: a hundred years, so that ``ns`` fits into 64 bits."""

    _form = re.compile("".join(rf"(?:({NUMBER}){u}(?![a-z]))?" for u in units) + r"\Z")

    def __new__(cls, seconds: float) -> Self:
        """Return a duration in seconds; ValueError if negative, too long or not finite."""
        if not math.isfinite(seconds) or not 0 <= seconds <= cls.longest:
            raise ValueError(f"a duration is between 0 and {cls.longest} seconds, not {seconds}")
        # `+ 0.0` makes a negative zero an ordinary one.
        return super().__new__(cls, round(Fraction(seconds) * _NS) / _NS + 0.0)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a duration such as ``500ms``, ``5s``, ``1m30s``, ``1.5h`` or ``2d``.

        Raises:
            FormatError: The text is not a duration, has no unit or is too long.
        """
        hint = f"write for example {cls.example}; the units are d, h, m, s, ms, largest first"
        match = _match(cls._form, text, "a duration", ("s", "ms"), hint)
        sizes = cls.units.values()
        ns = sum(Fraction(n) * size for n, size in zip(match.groups(), sizes, strict=True) if n)
        if ns > cls.longest * _NS:
            raise FormatError(text, "is too long", "the maximum is 36500d")
        return cls(round(ns) / _NS)

    @property
    def ns(self) -> int:
        """The duration in whole nanoseconds."""
        return round(Fraction(float(self)) * _NS)

    def __str__(self) -> str:
        """Return the canonical text, which parses to an equal duration."""
        rest = self.ns
        if rest == 0:
            return "0s"
        if rest < _NS:
            return _decimal(Fraction(rest, self.units["ms"])) + "ms"
        parts: list[str] = []
        for unit in ("d", "h", "m"):
            count, rest = divmod(rest, self.units[unit])
            if count:
                parts.append(f"{count}{unit}")
        if rest:
            parts.append(_decimal(Fraction(rest, _NS)) + "s")
        return "".join(parts)

    def __repr__(self) -> str:
        return f"Duration({str(self)!r})"


class ByteSize(int):
    """A number of bytes, zero or more."""

    example: Final = "10MiB"
    units: Final = {
        "TiB": 1024**4,
        "TB": 1000**4,
        "GiB": 1024**3,
        "GB": 1000**3,
        "MiB": 1024**2,
        "MB": 1000**2,
        "KiB": 1024,
        "KB": 1000,
        "B": 1,
    }
    largest: Final = 2**63 - 1

    _form = re.compile(rf"({NUMBER})({'|'.join(units)})\Z")

    def __new__(cls, count: int) -> Self:
        """Return a size of ``count`` bytes; ValueError if negative or above 63 bits."""
        if not 0 <= count <= cls.largest:
            raise ValueError(f"a size is between 0 and {cls.largest} bytes, not {count}")
        return super().__new__(cls, count)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a size such as ``10MiB``, ``16KiB``, ``1GB`` or ``512B``.

        KiB is 1024 bytes, KB is 1000 bytes.

        Raises:
            FormatError: The text is not a size, has no unit or is not a whole number of bytes.
        """
        units = ", ".join(reversed(cls.units))
        hint = f"write for example {cls.example}; the units are {units}"
        match = _match(cls._form, text, "a size", ("KiB", "B"), hint)
        count = Fraction(match[1]) * cls.units[match[2]]
        if count.denominator != 1:
            raise FormatError(text, "is not a whole number of bytes", "use a smaller unit")
        if count > cls.largest:
            raise FormatError(text, "is too large", f"the maximum is {cls.largest}B")
        return cls(int(count))

    def __str__(self) -> str:
        """Return a text that parses to an equal size, with the largest unit that fits."""
        count = int(self)
        if count == 0:
            return "0B"
        whole = [(count // size, unit) for unit, size in self.units.items() if count % size == 0]
        least, unit = min(whole, key=lambda found: found[0])
        return f"{least}{unit}"

    def __repr__(self) -> str:
        return f"ByteSize({str(self)!r})"


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """An address that a server listens on.

    Attributes:
        host: A host name, an IPv4 address or an IPv6 address without brackets; empty for
            all addresses of the machine.
        port: 0 to 65535; 0 means any free port.
        systemd: Whether systemd opens the socket (socket activation); then host and port are
            unknown: empty and 0.
    """

    host: str
    port: int
    systemd: bool = False

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``:9400``, ``127.0.0.1:9400``, ``localhost:9400``, ``[::1]:9400`` or ``systemd``.

        Raises:
            FormatError: The text is not a listen address.
        """
        if text == "systemd":
            return cls("", 0, systemd=True)
        host, colon, port = text.rpartition(":")
        if not colon and re.fullmatch(r"[0-9]{1,5}", text):
            raise FormatError(text, "is only a port", f'write ":{text}"')
        if not colon or not port:
            raise FormatError(text, "has no port", 'write for example ":9400"')
        if not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535:
            raise FormatError(text, "has a bad port", "a port is a number from 0 to 65535")
        return cls(_host(text, host), int(port))

    def __str__(self) -> str:
        """Return the canonical text, which parses to an equal address."""
        if self.systemd:
            return "systemd"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _host(text: str, host: str) -> str:
    if host == "*":
        raise FormatError(text, "has a wildcard host", "omit the host to listen everywhere")
    if host.startswith("[") and host.endswith("]"):
        with suppress(ValueError):
            address = ipaddress.IPv6Address(host[1:-1])
            if re.fullmatch(r"[A-Za-z0-9_.-]+", address.scope_id or "none"):
                return str(address)
        raise FormatError(text, "has a bad IPv6 address", 'write for example "[::1]:9400"')
    if ":" in host and "/" not in host:
        raise FormatError(text, "is ambiguous", 'put IPv6 addresses in brackets: "[::1]:9400"')
    if re.fullmatch(r"[0-9.]+", host):
        with suppress(ValueError):
            return str(ipaddress.IPv4Address(host))
        raise FormatError(text, "has a bad IPv4 address", 'write for example "127.0.0.1:9400"')
    label = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
    if host and (len(host) > 253 or not re.fullmatch(rf"{label}(?:\.{label})*\.?", host)):
        raise FormatError(text, "has a bad host", "write host:port, without a scheme or a path")
    return host


def _decimal(value: Fraction) -> str:
    """Return a decimal fraction exactly, without an exponent; nine places are sufficient here."""
    return f"{int(value)}.{int(value % 1 * _NS):09d}".rstrip("0").rstrip(".")
