"""HTTP responses that mean that a message is too large and has to be split."""

import pytest

from pipeline.delivery.contract import Rejected, Retry, TooLarge
from tests.sinks.otlp.transport.receivers import status
from tests.sinks.otlp.transport.test_http_status import http


def test_o3_status_413_means_too_large() -> None:
    found = http(413)
    assert isinstance(found, TooLarge)
    assert "lower max_message_size, or raise the limit of the receiver" in found.message


@pytest.mark.parametrize(
    "text",
    [
        "http: request body too large",
        "Request body is too large",
        "payload too large",
        "rpc error: grpc: received message larger than max (5000000 vs. 4194304)",
    ],
)
@pytest.mark.parametrize("code", [400, 413, 500])
@pytest.mark.parametrize(
    "content_type", ["application/x-protobuf", "text/plain; charset=utf-8", ""]
)
def test_r15_too_large_is_recognised_with_any_status(
    code: int, text: str, content_type: str
) -> None:
    """R15: the Collector returns 400 with `http: request body too large`; other servers 413."""
    body = status(3, text) if content_type == "application/x-protobuf" else text.encode()
    found = http(code, body, content_type=content_type)
    assert isinstance(found, TooLarge)
    assert text in found.message


@pytest.mark.parametrize(
    "text", ["label value larger than max", "a label value is too large", "bad request body"]
)
def test_r15_other_size_errors_are_not_split(text: str) -> None:
    """R15: splitting does not help if a single value is refused."""
    assert isinstance(http(400, status(3, text)), Rejected)


@pytest.mark.parametrize("code", [429, 502, 503, 504])
def test_r15_a_retryable_status_is_retried_for_any_text(code: int) -> None:
    """R15: the specification requires a retry for these statuses, for any text."""
    assert isinstance(http(code, status(3, "http: request body too large")), Retry)
