"""Checks that several components, or the doctor itself, use."""

from typing import Final

from pipeline.component.check import BOTH, FAILS, WARNS, Check

COUNTERS_LIST: Final = Check(
    "counters",
    "`counters`: the file, or the ConfigMap",
    "the list of metrics cannot be read, or podgpu does not understand some of its rows",
    "mount the file's folder; give the service account `get` on the ConfigMap; fix the rows "
    "that are listed",
    BOTH,
    skips=False,
)

NODE_NAME: Final = Check(
    "node.name",
    "`node` of the configuration, and whether the API server knows pods of that node",
    "the name is not that of the Node object: no pods are found, and labels name another node",
    "set `NODE_NAME` from the field `spec.nodeName` and `node: ${NODE_NAME:-}` in the file",
    BOTH,
)

DUPLICATE_DAEMONS: Final = Check(
    "twins",
    "the processes that are visible here, and the node's pods if the API server is a source",
    "two podgpu, or podgpu and dcgm-exporter, run on one node: sums count each GPU twice; two "
    "pods of one DaemonSet are an update in progress",
    "remove one of them, or run them on different nodes by a label",
    WARNS,
    skips=False,
)

TIMED_OUT: Final = Check(
    "check.deadline",
    "how long the checks of a component take",
    "a file, a socket or the driver does not respond",
    "check what does not respond: a file server that is unavailable, a driver that hangs "
    "(`dmesg`), a credential plugin",
    FAILS,
    skips=False,
)

BUG: Final = Check(
    "check.bug",
    "whether a check itself works",
    "podgpu has a bug; the other checks continue",
    "report the bug with the text; the result of the check is unknown",
    FAILS,
    skips=False,
)
