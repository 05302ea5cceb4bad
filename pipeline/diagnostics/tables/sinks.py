"""Checks of sinks."""

from typing import Final

from pipeline.component.check import BOTH, FAILS, Check

_FOLDER: Final = "mount a folder that podgpu may write to, and give a path in it"

CHECKS: Final = (
    Check(
        "otlp.receiver",
        "the receiver, by a request without points",
        "it cannot be reached, or it refuses podgpu",
        "check that the collector runs and has an OTLP receiver at that address; check headers, "
        "token and certificates",
        FAILS,
        skips=False,
    ),
    Check(
        "textfile.folder",
        "the folder of the `.prom` file",
        "it does not exist or is not writable",
        f"{_FOLDER}: the one of node_exporter's `--collector.textfile.directory`",
        FAILS,
        skips=False,
    ),
    Check(
        "jsonl.file",
        "the file of JSON lines, and its folder",
        "it is not writable",
        f'{_FOLDER}; or write `path: "-"` for standard output',
        FAILS,
        skips=False,
    ),
    Check(
        "podlist.target",
        "the podlist.json that is written, and its folder",
        "it is not writable, or it is a mount, which cannot be replaced",
        f"{_FOLDER}; `write: inplace` for a file that is mounted by itself",
        BOTH,
        skips=False,
    ),
    Check(
        "ledger.file",
        "the ledger's folder and file, and the process that has it open; the integrity of a small "
        "file",
        "it is not writable, another podgpu uses it, it is damaged, or its disk is too small",
        f"{_FOLDER}, on the node's own disk",
        BOTH,
        skips=False,
    ),
    Check(
        "node.rbac",
        "the node sink's permissions on its Node: by a read, and by access reviews",
        "a permission is missing, or the API server cannot be reached",
        "give the service account a ClusterRole with `get` and `patch` on nodes",
        FAILS,
        skips=False,
    ),
    Check(
        "pods.patch",
        "the pods sink's permissions on pods, by access reviews; nothing is changed",
        "a permission is missing, or the API server cannot be reached",
        "give the service account a ClusterRole with `get` and `patch` on pods",
        FAILS,
        skips=False,
    ),
    Check(
        "events.rbac",
        "the events sink's permissions on Events, by access reviews; no Event is created",
        "a permission is missing, or the API server cannot be reached",
        "give the service account a ClusterRole with `create` and `patch` on events, or a Role in "
        "each of `namespaces`",
        FAILS,
        skips=False,
    ),
)
