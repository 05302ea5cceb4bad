"""What a receiver says, without what it repeats of ours."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from pipeline.base.safe_text import redact
from pipeline.delivery.contract import Outcome


def redact_outcome(outcome: Outcome, headers: Mapping[str, str], token: str) -> Outcome:
    """Return the same outcome; in its message no header's value and no token is repeated.

    Args:
        outcome: of a message that was sent.
        headers: that went with it, as they are configured: each may be a key.
        token: that went with it; empty for none.
    """
    if not outcome.message:
        return outcome
    return replace(outcome, message=redact(outcome.message, {token, *_secret_parts(headers)}))


def _secret_parts(headers: Mapping[str, str]) -> Iterator[str]:
    for value in headers.values():
        yield value
        yield value.rpartition(" ")[2]  # `Bearer abc` is repeated as `abc`
