"""Alerts about podgpu itself and its sources."""

from collections.abc import Mapping

from tests.deploy.alerts.case import NODE, Case, own, series

UP, BUILD = series("up"), series("podgpu_build_info", version="0.1.0")
KUBELET = {"source": "kubelet", "kind": "podresources"}
SOURCE_UP = series("podgpu_source_up", **KUBELET)
AGE = series("podgpu_source_age_seconds", **KUBELET)
ATTRIBUTED = series("podgpu_attribution_age_seconds", **KUBELET)
UNRESOLVED = series("podgpu_device_ids_unresolved", **KUBELET)
REFUSED = series("podgpu_config_reloads_total", result="refused")

NEW = {"instance": "10.0.0.9:9400"}
NEW_UP = series("up", **NEW)
OTHER_NODE = {"instance": "10.0.0.2:9400", "node": "node-2"}
OTHER_UP, OTHER_BUILD = series("up", **OTHER_NODE), series("podgpu_build_info", **OTHER_NODE)
OLD_PROCESS = {series("process_start_time_seconds"): "-99999x99"}

EXPORTER: Mapping[str, tuple[Case, ...]] = {
    "PodgpuDown": (
        Case(
            "podgpu ends",
            {UP: "1x9 0x30", BUILD: "1x9 stale"},
            15,
            [own()],
            f"podgpu on {NODE} cannot be scraped",
            "It, or another podgpu of its job, was scraped within the last six hours. The state "
            "of that node's GPUs is unknown.",
        ),
        Case(
            "a new pod never responds at its new address",
            {UP: "1x9 stale", BUILD: "1x9 stale", NEW_UP: "_x10 0x30"},
            20,
            [own(**NEW)],
        ),
        Case(
            "it never responded, and podgpus of other nodes do",
            {NEW_UP: "0x30", OTHER_UP: "1x30", OTHER_BUILD: "1x30"},
            20,
            [own(**NEW)],
        ),
        Case(
            "a job that scrapes other programs too: only the one that was podgpu",
            {UP: "1x9 0x30", BUILD: "1x9 stale", OTHER_UP: "1x40", NEW_UP: "0x40"},
            20,
            [own()],
        ),
        Case(
            "the new pod of the node does not respond, and the old one still does",
            {UP: "1x30", BUILD: "1x30", NEW_UP: "_x10 0x30"},
            20,
        ),
        Case("for less than three minutes", {UP: "1x9 0x30", BUILD: "1x9 stale"}, 12),
        Case("podgpu runs", {UP: "1x30", BUILD: "1x30"}, 15),
        Case("another program", {UP: "0x30"}, 15),
        Case("its pod is no target any more", {UP: "1x9 stale", BUILD: "1x9 stale"}, 15),
    ),
    "PodgpuSourceDown": (
        Case(
            "down",
            {SOURCE_UP: "1x9 0x30", AGE: "0+60x40"},
            16,
            [own(**KUBELET)],
            f"Source kubelet of podgpu on {NODE} is down",
            "The source of kind podresources does not work and is retried; see the log for the "
            "reason.",
        ),
        Case("for less than five minutes", {SOURCE_UP: "1x9 0x30"}, 14),
        Case("up", {SOURCE_UP: "1x30"}, 16),
        Case("removed from the configuration", {SOURCE_UP: "0x9 stale"}, 16),
    ),
    "PodgpuSourceStale": (
        Case(
            "up, without a report for eleven minutes",
            {SOURCE_UP: "1x30", AGE: "0+60x30"},
            11,
            [own(**KUBELET)],
            f"Source kubelet of podgpu on {NODE} does not report any more",
            "The source of kind podresources last reported 11m 0s ago.",
        ),
        Case("up, without a report for ten minutes", {SOURCE_UP: "1x30", AGE: "0+60x30"}, 10),
        Case("down causes another alert", {SOURCE_UP: "0x30", AGE: "0+60x30"}, 20),
        Case("it reports", {SOURCE_UP: "1x30", AGE: "5x30"}, 20),
        Case("it has not reported yet", {SOURCE_UP: "1x30"}, 20),
    ),
    "PodgpuAttributionStale": (
        Case(
            "up, and its claims are eleven minutes old",
            {SOURCE_UP: "1x30", ATTRIBUTED: "0+60x30"},
            11,
            [own(**KUBELET)],
            f"Holders reported by source kubelet of podgpu on {NODE} are out of date",
            "The source of kind podresources last confirmed its claims 11m 0s ago.",
        ),
        Case("down causes another alert", {SOURCE_UP: "0x30", ATTRIBUTED: "0+60x30"}, 20),
        Case(
            "up, and its claims are ten minutes old", {SOURCE_UP: "1x30", ATTRIBUTED: "0+60x30"}, 10
        ),
        Case(
            "up, and its claims are always four minutes old",
            {SOURCE_UP: "1x30", ATTRIBUTED: "240x30"},
            20,
        ),
        Case("confirmed", {SOURCE_UP: "1x30", ATTRIBUTED: "9x30"}, 20),
    ),
    "PodgpuUnresolvedDevice": (
        Case(
            "two ids that stay",
            {UNRESOLVED: "0x20 2x40"},
            35,
            [own(**KUBELET)],
            f"Source kubelet of podgpu on {NODE} reports unknown device ids",
            "2 ids match no device of the node; the log lists them.",
        ),
        Case("from the start on", {UNRESOLVED: "1x40"}, 12, [own(**KUBELET)]),
        Case("seven, while MIG instances are recreated", {UNRESOLVED: "0x20 7x8 0x20"}, 29),
        Case("after MIG instances were recreated", {UNRESOLVED: "0x20 7x8 0x20"}, 40),
        Case("for less than ten minutes", {UNRESOLVED: "0x20 2x40"}, 28),
        Case("none", {UNRESOLVED: "0x42"}, 42),
    ),
    "PodgpuConfigRefused": (
        Case(
            "for the first time",
            {REFUSED: "_x20 1x20", series("podgpu_config_reloads_total", result="done"): "4x40"},
            22,
            [own(result="refused")],
            f"podgpu on {NODE} did not reload its configuration",
            "Result of the reload: refused. podgpu keeps running with the previous "
            "configuration; see the log.",
        ),
        Case("another time", {REFUSED: "1x20 2x20"}, 22, [own(result="refused")]),
        Case("a quarter of an hour ago", {REFUSED: "_x20 1x40"}, 37),
        Case(
            "podgpu restarts, and refuses again",
            {REFUSED: "3x20 1x20"},
            22,
            [own(result="refused")],
        ),
        Case(
            "Prometheus did not run",
            {REFUSED: "_x20 1x40", UP: "_x20 1x40", **OLD_PROCESS},
            22,
        ),
        Case("reloaded", {series("podgpu_config_reloads_total", result="done"): "_x20 1x20"}, 22),
    ),
}
