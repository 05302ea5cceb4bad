"""The dashboard of all nodes: number of GPUs, their utilisation, and faults."""

from deploy.dashboards.panels import GOOD_OR_BAD, Cell, Panel, Target
from deploy.dashboards.queries import (
    COLOURS,
    FULL,
    HOT,
    LOW_PER_CENT_IS_BAD,
    NAMESPACE_BY_NAME,
    NODE,
    NODE_BY_NAME,
    XID_CELLS,
    XID_COLUMNS,
    device_states,
    xid_events,
    xid_rows,
)
from deploy.dashboards.writing import choice, dashboard

S = 'Hostname=~"$node"'
KEY = "UUID, GPU_I_ID, GPU_CI_ID"


def by_gpu(metric: str, more: str = "") -> str:
    """Return a query with one value per GPU, for any holders and any number of podgpus."""
    return f"max by (Hostname, UUID) ({metric}{{{S}{more}}})"


HELD_GPUS = f"max by (Hostname, UUID) (podgpu_device_holder_info{{{S}}})"
UTIL = by_gpu("DCGM_FI_DEV_GPU_UTIL")
USED = by_gpu("DCGM_FI_DEV_FB_USED", ',GPU_I_ID=""')
TOTAL = by_gpu("DCGM_FI_DEV_FB_TOTAL", ',GPU_I_ID=""')
POWER = by_gpu("DCGM_FI_DEV_POWER_USAGE")
UP = by_gpu("podgpu_gpu_up")

# Nodes with a source that has confirmed holders recently, with the limit of the alerts. The source
# pods is not sufficient. On other nodes a GPU without a known holder is unknown, not free.
INFORMED = (
    f"max by (Hostname) (podgpu_device_info{{{S}}} and on (job, instance) "
    '(podgpu_attribution_age_seconds{kind!="pods"} < 300))'
)
UNHELD = f"({UP} == 1) unless on (UUID) podgpu_device_holder_info"

COLOURS_OF_STATES = {state: COLOURS[state] for state in device_states(S)}

NOW = (
    Panel(
        "stat",
        "Nodes",
        "Nodes with at least one GPU that podgpu knows.",
        (Target(f"count(count by (Hostname) ({UP}))"),),
        width=4,
        height=5,
        trend=True,
    ),
    Panel(
        "stat",
        "GPUs",
        "GPUs that respond, and all known GPUs.",
        (Target(f"sum({UP})", "respond"), Target(f"count({UP})", "known")),
        width=4,
        height=5,
        trend=True,
    ),
    Panel(
        "stat",
        "GPUs held",
        "GPUs that are held at least in part, as a fraction of all GPUs on nodes with known "
        "holders.",
        (
            Target(
                f"count({HELD_GPUS} and on (Hostname) {INFORMED}) "
                f"/ count({UP} and on (Hostname) {INFORMED})"
            ),
        ),
        unit="percentunit",
        width=4,
        height=5,
        most=1,
        none="none known",
        trend=True,
    ),
    Panel(
        "stat",
        "Utilisation",
        "Mean over the GPUs that report it: over all, and over those that are held.",
        (
            Target(f"avg({UTIL})", "all"),
            Target(f"avg({UTIL} and on (UUID) podgpu_device_holder_info)", "held"),
        ),
        unit="percent",
        width=4,
        height=5,
        most=100,
        steps=LOW_PER_CENT_IS_BAD,
        trend=True,
    ),
    Panel(
        "stat",
        "GPUs down",
        "GPUs that do not respond.",
        (Target(f"sum({UP} == bool 0)"),),
        width=4,
        height=5,
        steps=GOOD_OR_BAD,
        trend=True,
    ),
    Panel(
        "stat",
        "XID errors in the last hour",
        "GPUs and codes with an error within the last hour.",
        (
            Target(
                "count(max by (UUID, xid) "
                f"(last_over_time(podgpu_xid_last_seen_timestamp_seconds{{{S}}}[1h])) "
                "> time() - 3600)"
            ),
        ),
        width=4,
        height=5,
        steps=GOOD_OR_BAD,
        none="none",
        trend=True,
    ),
)

