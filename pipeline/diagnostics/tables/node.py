"""Checks of the node that do not depend on the configured components."""

from typing import Final

from pipeline.component.check import BOTH, FAILS, WARNS, Check

CHECKS: Final = (
    Check(
        "config",
        "the configuration file",
        "podgpu would not start with this file, or the file names a library that the command line "
        "does not allow",
        "fix the problems that are listed; `podgpu check` reports the same",
        FAILS,
        skips=False,
    ),
    Check(
        "counters",
        "`counters`: the file, or the ConfigMap",
        "the list of metrics cannot be read, or podgpu does not understand some of its rows",
        "mount the file's folder; give the service account `get` on the ConfigMap; fix the rows "
        "that are listed",
        BOTH,
        skips=False,
    ),
    Check(
        "node.name",
        "`node` of the configuration, and whether the API server knows pods of that node",
        "the name is not that of the Node object: no pods are found, and labels name another node",
        "set `NODE_NAME` from the field `spec.nodeName` and `node: ${NODE_NAME:-}` in the file",
        BOTH,
    ),
    Check(
        "clock",
        "the kernel's clock state, and the time in responses of the API server",
        "the clock is wrong: so are samples and ages; tokens and certificates may be refused",
        "run chrony or systemd-timesyncd on the node",
        BOTH,
    ),
    Check(
        "http.port",
        "each address that podgpu listens on: podgpu doctor binds it briefly, or identifies the "
        "server that listens there",
        "the port is in use, for example by dcgm-exporter or another podgpu, or podgpu may not "
        "listen on it; or podgpu listens and does not respond",
        "remove the other exporter from the node, or set another `listen`; restart a podgpu that "
        "hangs",
        BOTH,
    ),
    Check(
        "daemon.status",
        "`/status` of the podgpu that responds at `http.port`, and its metric of the last reload",
        "podgpu reports a problem: a source is down, a sink delivers nothing, a GPU is lost, a "
        "changed file was refused",
        "read the check of that source or sink here, and podgpu's log",
        WARNS,
    ),
    Check(
        "http.web_config",
        "`http.web_config`: the file, and the certificates, keys and passwords that it names",
        "podgpu would not start with it, or its certificate has expired, so that clients refuse it",
        "fix the file or the files that it names; renew the certificate",
        FAILS,
        skips=False,
    ),
    Check(
        "twins",
        "the processes that are visible here, and the node's pods if the API server is a source",
        "two podgpu, or podgpu and dcgm-exporter, run on one node: sums count each GPU twice; two "
        "pods of one DaemonSet are an update in progress",
        "remove one of them, or run them on different nodes by a label",
        WARNS,
        skips=False,
    ),
    Check(
        "queue.folder",
        "`queue.path` of each sink: podgpu doctor writes a file there and removes it, and checks "
        "the owner of the files and the holder of the lock",
        "another podgpu uses it, it or a file in it is not writable, or queued data is lost with "
        "the container or the node (tmpfs)",
        "mount a folder of the node's disk that podgpu may write to, one for each podgpu; "
        "`chown -R` if podgpu ran as another user before",
        BOTH,
    ),
    Check(
        "queue.rate",
        "the data rate of each sink with a queue, as the podgpu at `http.port` reports it, "
        "compared with `queue.max_rate`",
        "above half of the limit: sending the queue takes longer than the outage lasted; "
        "at the limit or above, the queue never shrinks, and overflows",
        "raise `queue.max_rate`, or let podgpu produce less: longer intervals, fewer fields",
        WARNS,
    ),
    Check(
        "check.deadline",
        "how long the checks of a component take",
        "a file, a socket or the driver does not respond",
        "check what does not respond: a file server that is unavailable, a driver that hangs "
        "(`dmesg`), a credential plugin",
        FAILS,
        skips=False,
    ),
    Check(
        "check.bug",
        "whether a check itself works",
        "podgpu has a bug; the other checks continue",
        "report the bug with the text; the result of the check is unknown",
        FAILS,
        skips=False,
    ),
)
