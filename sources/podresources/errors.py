"""Results and errors of requests to the kubelet."""

from typing import Literal, TypeAlias

Result: TypeAlias = Literal[
    "ok", "unimplemented", "absent", "unreachable", "rejected", "timeout", "too_large", "failed"
]
"""Result of a request.

* `unimplemented`: the kubelet does not offer the method, or has it disabled
* `absent`: the pod does not exist
* `rejected`: the kubelet accepts no more requests at present
"""


class KubeletError(Exception):
    """A request failed. The text names the socket, the reason and the fix.

    Args:
        result: the result.
        text: for people and logs.
        reason: the part of the text that is constant for the same error; by default the text.

    Attributes:
        dedup_key: equal for two errors if the second one need not be reported after the first.
    """

    def __init__(self, result: Result, text: str, reason: str = "") -> None:
        super().__init__(text)
        self.result = result
        self.dedup_key: tuple[str, str] = (result, reason or text)
