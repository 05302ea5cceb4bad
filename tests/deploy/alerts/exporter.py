"""Alerts about podgpu itself and its sources."""

from collections.abc import Mapping

from tests.deploy.alerts.case import NODE, Case, own, series

UP, BUILD = series("up"), series("podgpu_build_info", version="0.1.0")
KUBELET = {"source": "kubelet", "kind": "podresources"}
SOURCE_UP = series("podgpu_source_up", **KUBELET)
AGE = series("podgpu_source_age_seconds", **KUBELET)
ATTRIBUTED = series("podgpu_attribution_age_seconds", **KUBELET)
UNRESOLVED = series("podgpu_device_ids_unresolved", **KUBELET)
APPLIED = series("podgpu_config_reload_last_successful")

NEW = {"instance": "10.0.0.9:9400"}
NEW_UP = series("up", **NEW)
OTHER_NODE = {"instance": "10.0.0.2:9400", "node": "node-2"}
OTHER_UP, OTHER_BUILD = series("up", **OTHER_NODE), series("podgpu_build_info", **OTHER_NODE)

EXPORTER: Mapping[str, tuple[Case, ...]] = {
    "PodgpuDown": (
        Case(
            "podgpu ends, and starts again after 20 minutes",
            {UP: "1x9 0x19 1x9", BUILD: "1x9 stale _x19 1x9"},
            15,
            [own()],
            f"podgpu on {NODE} cannot be scraped",
            "It, or another podgpu of its job, was scraped within the last six hours. The state "
            "of that node's GPUs is unknown, and other alerts about them cannot fire.",
            resolved=31,
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
            {SOURCE_UP: "1x9 0x30 1x9", AGE: "0+60x40 0x9"},
            16,
            [own(**KUBELET)],
            f"Source kubelet of podgpu on {NODE} is down",
            "The source of kind podresources does not work and is retried. Its last report stays "
            "valid for a limited time.",
            resolved=42,
        ),
        Case("for less than five minutes", {SOURCE_UP: "1x9 0x30"}, 14),
        Case("up", {SOURCE_UP: "1x30"}, 16),
        Case("removed from the configuration", {SOURCE_UP: "0x9 stale"}, 16),
    ),
    "PodgpuSourceStale": (
        Case(
            "up, without a report for eleven minutes",
            {SOURCE_UP: "1x30", AGE: "0+60x20 0x9"},
            11,
            [own(**KUBELET)],
            f"Source kubelet of podgpu on {NODE} does not report any more",
            "The source of kind podresources last reported 11m 0s ago, and reports no error.",
            resolved=22,
        ),
        Case("up, without a report for ten minutes", {SOURCE_UP: "1x30", AGE: "0+60x30"}, 10),
        Case("down causes another alert", {SOURCE_UP: "0x30", AGE: "0+60x30"}, 20),
        Case("it reports", {SOURCE_UP: "1x30", AGE: "5x30"}, 20),
        Case("it has not reported yet", {SOURCE_UP: "1x30"}, 20),
    ),
    "PodgpuAttributionStale": (
        Case(
            "up, and its claims are eleven minutes old",
            {SOURCE_UP: "1x30", ATTRIBUTED: "0+60x20 0x9"},
            11,
            [own(**KUBELET)],
            f"Holders reported by source kubelet of podgpu on {NODE} are out of date",
            "The source of kind podresources last confirmed its claims 11m 0s ago. After its "
            "`max_age` they are dropped, and metrics lose their pod labels if no other source "
            "has the same claims.",
            resolved=22,
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
            {UNRESOLVED: "0x20 2x20 0x9"},
            35,
            [own(**KUBELET)],
            f"Source kubelet of podgpu on {NODE} reports unknown device ids",
            "2 ids match no device of the node, and containers with these ids are not shown as "
            "holders.",
            resolved=43,
        ),
        Case("from the start on", {UNRESOLVED: "1x40"}, 12, [own(**KUBELET)]),
        Case("seven, while MIG instances are recreated", {UNRESOLVED: "0x20 7x8 0x20"}, 29),
        Case("after MIG instances were recreated", {UNRESOLVED: "0x20 7x8 0x20"}, 40),
        Case("for less than ten minutes", {UNRESOLVED: "0x20 2x40"}, 28),
        Case("none", {UNRESOLVED: "0x42"}, 42),
    ),
    "PodgpuConfigRefused": (
        Case(
            "the changed file is wrong, and is corrected after 20 minutes",
            {APPLIED: "1x9 0x19 1x9"},
            25,
            [own()],
            f"podgpu on {NODE} did not apply its changed configuration",
            "podgpu keeps running with the previous configuration, and would not start with the "
            "changed one.",
            resolved=31,
        ),
        Case("the first change", {APPLIED: "_x20 0x20"}, 22, [own()]),
        Case(
            "a pause of Prometheus changes nothing",
            {APPLIED: "0x9 _x20 0x20"},
            32,
            [own()],
        ),
        Case("for less than a minute", {APPLIED: "1x9 0x19"}, 10),
        Case("applied", {APPLIED: "1x40"}, 22),
        Case("never changed", {UP: "1x40", BUILD: "1x40"}, 22),
    ),
}
