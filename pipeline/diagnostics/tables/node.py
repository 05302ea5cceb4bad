"""Checks of the node, whatever is configured."""

from typing import Final

from pipeline.component.check import BOTH, FAILS, WARNS, Check

CHECKS: Final = (
    Check(
        "config",
        "the configuration file",
        "podgpu would not start with this file, or it names a library that the command line does "
        "not allow",
        "mend what is named; `podgpu check` tells the same",
        FAILS,
        skips=False,
    ),
    Check(
        "counters",
        "`counters`: the file, or the ConfigMap",
        "the list of metrics can't be read, or rows of it mean nothing to podgpu",
        "mount the file's folder; give the service account `get` on the ConfigMap; mend the rows "
        "that are named",
        BOTH,
        skips=False,
    ),
    Check(
        "node.name",
        "`node` of the file, and the API server's pods of that node",
        "the name is not the Node's: no pod is found, and labels name another node",
        "set `NODE_NAME` from the field `spec.nodeName` and `node: ${NODE_NAME:-}` in the file",
        BOTH,
    ),
    Check(
        "clock",
        "the kernel's word on its clock, and the time on the API server's answers",
        "the clock is off: samples and ages are wrong, tokens and certificates may be refused",
        "run chrony or systemd-timesyncd on the node",
        BOTH,
    ),
    Check(
        "http.port",
        "each address that podgpu listens on: it is bound for a moment, or asked who is there",
        "the port is taken, as by dcgm-exporter or another podgpu, or may not be listened on; or "
        "podgpu listens and doesn't answer",
        "remove the other exporter from the node, or set another `listen`; restart a podgpu that "
        "hangs",
        BOTH,
    ),
    Check(
        "daemon.status",
        "`/status` of the podgpu that answers at `http.port`, and its gauge of the last reload",
        "it says itself that something is wrong: a source is down, a sink delivers nothing, a GPU "
        "is lost, a changed file was refused",
        "see the check of that source or sink here, and podgpu's log",
        WARNS,
    ),
    Check(
        "http.web_config",
        "`http.web_config`: the file, and the certificates, keys and passwords that it names",
        "podgpu would not start with it, or clients refuse its certificate, which has expired",
        "mend the file or what it names; renew the certificate",
        FAILS,
        skips=False,
    ),
    Check(
        "twins",
        "the processes that can be seen from here, and the node's pods where the API server is a "
        "source",
        "two podgpu, or podgpu and dcgm-exporter, on one node: each GPU counts twice in a sum; two "
        "pods of one DaemonSet are an update that is under way",
        "remove one of them, or keep their nodes apart by a label",
        WARNS,
        skips=False,
    ),
    Check(
        "queue.folder",
        "`queue.path` of each sink: a file is written there and removed, whose its files are, and "
        "who has its lock",
        "another podgpu has it, it or a file in it may not be written to, or what waits is lost "
        "with the container or the node (tmpfs)",
        "mount a folder of the node's disk that podgpu may write to, one for each podgpu; "
        "`chown -R` where podgpu ran as another user before",
        BOTH,
    ),
    Check(
        "queue.rate",
        "how much the podgpu that answers at `http.port` makes in a second for each sink with a "
        "queue, against `queue.max_rate`",
        "more than half of it: after an outage the backlog takes longer to go than the outage "
        "took, and as much or more: it never goes, and the queue runs over",
        "raise `queue.max_rate`, or let podgpu make less: longer intervals, fewer fields",
        WARNS,
    ),
    Check(
        "check.deadline",
        "how long the checks of a component take",
        "a file, a socket or the driver doesn't answer",
        "see what the place is: a file server that is away, a driver that hangs (`dmesg`), a "
        "credential plugin",
        FAILS,
        skips=False,
    ),
    Check(
        "check.bug",
        "whether a check itself works",
        "podgpu has a bug; the other checks go on",
        "report it with the text; what the check looks at is not known",
        FAILS,
        skips=False,
    ),
)
