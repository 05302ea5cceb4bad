"""Checks of sinks."""

from typing import Final

from pipeline.component.check import BOTH, FAILS, Check

_FOLDER: Final = "mount a folder that podgpu may write to, and give a path in it"

CHECKS: Final = (
    Check(
        "otlp.receiver",
        "the receiver, sent a message without a single point",
        "it can't be reached, or refuses podgpu",
        "see that the collector runs and has an OTLP receiver at that address; see headers, token "
        "and certificates",
        FAILS,
        skips=False,
    ),
    Check(
        "textfile.folder",
        "the folder of the `.prom` file",
        "it isn't there or may not be written to",
        f"{_FOLDER}: the one of node_exporter's `--collector.textfile.directory`",
        FAILS,
        skips=False,
    ),
    Check(
        "jsonl.file",
        "the file of JSON lines, and its folder",
        "it may not be written to",
        f'{_FOLDER}; or write `path: "-"` for standard output',
        FAILS,
        skips=False,
    ),
    Check(
        "podlist.target",
        "the podlist.json that is written, and its folder",
        "it may not be written to, or its mount lets nobody replace it",
        f"{_FOLDER}; `write: inplace` for a file that is mounted by itself",
        BOTH,
        skips=False,
    ),
    Check(
        "ledger.file",
        "the ledger's folder and file, who has it, and if it is small whether it is whole",
        "it may not be written to, another podgpu has it, it is spoilt, or its disk is too small",
        f"{_FOLDER} of the node's own disk",
        BOTH,
        skips=False,
    ),
    Check(
        "node.rbac",
        "the node sink's rights on its Node: it is read, and asked whether it may be changed",
        "a verb is missing, which is named, or the API server can't be reached",
        "give the service account a ClusterRole with `get` and `patch` on nodes",
        FAILS,
        skips=False,
    ),
    Check(
        "pods.patch",
        "the pods sink's rights on pods: asked, nothing is changed",
        "a verb is missing, which is named, or the API server can't be reached",
        "give the service account a ClusterRole with `get` and `patch` on pods",
        FAILS,
        skips=False,
    ),
    Check(
        "events.rbac",
        "the events sink's rights on Events: asked, none is made",
        "a verb is missing, which is named, or the API server can't be reached",
        "give the service account a ClusterRole with `create` and `patch` on events, or a Role in "
        "each of `namespaces`",
        FAILS,
        skips=False,
    ),
)
