"""What an error over gRPC comes to.

The rules are those of "OTLP/gRPC Response" in the OTLP specification 1.11.
"""

import re
from typing import Final

from pipeline.base.safe_text import line
from pipeline.delivery.contract import Acked, Outcome, Rejected, Retry, TooLarge
from sinks.otlp.signals import METRICS, Signal
from sinks.otlp.transport.http_status import LOGIN
from sinks.otlp.transport.rpc_status import Status, read_status

_RETRY: Final = frozenset(
    ("CANCELLED", "DEADLINE_EXCEEDED", "ABORTED", "OUT_OF_RANGE", "UNAVAILABLE", "DATA_LOSS")
)
_FIXES: Final = {
    "UNAUTHENTICATED": LOGIN,
    "PERMISSION_DENIED": LOGIN,
    "UNIMPLEMENTED": "does it take {name}? A receiver over HTTP wants protocol: http/protobuf",
    "UNKNOWN": "is that a receiver over gRPC, and not one over HTTP? See its log",
}
_SIZE: Final = re.compile(
    r"larger than max|message exceeds|message (size|length)|(message|request|body) (is )?too large",
    re.IGNORECASE,
)
"""What servers say that take no message of this size: those in Go, C, Java and others."""

_TLS: Final = re.compile(r"handshake failed|SSL_ERROR|Verification Check failed", re.IGNORECASE)
_ENDED: Final = re.compile(
    r"failed to connect.*(Socket closed|reset by peer|Broken pipe|EOF|Unwrap failed|DATA_CORRUPTED)"
)
"""A server that wants another certificate of ours ends the connection without more words.

With TLS 1.3 it does so after the handshake, and the library can't read its alert. One that has TLS
ends a connection without it in the same way.
"""
_ALPN: Final = "missing selected ALPN"
_NO_GRPC: Final = "that is no port for gRPC: set protocol: http/protobuf, or the port for gRPC"

_OWN: Final = "CLIENT: Received"
"""What the library says when it is the answer that is too large.

For one that is so only when it is unpacked it has the words that a server has for a message. They
count as the server's: to send halves costs less than to lose the whole.
"""


def grpc_outcome(
    address: str,
    code: str,
    details: str,
    *,
    status: bytes = b"",
    timeout: float,
    secure: bool = False,
    proxy: str = "",
    signal: Signal = METRICS,
) -> Outcome:
    """Return what an error over gRPC comes to.

    Args:
        address: whose it is, for messages.
        code: its name in capitals.
        details: what the server, or the library, says.
        status: the trailer grpc-status-details-bin; empty without one.
        timeout: seconds that the receiver had.
        secure: whether there is TLS.
        proxy: the variable that names a proxy; empty without one.
        signal: of the message.
    """
    found = read_status(status)
    if code == "RESOURCE_EXHAUSTED":
        return _exhausted(address, details, found)
    text = f"{address}: answered {code}: {line(details)}".rstrip(": ")
    if code in _RETRY:
        found_out = _unreached(address, code, details, timeout, secure=secure, proxy=proxy)
        reason, text = found_out or (code.lower(), text)
        return Retry(reason, text, found.retry)
    mend = _FIXES.get(code, "see the log of the receiver").format(name=signal.name)
    return Rejected(code.lower(), f"{text}; {mend}")


def _exhausted(place: str, details: str, found: Status) -> Outcome:
    text = f"{place}: answered RESOURCE_EXHAUSTED: {line(details)}".rstrip(": ")
    if _OWN in details:
        return Acked(message=f"{place}: took the message, but its answer is too large to be taken")
    if _SIZE.search(details):
        return TooLarge(f"{text}; lower max_message_size, or let the receiver take more")
    if found.retry is None:
        # Only with RetryInfo does it say that trying again may help.
        return Rejected("resource_exhausted", f"{text}; see the quota that the receiver has set")
    return Retry("resource_exhausted", text, found.retry)


def _unreached(
    place: str, code: str, details: str, timeout: float, *, secure: bool, proxy: str
) -> tuple[str, str] | None:
    """Return reason and text where it is the library that speaks, and not the receiver."""
    told = line(details)
    if code == "DEADLINE_EXCEEDED":
        return "timeout", (
            f"{place}: no answer within {timeout:g} s; see that the address is right and "
            "reachable, and the receiver not overloaded"
        )
    if code != "UNAVAILABLE":
        return None
    if _TLS.search(details) or (secure and (_ENDED.search(details) or _ALPN in details)):
        return "tls", f"{place}: TLS failed: {_last(told)}; {_tls_fix(details)}"
    if "failed to connect" in details or re.search(r"resolution failed|errors resolving", details):
        mend = _fix_for(details)
        if proxy:
            mend += f"; is the proxy of {proxy} the right one? Else name the receiver in no_proxy"
        return "unreachable", f"{place}: can't be reached: {_last(told)}; {mend}"
    return None


def _fix_for(details: str) -> str:
    if "http1.x server" in details:
        return _NO_GRPC
    mend = "see that the receiver runs and its address is right"
    return f"{mend}; one with TLS ends it so: write https then" if _ENDED.search(details) else mend


def _last(details: str) -> str:
    """Return the cause at the end of the library's words, which name an address on the way."""
    return details.rpartition("last error: ")[2]


def _tls_fix(details: str) -> str:
    if "CERTIFICATE_VERIFY_FAILED" in details or "Hostname" in details:
        return "see that its certificate fits the endpoint's name and ca_file, and is in date"
    if "ALERT" in details or _ENDED.search(details):
        return (
            "it takes not the certificate that podgpu shows, or wants one: see cert_file, key_file"
        )
    if "WRONG_VERSION_NUMBER" in details:
        return "is it a receiver with TLS? If not, write http"
    if _ALPN in details:
        return _NO_GRPC
    return "is it a receiver with TLS? See that its certificate fits the endpoint and ca_file"