USE = (
    Panel(
        "timeseries",
        "GPUs busy, idle and free",
        "Mean number of devices in each state, by the usage accounts. Idle is held and not busy; "
        "unattributed is busy with work of no known container; unknown is time for which it is "
        "unknown who held the device. A device that is used without being held is busy and free.",
        tuple(Target(query, state) for state, query in device_states(S).items()),
        stacked=True,
        colours=COLOURS_OF_STATES,
        interval="1m",
    ),
    Panel(
        "timeseries",
        "GPUs held and free",
        "A GPU counts as held if at least a part of it is held. Unknown are GPUs of nodes on which "
        "no source has confirmed holders for five minutes.",
        (
            Target(f"count({HELD_GPUS} and on (UUID) ({UP} == 1))", "held"),
            Target(f"count({UNHELD} and on (Hostname) {INFORMED})", "free"),
            Target(f"count({UNHELD} unless on (Hostname) {INFORMED})", "unknown"),
            Target(f"count({UP} == 0)", "down"),
        ),
        stacked=True,
        colours={state: COLOURS[state] for state in ("held", "free", "unknown", "down")},
    ),
    Panel(
        "timeseries",
        "GPUs by utilisation",
        "How many GPUs are idle (below 5 %), in between, and busy (50 % and more).",
        (
            Target(f"sum({UTIL} >= bool 50)", "busy"),
            Target(f"sum(({UTIL} >= bool 5) * ({UTIL} < bool 50))", "in between"),
            Target(f"sum({UTIL} < bool 5)", "idle"),
        ),
        stacked=True,
        colours={"busy": "green", "in between": "yellow", "idle": "orange"},
        width=8,
    ),
    Panel(
        "bargauge",
        "GPUs by model",
        "Number of GPUs of each model.",
        (
            Target(
                f'count by (model) (max by (model, UUID) (podgpu_device_info{{{S},GPU_I_ID=""}}))',
                "{{model}}",
            ),
        ),
        width=8,
    ),
    Panel(
        "bargauge",
        "Devices held by namespace",
        "The ten namespaces that hold the most GPUs and MIG instances.",
        (
            Target(
                f"topk(10, count by (namespace) (max by (namespace, {KEY}) "
                f"(podgpu_device_holder_info{{{S}}})))",
                "{{namespace}}",
            ),
        ),
        width=8,
        none="none known",
        link=NAMESPACE_BY_NAME,
    ),
    Panel(
        "bargauge",
        "Largest free NVLink group",
        "Free GPUs that are connected by NVLink: the ten nodes with the most.",
        (
            Target(
                "topk(10, max by (Hostname) "
                f'(podgpu_topology_largest_free_group_gpus{{{S},level="nvlink"}}))',
                "{{Hostname}}",
            ),
        ),
        width=8,
        link=NODE_BY_NAME,
    ),
    Panel(
        "timeseries",
        "Power by node",
        "Power draw of the boards of each node.",
        (Target(f"sum by (Hostname) ({POWER})", "{{Hostname}}"),),
        unit="watt",
        width=8,
        stacked=True,
        link=NODE_BY_NAME,
    ),
    Panel(
        "timeseries",
        "Utilisation by node",
        "Mean over the GPUs of each node.",
        (Target(f"avg by (Hostname) ({UTIL})", "{{Hostname}}"),),
        unit="percent",
        width=8,
        most=100,
        link=NODE_BY_NAME,
    ),
    Panel(
        "table",
        "Nodes",
        "GPUs: known, down, held; mean utilisation, part of memory in use, power, hottest GPU.",
        (
            Target(f"count by (Hostname) ({UP})"),
            Target(f"sum by (Hostname) ({UP} == bool 0)"),
            Target(f"count by (Hostname) ({HELD_GPUS})"),
            Target(f"avg by (Hostname) ({UTIL})"),
            Target(f"sum by (Hostname) ({USED}) / sum by (Hostname) ({TOTAL})"),
            Target(f"sum by (Hostname) ({POWER})"),
            Target(f"max by (Hostname) (DCGM_FI_DEV_GPU_TEMP{{{S}}})"),
        ),
        width=24,
        height=10,
        columns={
            "Hostname": "Node",
            "Value #A": "GPUs",
            "Value #B": "Down",
            "Value #C": "Held",
            "Value #D": "Utilisation",
            "Value #E": "Memory in use",
            "Value #F": "Power",
            "Value #G": "Hottest",
        },
        cells={
            "Node": NODE,
            "Down": Cell(look="background", steps=((None, "transparent"), (1, "red"))),
            "Utilisation": Cell("percent", LOW_PER_CENT_IS_BAD, "gauge", 100),
            "Memory in use": Cell("percentunit", FULL, "gauge", 1),
            "Power": Cell("watt"),
            "Hottest": Cell("celsius", HOT, "text"),
        },
        sort="Down",
        none="",
    ),
)

