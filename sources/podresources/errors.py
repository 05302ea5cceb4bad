"""How requests to the kubelet end."""

from typing import Literal, TypeAlias

Result: TypeAlias = Literal[
    "ok", "unimplemented", "absent", "unreachable", "rejected", "timeout", "too_large", "failed"
]
"""How a request ended.

* `unimplemented`: the kubelet doesn't offer the method, or has it switched off
* `absent`: there is no such pod
* `rejected`: the kubelet takes no more requests at this moment
"""


class KubeletError(Exception):
    """A request failed; the text says where, why and what helps.

    Args:
        result: how it ended.
        text: for people, fit for a log.
        reason: what of the text doesn't vary while the same is wrong; the text itself without one.

    Attributes:
        dedup_key: equal for two errors if the second is no news after the first.
    """

    def __init__(self, result: Result, text: str, reason: str = "") -> None:
        super().__init__(text)
        self.result = result
        self.dedup_key: tuple[str, str] = (result, reason or text)
