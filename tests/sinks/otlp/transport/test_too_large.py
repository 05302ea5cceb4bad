"""Which answers over HTTP say that a message is too large, so that it is split."""

import pytest

from pipeline.delivery.contract import Rejected, Retry, TooLarge
from tests.sinks.otlp.transport.receivers import status
from tests.sinks.otlp.transport.test_http_status import http


def test_o3_a_message_that_is_too_large_is_for_splitting() -> None:
    found = http(413)
    assert isinstance(found, TooLarge)
    assert "lower max_message_size, or raise the limit of the receiver" in found.message


@pytest.mark.parametrize(
    "said",
    [
        "http: request body too large",
        "Request body is too large",
        "payload too large",
        "rpc error: grpc: received message larger than max (5000000 vs. 4194304)",
    ],
)
@pytest.mark.parametrize("code", [400, 413, 500])
@pytest.mark.parametrize("form", ["application/x-protobuf", "text/plain; charset=utf-8", ""])
def test_r15_too_large_is_recognised_under_any_status(code: int, said: str, form: str) -> None:
    """R15: the Collector says 400 with `http: request body too large`; other servers say 413."""
    body = status(3, said) if form == "application/x-protobuf" else said.encode()
    found = http(code, body, content_type=form)
    assert isinstance(found, TooLarge)
    assert said in found.message


@pytest.mark.parametrize(
    "said", ["label value larger than max", "a label value is too large", "bad request body"]
)
def test_r15_what_is_not_about_the_message_s_size_is_not_split(said: str) -> None:
    """R15: halving doesn't help where one value is refused."""
    assert isinstance(http(400, status(3, said)), Rejected)


@pytest.mark.parametrize("code", [429, 502, 503, 504])
def test_r15_a_status_that_may_be_tried_again_stays_one(code: int) -> None:
    """R15: the specification has these statuses retried, whatever the text says."""
    assert isinstance(http(code, status(3, "http: request body too large")), Retry)
