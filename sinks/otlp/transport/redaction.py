"""Remove podgpu's secrets from messages of a receiver."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from pipeline.base.safe_text import redact
from pipeline.delivery.contract import Outcome


def redact_outcome(outcome: Outcome, headers: Mapping[str, str], token: str) -> Outcome:
    """Return the outcome with the values of headers and the token removed from its message.

    Args:
        outcome: outcome of sending a message.
        headers: configured headers of the request; each value may be a secret.
        token: token of the request; empty for none.
    """
    if not outcome.message:
        return outcome
    return replace(outcome, message=redact(outcome.message, {token, *_secret_parts(headers)}))


def _secret_parts(headers: Mapping[str, str]) -> Iterator[str]:
    for value in headers.values():
        yield value
        yield value.rpartition(" ")[2]  # a receiver may repeat `Bearer abc` as `abc`
