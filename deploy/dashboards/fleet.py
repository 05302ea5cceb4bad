"""The dashboard of all nodes: number of GPUs, their utilisation, and faults."""

from deploy.dashboards.panels import Panel, Target
from deploy.dashboards.writing import choice, dashboard

S = 'Hostname=~"$node"'
KEY = "UUID, GPU_I_ID, GPU_CI_ID"
GOOD_OR_BAD = ((None, "green"), (1, "red"))


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

NOW = (
    Panel(
        "stat",
        "Nodes",
        "Nodes with at least one GPU that podgpu knows.",
        (Target(f"count(count by (Hostname) ({UP}))"),),
        width=4,
        height=5,
    ),
    Panel(
        "stat",
        "GPUs",
        "GPUs that respond, and all known GPUs.",
        (Target(f"sum({UP})", "respond"), Target(f"count({UP})", "known")),
        width=4,
        height=5,
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
    ),
    Panel(
        "stat",
        "Power",
        "Power draw of all boards together.",
        (Target(f"sum({POWER})"),),
        unit="watt",
        width=4,
        height=5,
    ),
    Panel(
        "stat",
        "GPUs down",
        "GPUs that do not respond.",
        (Target(f"sum({UP} == bool 0)"),),
        width=4,
        height=5,
        steps=GOOD_OR_BAD,
    ),
)

USE = (
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
    ),
    Panel(
        "timeseries",
        "Power by node",
        "Power draw of the boards of each node.",
        (Target(f"sum by (Hostname) ({POWER})", "{{Hostname}}"),),
        unit="watt",
        stacked=True,
    ),
    Panel(
        "timeseries",
        "Utilisation by node",
        "Mean over the GPUs of each node.",
        (Target(f"avg by (Hostname) ({UTIL})", "{{Hostname}}"),),
        unit="percent",
        most=100,
    ),
    Panel(
        "table",
        "Nodes",
        "GPUs known and held, mean utilisation, fraction of memory in use, power, hottest GPU.",
        (
            Target(f"count by (Hostname) ({UP})"),
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
            "Value #B": "Held",
            "Value #C": "Utilisation",
            "Value #D": "Memory in use",
            "Value #E": "Power",
            "Value #F": "Hottest",
        },
        units={
            "Utilisation": "percent",
            "Memory in use": "percentunit",
            "Power": "watt",
            "Hottest": "celsius",
        },
        none="",
    ),
)

FAULTS = (
    Panel(
        "table",
        "GPUs down",
        "GPUs that do not respond.",
        (Target(f"max by (Hostname, gpu, UUID) (podgpu_gpu_up{{{S}}}) == 0"),),
        width=8,
        columns={"Hostname": "Node", "gpu": "GPU", "UUID": "UUID"},
        none="",
    ),
    Panel(
        "table",
        "XID errors within the time shown",
        "The last of each code on each GPU. docs/alerts.md lists which are caused by programs and "
        "which by the hardware.",
        (
            Target(
                "(max by (Hostname, gpu, xid) "
                f"(podgpu_xid_last_seen_timestamp_seconds{{{S}}}) > time() - $__range_s) * 1000"
            ),
        ),
        width=8,
        columns={"Hostname": "Node", "gpu": "GPU", "xid": "XID", "Value": "Last"},
        units={"Last": "dateTimeFromNow"},
        none="",
    ),
    Panel(
        "table",
        "Memory that needs a reset",
        "GPUs that need a reset to replace memory rows, or with a failed replacement (1).",
        (
            Target(f"max by (Hostname, gpu) (DCGM_FI_DEV_ROW_REMAP_PENDING{{{S}}}) > 0"),
            Target(f"max by (Hostname, gpu) (DCGM_FI_DEV_ROW_REMAP_FAILURE{{{S}}}) > 0"),
        ),
        width=8,
        columns={"Hostname": "Node", "gpu": "GPU", "Value #A": "Pending", "Value #B": "Failed"},
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
    [("Now", NOW), ("Use", USE), ("Faults", FAULTS)],
)