FAULTS = (
    Panel(
        "table",
        "XID errors within the time shown",
        "The last of each code on each GPU, and each container that held or used the GPU then, "
        "with the action that NVIDIA advises. docs/alerts.md lists which are caused by programs "
        "and which by the hardware.",
        (Target(xid_rows(S)),),
        width=24,
        height=7,
        columns=XID_COLUMNS,
        cells=XID_CELLS,
        sort="Last",
        none="",
    ),
    Panel(
        "table",
        "GPUs down and their holders",
        "GPUs that do not respond, and the containers that hold them.",
        (
            Target(
                f"(max by (Hostname, gpu, UUID) (podgpu_gpu_up{{{S}}}) == 0) "
                "+ on (UUID) group_right (Hostname, gpu) "
                "max by (UUID, namespace, pod) (podgpu_device_holder_info) "
                f"or on (UUID) max by (Hostname, gpu, UUID) (podgpu_gpu_up{{{S}}}) == 0"
            ),
        ),
        height=6,
        columns={
            "Hostname": "Node",
            "gpu": "GPU",
            "namespace": "Namespace",
            "pod": "Pod",
        },
        cells={
            "Node": NODE,
            "GPU": XID_CELLS["GPU"],
            "Namespace": XID_CELLS["Namespace"],
            "Pod": XID_CELLS["Pod"],
        },
        none="",
    ),
    Panel(
        "table",
        "GPUs that need attention",
        "GPUs of which the driver requests a recovery action, that need a reset to replace memory "
        "rows, with a failed replacement, or on which pods have conflicting claims.",
        (
            Target(f"max by (Hostname, gpu) (podgpu_recovery_action{{{S}}}) > 0"),
            Target(f"max by (Hostname, gpu) (DCGM_FI_DEV_ROW_REMAP_PENDING{{{S}}}) > 0"),
            Target(f"max by (Hostname, gpu) (DCGM_FI_DEV_ROW_REMAP_FAILURE{{{S}}}) > 0"),
            Target(f"max by (Hostname, gpu) (podgpu_attribution_conflicts{{{S}}}) > 0"),
        ),
        height=6,
        columns={
            "Hostname": "Node",
            "gpu": "GPU",
            "Value #A": "The driver requests",
            "Value #B": "Memory rows",
            "Value #C": "Replacement",
            "Value #D": "Conflicting claims",
        },
        cells={
            "Node": NODE,
            "GPU": XID_CELLS["GPU"],
            "The driver requests": Cell(
                look="background",
                words={
                    "1": ("reset", "red"),
                    "2": ("reboot", "red"),
                    "3": ("drain of its peers", "red"),
                    "4": ("drain and reset", "red"),
                },
            ),
            "Memory rows": Cell(look="background", words={"1": ("reset needed", "orange")}),
            "Replacement": Cell(look="background", words={"1": ("failed", "red")}),
            "Conflicting claims": Cell(look="background", steps=((None, "orange"),)),
        },
        none="",
    ),
    Panel(
        "timeseries",
        "GPUs with reduced clocks",
        "By reason. Reduction by the power limit is normal under full load.",
        (
            Target(
                "sum by (reason) (max by (UUID, reason) (podgpu_clock_throttle_active{"
                f'{S},reason!~"gpu_idle|clocks_setting|display_clocks"}}))',
                "{{reason}}",
            ),
        ),
        width=8,
    ),
    Panel(
        "timeseries",
        "Sources down, sinks down",
        "Number of sources and sinks of all podgpus that do not work.",
        (
            Target("sum(podgpu_source_up == bool 0)", "sources"),
            Target("sum(podgpu_sink_up == bool 0)", "sinks"),
        ),
        width=8,
        colours={"sources": "red", "sinks": "orange"},
    ),
    Panel(
        "table",
        "podgpu versions",
        "Number of nodes with each.",
        (Target("count by (version, python) (podgpu_build_info)"),),
        width=8,
        columns={"version": "podgpu", "python": "Python", "Value": "Nodes"},
    ),
)

FLEET = dashboard(
    "podgpu-fleet",
    "podgpu: fleet",
    "All GPUs: number, utilisation and faults.",
    [choice("node", "Node", "label_values(podgpu_device_info, Hostname)", everything=".*")],
    [("Now", NOW), ("Faults", FAULTS), ("Use", USE)],
    annotations=xid_events(S),
)
