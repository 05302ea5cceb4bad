"""The checks of the node that concern no single component."""

from typing import Final

from pipeline.component.check import BOTH, FAILS, WARNS, Check, checks_by_id

CHECKS: Final = checks_by_id(
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
)
